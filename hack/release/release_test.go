// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var moment = time.Unix(1_700_000_000, 0).UTC()

func TestVersions(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v0.1.0-rc.1", "v10.20.30-alpha"} {
		if err := checkVersion(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "0.1.0", "v0.1", "v1", "v01.0.0", "v0.1.0+build", "v0.1.0-", "v0.1.0 ", "latest", "v0.1.0-rc_1"} {
		if checkVersion(bad) == nil {
			t.Errorf("%q passes for a version", bad)
		}
	}
}

// mutation: section takes a heading that only begins with the version, or an empty section.
func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	const log = "# Changes\n\n## Unreleased\n- later\n\n## v0.2.0 - 2026-01-02\n\n### Added\n- two\n\n## v0.2.0-rc.1\n- candidate\n## v0.1.0\n\n"
	got, err := section(log, "v0.2.0")
	if want := "### Added\n- two\n"; err != nil || got != want {
		t.Errorf("notes are %q, %v; want %q", got, err, want)
	}
	for version, complaint := range map[string]string{"v0.3.0": "no section", "v0.2": "no section", "v0.1.0": "is empty"} {
		if _, err := section(log, version); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: error is %v; want %q", version, err, complaint)
		}
	}
}

// A repository of its own: what is refused must not depend on the state of this one.
// mutation: readCommit takes a tree with changes.
func TestATreeWithChangesIsRefused(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0100")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("## v1.0.0\n- all\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "one")
	o := options{version: "v1.0.0", root: root, repository: "example.com/syncopate"}
	r, err := prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.time.Equal(moment) || len(r.commit) != 40 {
		t.Errorf("commit is %q at %v; want 40 digits at %v", r.commit, r.time, moment)
	}
	if err := os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(t.Context(), o); err == nil || !strings.Contains(err.Error(), "new.txt") {
		t.Errorf("error is %v; want one that names new.txt", err)
	}
	o.repository = "Not A Repository"
	if _, err := prepare(t.Context(), o); err == nil || !strings.Contains(err.Error(), "repository") {
		t.Errorf("error is %v; want one about the repository", err)
	}
}

// mutation: writeTar takes the files in the order of its caller.
func TestArchivesDependOnTheirFilesOnly(t *testing.T) {
	a := []entry{{"b/c/x", 0o755, []byte("x")}, {"a", 0o644, []byte("a")}, {"b/y", 0o644, nil}}
	b := []entry{a[2], a[0], a[1]}
	for name, pack := range map[string]func(time.Time, []entry) ([]byte, error){"tar": tarball, "zip": zipball} {
		first, err := pack(moment, a)
		second, err2 := pack(moment, b)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: the order of the files changes the archive", name)
		}
	}
}

// fake is a release whose binaries are a few bytes.
func fake(t *testing.T) *release {
	t.Helper()
	r := &release{version: "v1.0.0", commit: strings.Repeat("a", 40), time: moment, scratch: t.TempDir(), dist: t.TempDir(), root: t.TempDir(), repository: "example.com/s"}
	if err := os.WriteFile(filepath.Join(r.root, "LICENSE"), []byte("licence"), 0o644); err != nil {
		t.Fatal(err)
	}
	put := func(p platform, c string) {
		path := r.binaryPath(p, c)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(p.String()+c), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range imagePlatforms {
		for _, c := range imageCommands {
			put(p, c)
		}
	}
	for _, p := range pluginPlatforms {
		put(p, plugin)
	}
	return r
}

// mutation: image leaves out the time of the commit.
func TestImageIsALayoutOfBothPlatforms(t *testing.T) {
	r, again := fake(t), fake(t)
	for _, x := range []*release{r, again} {
		if err := errors.Join(x.writeImage(), x.writePlugin()); err != nil {
			t.Fatal(err)
		}
	}
	one, err := r.sums()
	two, err2 := again.sums()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if len(one) != 8 { // six archives, a manifest, an image
		t.Errorf("artifacts are %v", one)
	}
	for i := range one {
		if one[i] != two[i] {
			t.Errorf("two calls differ: %v, %v", one[i], two[i])
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(r.scratch, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	checkImages(t, inner(t, index))
}

func inner(t *testing.T, outer v1.ImageIndex) v1.ImageIndex {
	t.Helper()
	m, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].Annotations[refAnnotation] != "v1.0.0" {
		t.Fatalf("the layout holds %+v; want one index named v1.0.0", m.Manifests)
	}
	index, err := outer.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func checkImages(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != len(imagePlatforms) {
		t.Fatalf("the index has %d images", len(m.Manifests))
	}
	for i, d := range m.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		want := imagePlatforms[i]
		if c.OS != want.os || c.Architecture != want.arch || d.Platform.Architecture != want.arch {
			t.Errorf("image %d is of %s/%s, %v; want %s", i, c.OS, c.Architecture, d.Platform, want)
		}
		if c.Config.User != "65532:65532" || !c.Created.Equal(moment) {
			t.Errorf("image %d: user %q, created %v", i, c.Config.User, c.Created)
		}
	}
}

func TestCertificatesAreThere(t *testing.T) {
	if n := bytes.Count(certificates(), []byte("BEGIN CERTIFICATE")); n < 50 {
		t.Errorf("only %d roots", n)
	}
}

// mutation: replaceOnce takes a text that is there twice.
func TestChartIsStampedOrRefused(t *testing.T) {
	chart := func() []entry {
		return []entry{
			{"syncopate/Chart.yaml", 0o644, []byte("a: b\nversion: 0.1.0\nappVersion: dev\n artifacthub.io/prerelease: \"false\"\n")},
			{"syncopate/values.yaml", 0o644, []byte("image:\n  repository: syncopate\n")},
		}
	}
	good := chart()
	if err := stampChart(good, "v1.2.3-rc.1", "example.com/s"); err != nil {
		t.Fatal(err)
	}
	if got := string(good[0].data) + string(good[1].data); got != "a: b\nversion: 1.2.3-rc.1\nappVersion: v1.2.3-rc.1\n artifacthub.io/prerelease: \"true\"\nimage:\n  repository: example.com/s\n" {
		t.Errorf("stamped: %s", got)
	}
	twice := chart()
	twice[1].data = append(twice[1].data, "other:\n  repository: syncopate\n"...)
	for name, bad := range map[string][]entry{"missing": chart()[:1], "twice": twice} {
		if stampChart(bad, "v1.2.3", "example.com/s") == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBillHasEachModuleOnce(t *testing.T) {
	record := &debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{
		{Path: "example.com/b", Version: "v1.0.0", Sum: "h1:x"},
		{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/a", Version: "v2.0.0"}},
	}}
	bom := bill("syncopate", "v1.0.0", moment, []*debug.BuildInfo{record, record})
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL)
	}
	want := "pkg:golang/example.com/a@v2.0.0 pkg:golang/example.com/b@v1.0.0 pkg:golang/std@1.26.0"
	if strings.Join(got, " ") != want {
		t.Errorf("components are %v; want %s", got, want)
	}
	if bom.SerialNumber != "" || bom.SpecVersion != cdx.SpecVersion1_6 && bom.SpecVersion != cdx.SpecVersion1_7 {
		t.Errorf("serial number %q, version %v", bom.SerialNumber, bom.SpecVersion)
	}
}

func TestProvenanceNamesWhatAndWhereFrom(t *testing.T) {
	r := fake(t)
	s, err := r.statement([]sum{{"a", strings.Repeat("0", 64)}}, "go1.26.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if text := s.String(); !strings.Contains(text, r.commit) || s.Subject[0].Name != "a" {
		t.Errorf("statement lacks the commit or the artifact: %s", text)
	}
}
