#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where the tree is not what its sources say: generated files, kustomize output, the chart, alerts, go.mod; where
# the API or the wire protocol breaks who uses the last release,
# a statement of the core is reached by no test, docs/bugs.md names a test that is not there, a quoted figure is not that of its file, the table of
# faults is not that of its totals, an error is made of the text of another, a comment or a page names what does not exist, a comment line is too long, a file does not say its licence,
# concerns are tied together again, or a file is larger than sources are or a compiled program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d) log=$(mktemp) # apart: each file in scratch is compared with the tree

# Beside the rest, since it takes longest.
hack/core-coverage.sh >"$log" 2>&1 &
coverage=$!
trap 'kill "$coverage" 2>/dev/null || true; wait "$coverage" || true; rm -rf "$scratch" "$log"' EXIT

echo "generated files"
hack/generate.sh "$scratch"
while IFS= read -r -d '' file; do
  diff -u "$file" "$scratch/$file" || { echo "$file is stale: run make generate" >&2; exit 1; }
done < <(cd "$scratch" && find . -type f -print0)
for dir in config/crd/bases charts/syncopate/files; do # what nothing generates any more
  diff -r "$dir" "$scratch/$dir" || { echo "$dir is not what is generated: run make generate, and remove what it does not write" >&2; exit 1; }
done

echo "compatibility with the last release"
go run ./hack/compat

echo "kustomize"
for dir in config/default config/default-webhook config/monitoring config/network-policy config/console config/samples; do
  go tool -modfile=hack/tools/go.mod kustomize build "$dir" >"$scratch/manifests.yaml"
done

echo "chart"
hack/compare-charts.sh

echo "alerts"
go run -C hack/tools/rules . "$PWD/config/monitoring/prometheus_rule.yaml" "$PWD/config/monitoring/rules_test.yaml"

echo "dashboard"
go run -C hack/tools/rules . -dashboard "$PWD/config/monitoring/dashboard.json"

echo "go vet" # of what make lint leaves out: generated code, and a module of tools
go vet ./api/...
go vet -C hack/tools/rules ./...

echo "tests of past bugs"
go run ./hack/bugs

echo "table of faults"
go run ./hack/faulttable -totals docs/faults.json -page docs/faults.md -check

echo "errors made of texts"
go run ./hack/errtext

echo "names in comments and pages"
go run ./hack/names

echo "comment lines"
go run ./hack/comments

echo "licence"
go run ./hack/headers

echo "structure"
go run ./hack/structure -check >/dev/null

echo "quoted figures"
go run ./hack/figures

echo "builds that were committed"
go run ./hack/builds

echo "go mod tidy" # but hack/tools/rules: it would ask for the modules of every cloud that Prometheus finds targets in
go mod tidy -diff
go -C test/bench mod tidy -diff
go -C hack/release mod tidy -diff
go -C examples/lock-fences mod tidy -diff

echo "coverage of the core"
wait "$coverage" || { cat "$log" >&2; exit 1; }
cat "$log"
