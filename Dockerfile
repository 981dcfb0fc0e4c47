# SPDX-License-Identifier: Apache-2.0
# The operator (the last stage, the default) and the sample worker (--target worker) as static binaries on an image with nothing
# else. Both images are arguments, so that mirrors, and bases that an organisation asks for, can be used. Dockerfile.prebuilt needs
# no builder image.
ARG BUILDER_IMAGE=golang:1.26
ARG BASE_IMAGE=scratch

# Go compiles for any platform on the builder's own, so nothing is emulated.
FROM --platform=$BUILDPLATFORM ${BUILDER_IMAGE} AS build
WORKDIR /src
# These and BUILDPLATFORM are set by BuildKit, as all current docker builds are.
ARG TARGETOS
ARG TARGETARCH
ARG GOPROXY=https://proxy.golang.org,direct
ENV CGO_ENABLED=0 GOFLAGS=-trimpath GOPROXY=${GOPROXY}
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY internal internal
COPY pkg pkg
COPY examples/worker-go examples/worker-go
ARG VERSION=dev
ARG COMMIT=unknown
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /out/manager/ ./cmd/manager ./cmd/console \
 && GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -ldflags "-s -w" -o /out/worker/ ./examples/worker-go \
 && mkdir -p /out/certs/etc/ssl/certs \
 && if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cp /etc/ssl/certs/ca-certificates.crt /out/certs/etc/ssl/certs/; fi

FROM ${BASE_IMAGE} AS worker
COPY --from=build /out/certs/ /
COPY --from=build /out/worker/ /
USER 65532:65532
ENTRYPOINT ["/worker-go"]

FROM ${BASE_IMAGE} AS manager
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title=syncopate \
      org.opencontainers.image.description="Kubernetes operator for workflow runs on long-lived workers" \
      org.opencontainers.image.source=https://github.com/syncopate-dev/syncopate \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${COMMIT}
COPY --from=build /out/certs/ /
COPY --from=build /out/manager/ /
USER 65532:65532
ENTRYPOINT ["/manager"]
