// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	layers "github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const refAnnotation = "org.opencontainers.image.ref.name"

// writeImage makes one archive of an OCI layout with one index, which has an image for each
// platform: what skopeo, crane and containerd take as it is.
func (r *release) writeImage() error {
	index, err := r.imageIndex()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.scratch, "oci")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := p.AppendIndex(index, layout.WithAnnotations(map[string]string{refAnnotation: r.version})); err != nil {
		return err
	}
	entries, err := tree(dir, "")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeTar(&b, r.time, entries); err != nil {
		return err
	}
	return r.write(r.imageFile(), b.Bytes())
}

func (r *release) imageFile() string { return "syncopate-" + r.version + ".oci.tar" }

func (r *release) imageIndex() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range imagePlatforms {
		files, err := r.imageFiles(p)
		if err != nil {
			return nil, err
		}
		image, err := r.image(p, files)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	return index, nil
}

// image is what Dockerfile makes on scratch: binaries and certificates, one layer of each.
func (r *release) image(p platform, parts [][]entry) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, entries := range parts {
		var b bytes.Buffer
		if err := writeTar(&b, r.time, entries); err != nil {
			return nil, err
		}
		data := b.Bytes()
		layer, err := layers.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
			layers.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}}})
		if err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = p.os, p.arch, v1.Time{Time: r.time}
	file.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/manager"}, Labels: r.labels(),
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	return mutate.ConfigFile(image, file)
}

// labels are those of Dockerfile.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "syncopate",
		"org.opencontainers.image.description": "Kubernetes operator for workflow runs on long-lived workers",
		"org.opencontainers.image.source":      sourceURL,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// imageFiles are the layers of an image. The one that changes less comes first.
func (r *release) imageFiles(p platform) ([][]entry, error) {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	base := []entry{
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		{path: "LICENSE", mode: 0o644, data: licence},
	}
	var binaries []entry
	for _, c := range imageCommands {
		data, err := r.binary(p, c)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, entry{path: c, mode: 0o755, data: data})
	}
	return [][]entry{base, binaries}, nil
}

// certificates are the roots of a pinned module, not those of the machine, which other machines
// do not have. Roots that are trusted under a condition only are left out: a file cannot say it.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
	}
	return b.Bytes()
}
