// SPDX-License-Identifier: Apache-2.0

package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// unknown stands for what nobody recorded.
const unknown = "unknown"

// Info describes a binary. No field is empty.
type Info struct {
	Version  string // "v1.2.0", or "dev" where nobody said
	Commit   string // of git, with "-dirty" if the tree had changes; "unknown" where nobody said
	Go       string // "go1.26.8"
	Platform string // "linux/amd64"
}

// Of is the description of this binary. Empty arguments, of a build without stamps, are filled in
// from what Go recorded.
func Of(version, commit string) Info {
	recorded, _ := debug.ReadBuildInfo()
	return of(version, commit, recorded)
}

// of is Of for a record, which may be nil.
func of(version, commit string, recorded *debug.BuildInfo) Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info.Commit == "" {
		info.Commit = revision(recorded)
	}
	if info.Version == "" && recorded != nil && recorded.Main.Version != "(devel)" {
		info.Version = recorded.Main.Version // of go install MODULE@VERSION
	}
	if info.Version == "" {
		info.Version = "dev"
	}
	return info
}

func revision(recorded *debug.BuildInfo) string {
	if recorded == nil {
		return unknown
	}
	hash, dirty := unknown, ""
	for _, s := range recorded.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			hash = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if hash == unknown {
		return unknown
	}
	return hash + dirty
}

// String is one line for people: "v1.2.0 (commit 1a2b3c, go1.26.8, linux/amd64)".
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s)", i.Version, i.Commit, i.Go, i.Platform)
}
