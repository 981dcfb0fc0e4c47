#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make test-faults: plays faults for DURATION on each of the parts PART, and prints one table.
#
# RIGS plays of each part run side by side, each with servers of its own, two API servers among them. On two cores 2 of each part are a load of
# 20 if TMPDIR is in memory, as /dev/shm is, and of 65 and more on a disk, which all of them have write at each step: then stalls of the machine
# pass for those of the operator. A server that is killed keeps what it wrote either way.
# With SEEDS there is one play of each part, with these seeds. The output of each play is in OUT (bin/faults). TOTALS is a file that the rounds are
# added to, as docs/faults.json: the table is of all that is in it then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${DURATION:=30m}" "${PART:=one,sentinel,cluster}" "${SEEDS:=}" "${FAULT:=}" "${RIGS:=1}" "${OUT:=bin/faults}"
[[ -z $SEEDS ]] || RIGS=1

mkdir -p "$OUT"
rm -f "$OUT"/*.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The operator has a clock that can be wrong. To build it so takes minutes, once.
go build -overlay "$(go run ./hack/wrongclocks bin/_clocks)" -o "$work/manager" ./cmd/manager
go test -c -o "$work/faults.test" ./test/faults

plays=()
for part in ${PART//,/ }; do
  for ((i = 1; i <= RIGS; i++)); do
    (cd test/faults && FAULTS_DURATION=$DURATION FAULTS_SEEDS=$SEEDS FAULTS_PART=$part FAULTS_WANTED=$FAULT FAULTS_PLAY=$i FAULTS_OPERATOR=$work/manager \
      exec "$work/faults.test" -test.timeout 24h -test.v -test.run '^TestFaults$') >"$OUT/$part-$i.txt" 2>&1 </dev/null &
    plays+=($!)
  done
done
failed=0
for play in "${plays[@]}"; do wait "$play" || failed=1; done
go run ./hack/faulttable ${TOTALS:+-totals "$TOTALS" -commit "$(git describe --always --dirty)"} "$OUT"/*.txt || failed=1
[[ $failed == 0 ]] || grep -hE -- '--- FAIL|SEEDS=[0-9]+,|_test.go:[0-9]+: (not within|NATS refused|I6)' "$OUT"/*.txt || true
exit $failed
