#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets kube-apiserver, etcd and kubectl of the versions pinned in hack/controlplane/go.mod into bin/k8s, once.
# ENVTEST_DOWNLOAD=0 skips the download and builds from source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version() { awk -v module="$1" '$1 == module && $2 ~ /^v/ {print $2; exit}' hack/controlplane/go.mod; }
kubernetes=$(version k8s.io/kubernetes)
etcd=$(version go.etcd.io/etcd/server/v3)
out=bin/k8s
stamp="kubernetes $kubernetes, etcd $etcd, $(go env GOOS)/$(go env GOARCH)"
if [[ -x $out/kube-apiserver && -x $out/etcd && -x $out/kubectl && $(cat "$out/.stamp" 2>/dev/null) == "$stamp" ]]; then
  exit 0
fi
mkdir -p "$out"
rm -f "$out/.stamp"

download() {
  local dir
  dir=$(timeout "${ENVTEST_DOWNLOAD_SECONDS:-90}" go tool -modfile=hack/tools/go.mod setup-envtest use "${kubernetes#v}" --bin-dir "$PWD/bin/envtest" -p path 2>/dev/null) || return 1
  for binary in kube-apiserver etcd kubectl; do
    install -m 0755 "$dir/$binary" "$out/$binary" || return 1
  done
}

build() {
  IFS=. read -r major minor _ <<<"${kubernetes#v}"
  local package=k8s.io/component-base/version
  local flags="-s -w -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  for target in etcd=go.etcd.io/etcd/server/v3 kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver kubectl=k8s.io/kubernetes/cmd/kubectl; do
    echo "building ${target%%=*}" >&2
    (cd hack/controlplane && CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "../../$out/${target%%=*}" "${target#*=}")
  done
}

if [[ ${ENVTEST_DOWNLOAD:-1} != 0 ]] && download; then
  echo "downloaded $stamp" >&2
else
  echo "no download of $stamp; building from source, some minutes" >&2
  build
fi
echo "$stamp" >"$out/.stamp"
