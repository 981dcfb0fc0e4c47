// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// writeChart packs the chart with the version's image as its default. The repository has neither,
// since what is between releases has no image.
func (r *release) writeChart(ctx context.Context) error {
	entries, err := tree(filepath.Join(r.root, "charts", "syncopate"), "syncopate/")
	if err != nil {
		return err
	}
	if err := stampChart(entries, r.version, r.repository); err != nil {
		return err
	}
	packed, err := tarball(r.time, entries)
	if err != nil {
		return err
	}
	file := "syncopate-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	if err := r.write(file, packed); err != nil {
		return err
	}
	return r.checkChart(ctx, filepath.Join(r.dist, file))
}

func stampChart(entries []entry, version, repository string) error {
	prerelease := strconv.FormatBool(semver.Prerelease(version) != "")
	stamps := map[string][][2]string{
		"syncopate/Chart.yaml": {
			{"\nversion: 0.1.0\n", "\nversion: " + strings.TrimPrefix(version, "v") + "\n"},
			{"\nappVersion: dev\n", "\nappVersion: " + version + "\n"},
			{" artifacthub.io/prerelease: \"false\"\n", " artifacthub.io/prerelease: \"" + prerelease + "\"\n"},
		},
		"syncopate/values.yaml": {{"\n  repository: syncopate\n", "\n  repository: " + repository + "\n"}},
	}
	for i, e := range entries {
		for _, s := range stamps[e.path] {
			data, err := replaceOnce(e.path, entries[i].data, s[0], s[1])
			if err != nil {
				return err
			}
			entries[i].data = data
		}
		delete(stamps, e.path)
	}
	if len(stamps) > 0 {
		return fmt.Errorf("the chart lacks files that say its version: %v", stamps)
	}
	return nil
}

// replaceOnce fails where a text is not there exactly once: else a release would go out with the
// image of a build between releases, and say nothing.
func replaceOnce(file string, data []byte, from, to string) ([]byte, error) {
	if n := bytes.Count(data, []byte(from)); n != 1 {
		return nil, fmt.Errorf("%s has the text %q %d times, not once", file, strings.TrimSpace(from), n)
	}
	return bytes.Replace(data, []byte(from), []byte(to), 1), nil
}

// checkChart has Helm read the archive, and render it without any value.
func (r *release) checkChart(ctx context.Context, file string) error {
	home := filepath.Join(r.scratch, "helm")
	env := []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home}
	helm := []string{"tool", "-modfile=hack/tools/helm/go.mod", "helm"}
	if _, err := command(ctx, r.root, env, "go", append(helm, "lint", "--strict", "--quiet", file)...); err != nil {
		return err
	}
	out, err := command(ctx, r.root, env, "go", append(helm, "template", "syncopate", file)...)
	if err != nil {
		return err
	}
	if image := r.repository + ":" + r.version; !bytes.Contains(out, []byte(image)) {
		return fmt.Errorf("the chart without values does not use the image %s", image)
	}
	return nil
}

// writeInstall is config/default with the version's image, for kubectl apply.
func (r *release) writeInstall(ctx context.Context) error {
	out, err := command(ctx, r.root, nil, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", "config/default")
	if err != nil {
		return err
	}
	out, err = replaceOnce("config/default", out, " image: syncopate:dev\n", " image: "+r.repository+":"+r.version+"\n")
	if err != nil {
		return err
	}
	return r.write("install.yaml", out)
}
