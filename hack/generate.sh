#!/usr/bin/env bash
# Writes all generated files below the given root: "." regenerates in place, verify.sh gives a scratch directory.
set -euo pipefail
root=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "$root/api/v1alpha1" "$root/config/crd/bases" "$root/docs"
go tool -modfile=hack/tools/go.mod controller-gen crd object paths=./api/... \
  output:crd:dir="$root/config/crd/bases" output:object:dir="$root/api/v1alpha1"
go tool -modfile=hack/tools/go.mod crd-ref-docs --log-level=ERROR --renderer=markdown --source-path=api \
  --config=hack/api-reference.yaml --output-path="$root/docs/api.md"
