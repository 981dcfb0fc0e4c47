// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	mostUnpacked = 1 << 30 // bytes of an image, and of an archive of them
	startTime    = time.Minute
)

// startImage starts the operator as a container runtime would: from the archive that was written,
// with the layers unpacked and what the image's configuration says. Only the image of this
// machine's kind can be started.
func (r *release) startImage(ctx context.Context) error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	archive := filepath.Join(r.dist, r.imageFile())
	dir := filepath.Join(r.scratch, "started")
	if err := unpackFile(archive, filepath.Join(dir, "layout")); err != nil {
		return err
	}
	image, err := imageOf(filepath.Join(dir, "layout"), here)
	if err != nil {
		return err
	}
	if image == nil {
		fmt.Printf("  not started: there is no image of %s\n", here)
		return nil
	}
	root := filepath.Join(dir, "root")
	files := mutate.Extract(image)
	if err := errors.Join(unpack(files, root), files.Close()); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	return r.startIn(ctx, root, config.Config)
}

// imageOf is the image of a platform in a layout, nil if there is none.
func imageOf(dir string, p platform) (v1.Image, error) {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	names, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(names.Manifests) != 1 {
		return nil, fmt.Errorf("the layout has %d indexes, not one", len(names.Manifests))
	}
	index, err := outer.ImageIndex(names.Manifests[0].Digest)
	if err != nil {
		return nil, err
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS == p.os && d.Platform.Architecture == p.arch {
			return index.Image(d.Digest)
		}
	}
	return nil, nil
}

// startIn asks the entrypoint for its version, then has it run until it says that it lives. There
// is no API server, which it must bear.
func (r *release) startIn(ctx context.Context, root string, config v1.Config) error {
	if len(config.Entrypoint) == 0 {
		return errors.New("the image has no entrypoint")
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	out, err := entrypoint(ctx, root, config, "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v -version: %w\n%s", config.Entrypoint, err, out)
	}
	if !bytes.Contains(out, []byte(r.version)) || !bytes.Contains(out, []byte(r.commit)) {
		return fmt.Errorf("%v -version prints %q, not version %s and commit %s", config.Entrypoint, out, r.version, r.commit)
	}
	const kubeconfig = "/kubeconfig"
	if err := os.WriteFile(filepath.Join(root, kubeconfig), []byte(noCluster), 0o644); err != nil { //nolint:gosec // the image's user reads it
		return err
	}
	return lives(ctx, root, config, kubeconfig)
}

// noCluster names an API server that is not there.
const noCluster = `{apiVersion: v1, kind: Config, current-context: none,
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}],
contexts: [{name: none, context: {cluster: none, user: none}}], users: [{name: none}]}
`

func lives(ctx context.Context, root string, config v1.Config, kubeconfig string) error {
	probes, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	cmd := entrypoint(ctx, root, config, "-kubeconfig", kubeconfig, "-health-probe-bind-address", probes,
		"-metrics-bind-address", "0", "-nats-url", "nats://127.0.0.1:1", "-redis-addrs", "127.0.0.1:1")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = answers(ctx, "http://"+probes+"/livez", ended)
	_, _ = cmd.Process.Kill(), <-ended // it may have ended, and ends as it was asked to
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", config.Entrypoint, err, log.Bytes())
	}
	return nil
}

// answers waits until a page is there. Each end of the program goes back to ended for its owner.
func answers(ctx context.Context, url string, ended chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if there(ctx, url) {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("ended before %s answered: %w", url, err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-tick.C:
		}
	}
}

func there(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

func freeAddress(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// entrypoint is the image's command with these arguments, with nothing of this machine's
// environment, in root as far as this user may do that.
func entrypoint(ctx context.Context, root string, config v1.Config, args ...string) *exec.Cmd {
	all := append(append([]string{}, config.Entrypoint[1:]...), args...)
	cmd := exec.CommandContext(ctx, config.Entrypoint[0], all...) //nolint:gosec // the image was made a moment ago
	cmd.Env = config.Env
	if confine(cmd, root, config.User) {
		return cmd
	}
	cmd.Path, cmd.Err = filepath.Join(root, config.Entrypoint[0]), nil
	for i, a := range cmd.Args {
		if strings.HasPrefix(a, "/") {
			cmd.Args[i] = filepath.Join(root, a)
		}
	}
	return cmd
}

func unpackFile(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	return errors.Join(unpack(f, dir), f.Close())
}

// unpack writes the files of an archive below dir, and nothing outside of it.
func unpack(from io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the image's user enters it
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	r := tar.NewReader(io.LimitReader(from, mostUnpacked))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root.Close()
		}
		if err == nil {
			err = unpackOne(root, h, r)
		}
		if err != nil {
			return errors.Join(err, root.Close())
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) error {
	name := strings.TrimPrefix(filepath.Clean(h.Name), "/")
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is neither a file nor a directory", h.Name)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
