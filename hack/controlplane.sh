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

# progress counts the packages that go build -v names, of so many, and prints each twentieth part; what else it says is printed as it is.
progress() {
  awk -v total="$1" -v begin="$(date +%s)" '
    /^[A-Za-z0-9][A-Za-z0-9._~\/-]*$/ {
      if (int(++built * 20 / total) > shown) {
        shown = int(built * 20 / total)
        "date +%s" | getline now; close("date +%s")
        printf "built %d of at most %d packages after %d s\n", built, total, now - begin
        fflush()
      }
      next
    }
    { print; fflush() }'
}

build() {
  IFS=. read -r major minor _ <<<"${kubernetes#v}"
  local package=k8s.io/component-base/version
  local flags="-s -w -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  local -a targets=(go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl)
  (
    cd hack/controlplane
    total=$(go list -deps "${targets[@]}" | wc -l)
    CGO_ENABLED=0 go build -v -trimpath -ldflags "$flags" -o "../../$out/" "${targets[@]}" 2>&1 | progress "$total" >&2
  )
  mv "$out/v3" "$out/etcd" 2>/dev/null || mv "$out/server" "$out/etcd"
}

if [[ ${ENVTEST_DOWNLOAD:-1} != 0 ]] && download; then
  echo "downloaded $stamp" >&2
else
  # Measured: 8.4 minutes of CPU with an empty build cache, 8 seconds with a full one.
  cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
  echo "no download of $stamp; building from source, once: about $(((9 + cores - 1) / cores)) minutes on $cores cores" >&2
  build
fi
echo "$stamp" >"$out/.stamp"
