#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lints the chart, and fails unless it renders the objects of kustomize: one line below for each pair that is to be the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
kustomize() { go tool -modfile=hack/tools/go.mod kustomize "$@"; }
helm() { go tool -modfile=hack/tools/helm/go.mod helm "$@"; }
# Helm looks for plugins and repositories where its user has them; there are none here, and none are wanted.
export HELM_CONFIG_HOME="$scratch/config" HELM_CACHE_HOME="$scratch/cache" HELM_DATA_HOME="$scratch/data"
go build -o "$scratch/compare" ./hack/compare-manifests

same() { # DIRECTORY ARGUMENTS-OF-HELM...
  kustomize build "$1" >"$scratch/kustomize.yaml"
  # CRDs of others, as cert-manager's, need not be known here. The namespace is made by helm install --create-namespace. What is for
  # helm test only, kustomize has no use for.
  helm template syncopate charts/syncopate --skip-tests --set image.tag=dev --namespace syncopate-system "${@:2}" >"$scratch/helm.yaml"
  "$scratch/compare" -only-first Namespace/syncopate-system "$scratch/kustomize.yaml" "$scratch/helm.yaml" ||
    { echo "the chart ($*) does not render what kustomize build $1 does" >&2; exit 1; }
}

helm lint --strict --quiet charts/syncopate --set image.tag=dev
helm lint --strict --quiet charts/syncopate --set image.tag=dev --values hack/compare-manifests/testdata/everything/values.yaml
same config/default
same config/default-webhook --set webhook.enabled=true
same hack/compare-manifests/testdata/everything --values hack/compare-manifests/testdata/everything/values.yaml
