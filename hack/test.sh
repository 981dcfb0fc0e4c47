#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh PACKAGES [ARG]...: runs their tests, with the race detector. It has nothing to find in tests that say norace.Only
# (internal/testenv/norace), and makes them some times as slow: they are skipped then, and run once more without it. Where all packages
# are meant (./...), whole packages that start no goroutine, in tests neither, run without it, too, and so do the specs of runs that go
# one way of the code at each of many moments. Each part says how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$1
shift

# without_race DIRECTORY...: a line with directory and name for each test of these directories that says norace.Only. A test that says
# it elsewhere than at the margin of its own body would be skipped and never run.
without_race() {
  find "$@" -maxdepth 1 -name '*_test.go' -exec awk '
    /^func / { name = $2; sub(/\(.*/, "", name) }
    /internal\/testenv\/norace"/ && !/^\t"/ { bad = 1 }
    /norace\.Only\(/ && (!/^\tnorace\.Only\(/ || name !~ /^(Test|Fuzz)/) { bad = 1 }
    bad { print FILENAME ":" FNR ": " $0 ": norace.Only is called by a test itself, not by what it calls" > "/dev/stderr"; exit 1 }
    /norace\.Only\(/ { file = FILENAME; sub(/\/[^\/]*$/, "", file); print file, name }' {} +
}

# run_without_race LINES [ARG]...: runs what without_race found.
run_without_race() {
  local names where
  names=$(cut -d ' ' -f 2 <<<"$1" | sort -u | paste -sd '|' -)
  where=$(cut -d ' ' -f 1 <<<"$1" | sort -u)
  # shellcheck disable=SC2086 # several directories, of packages: no spaces are in them
  go test -p 1 -count=1 -timeout 40m -vet=off -ldflags=-w -run "^($names)\$" "${@:2}" $where
}

# timed NAME COMMAND...
timed() {
  local TIMEFORMAT="== $1: %0R s, %0U + %0S s of CPU"
  time "${@:2}"
}

# shellcheck disable=SC2086 # several patterns
directories=$(go list -f '{{.Dir}}' $packages)
if [[ $packages != ./... ]]; then
  failed=0
  # shellcheck disable=SC2086 # several patterns
  go test -race -p 3 -count=1 -timeout 40m "$@" $packages || failed=1
  # shellcheck disable=SC2086
  found=$(without_race $directories)
  [[ -z $found ]] || run_without_race "$found" "$@" || failed=1
  exit $failed
fi

# Those that take longest begin first, and of these those that wait most: at the end nothing waits for them.
longest=(
  ./test/e2e ./internal/controller/workflowrun ./test/tutorial ./internal/quota/store ./test/workers ./test/faults ./test/ledger
  ./internal/quota/controller ./test/locks ./cmd/manager ./test/packaging ./test/console ./internal/ownership ./examples/worker-node
  ./test/apirules
)
sequential=(./internal/lifecycle ./internal/ownership/rules ./internal/document ./internal/simulate)
elsewhere=(./test/e2e/cluster) # make test-e2e: here it would be linked to skip itself

if grep -nE '^\s*go (func|[a-zA-Z.]+\()|\berrgroup\b|"sync"|"sync/atomic"' --include='*.go' -r "${sequential[@]}"; then
  echo "these are tested without the race detector: hack/test.sh" >&2
  exit 1
fi
# shellcheck disable=SC2086
found=$(without_race $directories)
module=$(go list -m)
apart=("${sequential[@]}" "${elsewhere[@]}" "${longest[@]}")
# shellcheck disable=SC2207 # import paths
others=($(go list ./... | grep -vxF "$(printf '%s\n' "${apart[@]/#./$module}")"))

# Several packages need the operator as a program: it is linked once.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OPERATOR_BINARY=$scratch/manager
go build -ldflags=-w -o "$OPERATOR_BINARY" ./cmd/manager

# Without symbols for debuggers programs are linked sooner; make lint vets all.
plain=(-timeout 40m -vet=off -ldflags=-w)
race() { SPEC_LABELS='!matrix' go test -race -p 3 -count=1 "${plain[@]}" "$@" "${longest[@]}" "${others[@]}"; }
matrix() { SPEC_LABELS=matrix go test -run '^TestWorkflowRun$' -count=1 "${plain[@]}" "$@" ./internal/controller/workflowrun; }
without_goroutines() { go test -p 1 -count=1 "${plain[@]}" "$@" "${sequential[@]}"; }
modules() {
  local failed=0 dir
  for dir in test/bench examples/lock-fences hack/release; do
    go -C "$dir" test -count=1 "${plain[@]}" . || failed=1
  done
  return $failed
}

(
  failed=0
  timed "the matrix of specs" matrix "$@" || failed=1
  timed "packages without goroutines" without_goroutines "$@" || failed=1
  timed "tests without the race detector" run_without_race "$found" "$@" || failed=1
  timed "modules beside this one" modules || failed=1
  exit $failed
) &
failed=0
timed "tests with the race detector" race "$@" || failed=1
wait $! || failed=1
exit $failed
