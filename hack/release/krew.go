// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	krewVersion = "krew.googlecontainertools.github.com/v1alpha2"
	krewName    = "syncopate"
	sourceURL   = "https://github.com/syncopate-dev/syncopate"
)

// krewManifest is a plugin as krew's index has it.
type krewManifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   krewMeta `json:"metadata"`
	Spec       krewSpec `json:"spec"`
}

type krewMeta struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage,omitempty"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description,omitempty"`
	Caveats          string         `json:"caveats,omitempty"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector *krewSelector `json:"selector,omitempty"`
	URI      string        `json:"uri"`
	SHA256   string        `json:"sha256"`
	Files    []krewFile    `json:"files,omitempty"`
	Bin      string        `json:"bin"`
}

type krewSelector struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []krewExpression  `json:"matchExpressions,omitempty"`
}

type krewExpression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// writePlugin makes an archive for each platform, and the manifest that has their checksums.
func (r *release) writePlugin() error {
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	m := newKrewManifest(r.version)
	for _, p := range pluginPlatforms {
		data, err := r.binary(p, plugin)
		if err != nil {
			return err
		}
		files := []entry{{path: "LICENSE", mode: 0o644, data: licence}, {path: plugin + exe(p), mode: 0o755, data: data}}
		file, packed, err := r.pack(p, files)
		if err != nil {
			return err
		}
		if err := r.write(file, packed); err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, newKrewPlatform(p, r.version, file, packed))
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	if err := errors.Join(validateKrew(krewName+".yaml", text)...); err != nil {
		return fmt.Errorf("krew would refuse the manifest: %w", err)
	}
	return r.write(krewName+".yaml", text)
}

// pack is an archive of the kind that the platform's users can open without a further program.
func (r *release) pack(p platform, files []entry) (name string, data []byte, err error) {
	name = plugin + "-" + r.version + "-" + p.String()
	if p.os == "windows" {
		data, err = zipball(r.time, files)
		return name + ".zip", data, err
	}
	data, err = tarball(r.time, files)
	return name + ".tar.gz", data, err
}

func newKrewManifest(version string) krewManifest {
	return krewManifest{
		APIVersion: krewVersion, Kind: "Plugin", Metadata: krewMeta{Name: krewName},
		Spec: krewSpec{
			Version: version, Homepage: sourceURL,
			ShortDescription: "See and steer Syncopate workflow runs",
			Description: "Shows runs as trees, says why one waits, and lists locks, tenants,\n" +
				"partitions and dead letters. Checks an installation, and serves a console\nin the browser with your own rights.\n",
		},
	}
}

func newKrewPlatform(p platform, version, file string, data []byte) krewPlatform {
	sum := sha256.Sum256(data)
	return krewPlatform{
		Selector: &krewSelector{MatchLabels: map[string]string{"os": p.os, "arch": p.arch}},
		URI:      sourceURL + "/releases/download/" + version + "/" + file,
		SHA256:   hex.EncodeToString(sum[:]),
		Bin:      plugin + exe(p),
	}
}
