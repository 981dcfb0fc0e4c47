// SPDX-License-Identifier: Apache-2.0

package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mutation: stamps that do not win over the record, or a record that is not read, make
// their rows fail.
func TestWhatABinaryWasBuiltFrom(t *testing.T) {
	settings := func(kv ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{}
		for i := 0; i < len(kv); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return b
	}
	installed := settings("vcs.revision", "abc")
	installed.Main.Version = "v1.2.0"
	local := settings()
	local.Main.Version = "(devel)"
	for name, c := range map[string]struct {
		version, commit string
		recorded        *debug.BuildInfo
		want            [2]string // version, commit
	}{
		"the build's stamps win":                 {"v2.0.0", "def", installed, [2]string{"v2.0.0", "def"}},
		"go install records version and commit":  {"", "", installed, [2]string{"v1.2.0", "abc"}},
		"a build of a local tree has no version": {"", "", local, [2]string{"dev", "unknown"}},
		"a tree with changes says so":            {"", "", settings("vcs.modified", "true", "vcs.revision", "abc"), [2]string{"dev", "abc-dirty"}},
		"changes to nobody knows what":           {"", "", settings("vcs.modified", "true"), [2]string{"dev", "unknown"}},
		"no record at all":                       {"", "", nil, [2]string{"dev", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := of(c.version, c.commit, c.recorded)
			want := Info{Version: c.want[0], Commit: c.want[1], Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLineForPeople(t *testing.T) {
	got := Info{Version: "v1.2.0", Commit: "1a2b3c", Go: "go1.26.8", Platform: "linux/amd64"}.String()
	if want := "v1.2.0 (commit 1a2b3c, go1.26.8, linux/amd64)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
