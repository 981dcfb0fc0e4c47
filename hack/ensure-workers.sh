#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that the sample workers in other languages can run: python3, and node with npm and a registry that has what the Node
# worker needs (afterwards it is in npm's cache). On a Debian system it installs the packages.
# Without them their tests are skipped; with REQUIRE_WORKERS=1 this fails instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/apt.sh
source hack/apt.sh

missing=()
look() {
  missing=()
  local program
  for program in python3 node npm; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
}

# give_up "what is missing" "what to do"
give_up() {
  echo "workers in other languages: $1; $2" >&2
  if [[ -n ${REQUIRE_WORKERS:-} ]]; then
    exit 1
  fi
  echo "their tests will be skipped" >&2
  exit 0
}

look
if ((${#missing[@]})) && can_install; then
  echo "missing: ${missing[*]}; installing the packages" >&2
  packages=()
  for program in "${missing[@]}"; do
    packages+=("${program/#node/nodejs}")
  done
  install_packages ca-certificates "${packages[@]}" >/dev/null || true
  look
fi
if ((${#missing[@]})); then
  give_up "missing: ${missing[*]}" "install Python 3.9 and Node 22.15 or newer with npm (their tests pass with Node 20, too)"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp examples/worker-node/{package.json,package-lock.json,.npmrc} "$scratch"
if ! out=$(cd "$scratch" && timeout 90 npm ci --prefer-offline --no-audit --no-fund \
  --fetch-retries=3 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000 2>&1); then
  why=$(grep -iE '^npm (err!|error)' <<<"$out" | head -n 2 | paste -sd ' ' -)
  give_up "npm cannot install what the Node worker needs (${why:-no answer in time})" "it needs a registry that it can reach: npm config set registry"
fi
