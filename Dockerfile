# The operator, as a static binary on an image with nothing else. Both images are build arguments, so that a mirror can be used.
ARG BUILDER_IMAGE=golang:1.26
ARG BASE_IMAGE=scratch

FROM ${BUILDER_IMAGE} AS build
WORKDIR /src
ARG VERSION=dev
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY internal internal
COPY pkg pkg
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/manager ./cmd/manager

FROM ${BASE_IMAGE}
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
