#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of packages again and again on a busy machine, to find those that depend on time:
#
#   JOBS=1 hack/stress.sh PACKAGES COUNT LOAD [ARGUMENTS OF THE TEST BINARIES...]
#
# LOAD processes do nothing but use the processors meanwhile. Each package's tests are built once, without the race detector, and run
# COUNT times, JOBS of them side by side, one package after the other, in the package's directory. With LOAD=0 JOBS=8 the runs are each
# other's load: more of them in the same time. It prints what failed and ends with 1 then; the output of each failed run is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$1 count=$2 load=$3
shift 3
jobs=${JOBS:-1}

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
  mkdir "$work/bin/$(tr / _ <<<"$path")"
  # Binaries have the names that go test gives them: by theirs, clients call themselves.
  go test -c -o "$work/bin/$(tr / _ <<<"$path")/${path##*/}.test" "$path"
done <"$work/bin/packages"

for ((i = 0; i < load; i++)); do
  (while :; do :; done) &
  burners+=($!)
  disown
done

# once is one run of a package's tests. It leaves a log if it failed.
once() {
  local path=$1 dir=$2 run=$3 log binary
  shift 3
  binary=$work/bin/$(tr / _ <<<"$path")/${path##*/}.test
  log=$work/$(tr / _ <<<"$path").$run.log
  if (cd "$dir" && "$binary" -test.timeout 60m -test.count 1 "$@") >"$log" 2>&1 </dev/null; then
    rm "$log"
    return
  fi
  echo "FAIL $path, run $run of $count: $log"
  grep -E '^ *--- FAIL|\[FAIL\]|^panic:|^fatal error:|DATA RACE' "$log" | sort -u | head -20 || true
}

failed=0
while read -r path dir; do
  began=$SECONDS running=()
  for ((i = 1; i <= count; i++)); do
    once "$path" "$dir" "$i" "$@" &
    running+=($!)
    if ((${#running[@]} == jobs)); then
      wait -n -p ended "${running[@]}"
      mapfile -t running < <(printf '%s\n' "${running[@]}" | grep -vx "$ended" || true)
    fi
  done
  [ ${#running[@]} -eq 0 ] || wait "${running[@]}"
  bad=$(find "$work" -maxdepth 1 -name "$(tr / _ <<<"$path").[0-9]*.log" | wc -l)
  echo "$path: $bad of $count failed, $((SECONDS - began)) s, load $(cut -d' ' -f1 /proc/loadavg)"
  failed=$((failed + bad))
done <"$work/bin/packages"
[ "$failed" -eq 0 ]
