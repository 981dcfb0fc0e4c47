#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh PACKAGES [ARG]...: runs their tests, with the race detector. Where all packages are meant (./...), those that start no
# goroutine, in tests neither, run without it: it has nothing to find there, and makes explorations of models ten times as slow. The
# specs of runs that go one way of the code at each of many moments run without it, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$1
shift

if [[ $packages != ./... ]]; then
  # shellcheck disable=SC2086 # several patterns
  exec go test -race -p 3 -count=1 -timeout 40m "$@" $packages
fi

longest=(./test/e2e ./internal/controller/workflowrun ./internal/quota/store ./test/workers ./test/ledger ./internal/quota/controller ./test/faults) # first: at the end nothing waits for them
sequential=(./internal/lifecycle ./internal/ownership/rules ./internal/document ./internal/simulate)

if grep -nE '^\s*go (func|[a-zA-Z.]+\()|\berrgroup\b|"sync"|"sync/atomic"' --include='*.go' -r "${sequential[@]}"; then
  echo "these are tested without the race detector: hack/test.sh" >&2
  exit 1
fi
module=$(go list -m)
mapfile -t others < <(go list ./... | grep -vxF "$(printf '%s\n' "${sequential[@]/#./$module}")")

(
  failed=0
  go test -p 1 -count=1 -timeout 40m "$@" "${sequential[@]}" || failed=1
  SPEC_LABELS=matrix go test -run '^TestWorkflowRun$' -count=1 -timeout 40m "$@" ./internal/controller/workflowrun || failed=1
  go -C test/bench test -count=1 . || failed=1
  go -C examples/lock-fences test -count=1 . || failed=1
  go -C hack/release test -count=1 . || failed=1
  exit $failed
) &
failed=0
# Without symbols for debuggers programs are linked sooner; make verify vets all.
SPEC_LABELS='!matrix' go test -race -p 3 -count=1 -timeout 40m -ldflags=-w -vet=off "$@" "${longest[@]}" "${others[@]}" || failed=1
wait $! || failed=1
exit $failed
