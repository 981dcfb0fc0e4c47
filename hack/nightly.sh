#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs what is too long for make test, one after the other, and prints how long each took and which failed:
#
#   hack/nightly.sh [NAME]...
#
# Without names it runs all. DURATION (6h) is that of the faults, with PART, RIGS and SEEDS as make test-faults has them. SMALL=1
# takes few runs of each, to see that the parts can be run; cron, rollout and after_crash have one size. The output of each is in
# bin/nightly, with the seeds that were played and the table of faults by invariants. A part that fails does not keep the next from
# running; the exit code is 1 then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export REQUIRE_REDIS=1 KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$PWD/bin/k8s}

size() { if [[ ${SMALL:-} ]]; then echo "$2"; else echo "$1"; fi; }
specs() { go test -count=1 -timeout 6h -v "$1" -ginkgo.v -ginkgo.timeout 6h -ginkgo.focus "$2"; }
faults() { make --no-print-directory test-faults DURATION="${DURATION:-$(size 6h 3m)}"; }
cron() { make --no-print-directory test-cron; }
shards() { make --no-print-directory test-shards SHARDS="$(size 5000 500)"; }
rollout() { make --no-print-directory test-rollout; }
schedules() { make --no-print-directory bench-schedules SCHEDULES="$(size 1000 100)"; }
templates() { TEMPLATE_RUNS=$(size 200 30) specs ./internal/controller/workflowrun 'keeps its revision, though the Workflow changes'; }
locks() { LOCKS=$(size 1 "") specs ./internal/controller/workflowrun 'locks across runs'; }
audit() { AUDIT_RUNS=$(size 10000 300) specs ./test/e2e 'An audit under load'; }
ledger() { go test -timeout 6h -run '^$' -bench LedgerItems -benchtime "$(size 10 1)x" -v ./test/ledger; }
after_crash() { NATS_CRASH=1 go test -count=1 -timeout 1h -v ./internal/bus -run TestWhatThreeServersKeepAfterACrash; }

all=(cron schedules templates locks shards rollout after_crash audit ledger faults)
[[ $# -gt 0 ]] || set -- "${all[@]}"
for part in "$@"; do
  [[ " ${all[*]} " == *" $part "* ]] || { echo "no part $part; there are: ${all[*]}" >&2; exit 2; }
done

mkdir -p bin/nightly
failed=0
printf '%-12s %8s  %s\n' PART SECONDS RESULT
for part in "$@"; do
  begin=$SECONDS result=ok
  "$part" >"bin/nightly/$part.txt" 2>&1 || result="FAILED, see bin/nightly/$part.txt" failed=1
  # A text or a name that no test has any more is no success.
  grep -qE 'Ran 0 of|no tests to run' "bin/nightly/$part.txt" && result="NOTHING RAN, see bin/nightly/$part.txt" failed=1
  printf '%-12s %8d  %s\n' "$part" $((SECONDS - begin)) "$result"
done
exit $failed
