// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Steps []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// What the hosting runs can be run by anybody, and a workflow changes nothing but its own output.
// mutation: a workflow runs another command, or may write.
func TestWorkflowsCallTheGateAndTheReleaseOnly(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(moduleRoot, ".github", "workflows", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var ran []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions are %v; want to read contents, and no others", file, w.Permissions)
		}
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				if step.Run != "" {
					ran = append(ran, step.Run)
				}
				if step.Uses != "" && !strings.HasPrefix(step.Uses, "actions/") {
					t.Errorf("%s uses %s, of others", file, step.Uses)
				}
			}
		}
	}
	slices.Sort(ran)
	if want := []string{".ci/run", `make release VERSION="$GITHUB_REF_NAME"`}; !slices.Equal(ran, want) {
		t.Errorf("workflows run %q; want %q", ran, want)
	}
}
