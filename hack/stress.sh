#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of packages again and again on a busy machine, to find those that depend on time:
#
#   hack/stress.sh PACKAGES COUNT LOAD [ARGUMENTS OF THE TEST BINARIES...]
#
# LOAD processes do nothing but use the processors meanwhile. Each package's tests are built once, without the race detector, and run
# COUNT times, one package after the other, in the package's directory. It prints what failed and ends with 1 then; the output
# of each failed run is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$1 count=$2 load=$3
shift 3

work=$(mktemp -d)
burners=()
finish() {
  [ ${#burners[@]} -eq 0 ] || kill "${burners[@]}" 2>/dev/null || true
  rm -rf "$work/bin"
  rmdir "$work" 2>/dev/null || true # there are outputs of failed runs in it
}
trap finish EXIT
trap 'exit 130' INT TERM
mkdir "$work/bin"

# shellcheck disable=SC2086 # several patterns
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' $packages | sed '/^$/d' >"$work/bin/packages"
while read -r path _; do # before the load begins
  go test -c -o "$work/bin/$(tr / _ <<<"$path").test" "$path"
done <"$work/bin/packages"

for ((i = 0; i < load; i++)); do
  (while :; do :; done) &
  burners+=($!)
  disown
done

failed=0
while read -r path dir; do
  began=$SECONDS bad=0
  for ((i = 1; i <= count; i++)); do
    log=$work/$(tr / _ <<<"$path").$i.log
    if (cd "$dir" && "$work/bin/$(tr / _ <<<"$path").test" -test.timeout 30m -test.count 1 "$@") >"$log" 2>&1 </dev/null; then
      rm "$log"
    else
      bad=$((bad + 1))
      echo "FAIL $path, run $i of $count: $log"
      grep -E '^ *--- FAIL|\[FAIL\]|^panic:|^fatal error:|DATA RACE' "$log" | sort -u | head -20 || true
    fi
  done
  echo "$path: $bad of $count failed, $((SECONDS - began)) s"
  failed=$((failed + bad))
done <"$work/bin/packages"
[ "$failed" -eq 0 ]
