#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Looks in the database of Go vulnerabilities for those that this code reaches. It is not part of the gate: the database changes by itself,
# and not everybody who builds can reach it. Exit codes: 0 none, 1 some or the check itself failed, 3 the database cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
GOFLAGS=-mod=mod go tool -modfile=hack/tools/vuln/go.mod govulncheck "${@:-./...}" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
if grep -qE 'fetching vulnerabilities|vuln\.go\.dev.*(dial|lookup|timeout|refused|proxyconnect|Forbidden)|HTTP GET .*(failed|status)' "$log"; then
  echo "vulncheck: the database of vulnerabilities cannot be reached, so nothing was checked. It is https://vuln.go.dev;" \
    "a copy is named with -db, as in: hack/vulncheck.sh -db file:///path/to/vulndb ./..." >&2
  exit 3
fi
((code == 0)) || exit 1
