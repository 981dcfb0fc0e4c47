#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs test/e2e/cluster on a kind cluster that it makes, or on any cluster that there is.
#
#   E2E_KUBECONFIG  use this cluster: none is made, no image is built or loaded
#   KIND_IMAGE      image of the node; default: what kind itself takes
#   KIND_CLUSTER    name of the cluster, default syncopate-e2e; one that exists is used, and kept
#   PRODUCTION=1    examples/production on three nodes, one drained, one stopped, in place of the other specs
#   KEEP=1          keep the cluster, and what is installed in it
#   IMAGE, NEXT_IMAGE, WORKER_IMAGE, TALLY_IMAGE   the operator, the one to upgrade to, the sample worker, the suite's own worker
#   REDIS_IMAGE, NATS_IMAGE                        default redis:8 and nats:2.12
#   BASE_IMAGE      what the built images stand on, default scratch
#   ARTIFACTS       directory of logs, objects and junit.xml; default bin/e2e
#   TEST_ARGS       for go test, as -ginkgo.focus=...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

artifacts=$(realpath -m "${ARTIFACTS:-bin/e2e}")
cluster=${KIND_CLUSTER:-syncopate-e2e}
export E2E_IMAGE=${IMAGE:-syncopate:e2e} E2E_NEXT_IMAGE=${NEXT_IMAGE:-syncopate:e2e-next}
export E2E_WORKER_IMAGE=${WORKER_IMAGE:-syncopate-worker:e2e} E2E_TALLY_IMAGE=${TALLY_IMAGE:-syncopate-e2e-tally:e2e}
export E2E_REDIS_IMAGE=${REDIS_IMAGE:-redis:8} E2E_NATS_IMAGE=${NATS_IMAGE:-nats:2.12}
keep=${KEEP:-}
[[ $keep != 0 ]] || keep=
export E2E_PRODUCTION=${PRODUCTION:-} E2E_ARTIFACTS=$artifacts E2E_KEEP=$keep E2E_KUBECONFIG=${E2E_KUBECONFIG:+$(realpath "$E2E_KUBECONFIG")}
base=${BASE_IMAGE:-scratch}

mkdir -p "$artifacts"
rm -rf "$artifacts"/{logs,failed,overlays,junit.xml,images.txt,rbac.txt} # of the run before
if ! command -v kubectl >/dev/null; then
  hack/controlplane.sh
  export PATH="$PWD/bin/k8s:$PATH"
fi

kind() {
  if command -v kind >/dev/null; then command kind "$@"; else go tool -modfile=hack/tools/kind/go.mod kind "$@"; fi
}

build() {
  BASE_IMAGE=$base VERSION=e2e hack/image-prebuilt.sh manager "$E2E_IMAGE"
  BASE_IMAGE=$base VERSION=e2e-next hack/image-prebuilt.sh manager "$E2E_NEXT_IMAGE"
  BASE_IMAGE=$base hack/image-prebuilt.sh worker "$E2E_WORKER_IMAGE"
  local context=bin/image/tally
  mkdir -p "$context"
  CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags '-s -w' -o "$context/tally" ./test/e2e/cluster/tally
  docker build --build-arg BASE_IMAGE="$base" -t "$E2E_TALLY_IMAGE" -f test/e2e/cluster/tally/Dockerfile "$context"
}

# load brings the images of this machine to the nodes. What is not here the nodes pull.
load() {
  local image here=()
  for image in "$E2E_IMAGE" "$E2E_NEXT_IMAGE" "$E2E_WORKER_IMAGE" "$E2E_TALLY_IMAGE" "$E2E_REDIS_IMAGE" "$E2E_NATS_IMAGE"; do
    if docker image inspect "$image" >/dev/null 2>&1; then here+=("$image"); fi
  done
  kind load docker-image --name "$cluster" "${here[@]}"
  docker image inspect -f '{{index .RepoTags 0}} {{.Size}}' "${here[@]}" >"$artifacts/images.txt"
}

# nodes is the configuration of a cluster: one node, or three on which all may run.
nodes() {
  printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: control-plane\n'
  if [[ -n $E2E_PRODUCTION ]]; then printf -- '- role: worker\n- role: worker\n'; fi
}

made= # by this script, so it is deleted by it
finish() {
  status=$?
  if [[ -n $made && -z $keep ]]; then
    kind delete cluster --name "$cluster"
  elif [[ -n $keep ]]; then
    echo "kept: export KUBECONFIG=$E2E_KUBECONFIG"
  fi
  echo "make test-e2e $([[ $status == 0 ]] && echo passed || echo failed) after $((SECONDS / 60)) min $((SECONDS % 60)) s; logs and junit.xml are in $artifacts"
}
trap finish EXIT

if [[ -z $E2E_KUBECONFIG ]]; then
  build
  export E2E_KUBECONFIG=$artifacts/kubeconfig
  if kind get clusters 2>/dev/null | grep -qx "$cluster"; then
    kind export kubeconfig --name "$cluster" --kubeconfig "$E2E_KUBECONFIG"
  else
    made=1
    export E2E_KEEP=1 # what is in it goes with it
    nodes | kind create cluster --name "$cluster" --kubeconfig "$E2E_KUBECONFIG" --wait 5m --config - ${KIND_IMAGE:+--image "$KIND_IMAGE"}
    kubectl --kubeconfig "$E2E_KUBECONFIG" taint nodes --all node-role.kubernetes.io/control-plane- >/dev/null 2>&1 || true # kind itself does on one node
  fi
  load
fi

# shellcheck disable=SC2086 # several arguments
go test -count=1 -timeout 90m -v ./test/e2e/cluster -ginkgo.timeout 85m -ginkgo.junit-report "$artifacts/junit.xml" ${TEST_ARGS:-}
