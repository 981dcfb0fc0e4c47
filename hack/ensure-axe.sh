#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that axe-core is in hack/axe, which finds what keeps people from using a page. It comes from npm's registry, as
# hack/axe/package-lock.json pins it.
# Without it the console is looked at by the tests' own rules only; with REQUIRE_AXE=1 this fails instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/axe"

pinned() { node -p "require('./package-lock.json').packages['node_modules/axe-core'].version"; }
there() { node -p "require('./node_modules/axe-core/package.json').version" 2>/dev/null; }

if command -v npm >/dev/null; then
  if [[ $(there) == "$(pinned)" ]]; then
    exit 0
  fi
  if timeout 90 npm ci --prefer-offline --no-audit --no-fund --fetch-retries=3 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000 >/dev/null 2>&1; then
    exit 0
  fi
  why="npm cannot install it"
else
  why="there is no npm"
fi
echo "axe-core: $why; the console is looked at without it" >&2
if [[ ${REQUIRE_AXE:-} == 1 ]]; then
  exit 1
fi
