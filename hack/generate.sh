#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes all generated files, and copies for the chart, below the given root: "." regenerates in place, verify.sh gives a scratch directory.
set -euo pipefail
root=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p "$root/api/v1alpha1" "$root/config/crd/bases" "$root/docs"
go tool -modfile=hack/tools/go.mod controller-gen crd object paths=./api/... \
  output:crd:dir="$root/config/crd/bases" output:object:dir="$root/api/v1alpha1"
go tool -modfile=hack/tools/go.mod crd-ref-docs --log-level=ERROR --renderer=markdown --source-path=api \
  --config=hack/api-reference.yaml --output-path="$root/docs/api.md"

# The chart has no access to files beside it, so it has copies.
files=$root/charts/syncopate/files
mkdir -p "$files/crds"
rm -f "$files"/crds/*
cp "$root"/config/crd/bases/*.yaml "$files/crds/"
cp config/monitoring/prometheus_rule.yaml config/monitoring/dashboard.json "$files/"
