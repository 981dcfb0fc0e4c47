#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the operator and the sample worker outside of a container and puts them on BASE_IMAGE. With scratch, the default, this
# needs a daemon and the Go module proxy, but no registry. GOARCH chooses another architecture. Usage:
#   hack/image-prebuilt.sh manager|worker IMAGE
# VERSION and COMMIT are stamped; ONLY_COMPILE=1 leaves out the image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$1 image=$2
version=${VERSION:-dev} commit=${COMMIT:-unknown} base=${BASE_IMAGE:-scratch}

context=bin/image
rm -rf "$context"
mkdir -p "$context"/{manager,worker,certs/etc/ssl/certs}
export CGO_ENABLED=0 GOOS=linux
case $target in
manager) go build -trimpath -ldflags "-s -w -X main.version=$version -X main.commit=$commit" -o "$context/manager/" ./cmd/manager ./cmd/console ;;
worker) go build -trimpath -ldflags '-s -w' -o "$context/worker/worker-go" ./examples/worker-go ;;
*) echo "no such target: $target" >&2 && exit 2 ;;
esac

# The CA certificates that this machine trusts, wherever its distribution keeps them. Without any, servers with public certificates
# cannot be verified; those of --nats-ca and --redis-ca can.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
  if [[ -f $bundle ]]; then
    install -m 0644 "$bundle" "$context/certs/etc/ssl/certs/ca-certificates.crt"
    break
  fi
done

[[ -n ${ONLY_COMPILE:-} ]] && exit 0
docker build -f Dockerfile.prebuilt --target "$target" --build-arg BASE_IMAGE="$base" --build-arg VERSION="$version" \
  --build-arg COMMIT="$commit" -t "$image" "$context"
