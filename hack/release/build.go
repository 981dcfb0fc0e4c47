// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

var (
	imagePlatforms  = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	pluginPlatforms = []platform{
		{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
	}
	imageCommands = []string{"console", "manager"}
)

const plugin = "kubectl-syncopate"

func (r *release) buildBinaries(ctx context.Context) error {
	for _, p := range imagePlatforms {
		for _, c := range imageCommands {
			if err := r.build(ctx, p, c); err != nil {
				return err
			}
		}
	}
	for _, p := range pluginPlatforms {
		if err := r.build(ctx, p, plugin); err != nil {
			return err
		}
	}
	return nil
}

// build compiles with the flags of `make build`. Whatever of the environment would change the
// bytes is said here.
func (r *release) build(ctx context.Context, p platform, cmd string) error {
	env := []string{
		"GOOS=" + p.os, "GOARCH=" + p.arch, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GODEBUG=", "GOFIPS140=off", "GOWORK=off",
	}
	fmt.Printf("  %s %s\n", cmd, p)
	_, err := command(ctx, r.root, env, "go", "build", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -X main.version="+r.version+" -X main.commit="+r.commit,
		"-o", r.binaryPath(p, cmd), "./cmd/"+cmd)
	return err
}

func (r *release) binaryPath(p platform, cmd string) string {
	return filepath.Join(r.scratch, "build", p.String(), cmd+exe(p))
}

func (r *release) binary(p platform, cmd string) ([]byte, error) {
	return os.ReadFile(r.binaryPath(p, cmd))
}

func exe(p platform) string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}
