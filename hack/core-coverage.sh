#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where a statement of the pure core is reached by no test that says what it is for. What explores, plays by chance or measures
# does not count, since what it reaches depends on seeds and bounds; it also takes longest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=$(mktemp)
trap 'rm -f "$profile"' EXIT

go test -coverprofile "$profile" -coverpkg ./internal/lifecycle/... ./internal/lifecycle/... -skip \
  '^(TestModel|FuzzDecide|TestItemsByChance|TestGroupsOfItemsAreBounded|TestDecisionAboutItemsIsSettled|TestPlacesOfItemsAreUsed|TestTheModelNeedsEachRuleOfRunningAhead|TestTheModelNeedsEachPartOfTheFence)$'

# file.go:line.column,line.column statements hits
# The test of each package has its own line for a statement: it counts where one of them reaches it.
missed=$(awk '$1 != "mode:" && $2 > 0 { hits[$1] += $3 } END { for (s in hits) if (hits[s] == 0) print "  " s }' "$profile" | sort)
if [[ -n $missed ]]; then
  printf 'no test reaches these statements; write one, or delete them:\n%s\n' "$missed" >&2
  exit 1
fi
