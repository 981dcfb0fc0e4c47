// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

var (
	created = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	now     = created.Add(10 * time.Minute)
)

func load(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// samplePolicy is the policy of class batch that the project ships, at a generation.
func samplePolicy(t *testing.T, generation int64) v1alpha1.LockPolicy {
	t.Helper()
	var p v1alpha1.LockPolicy
	load(t, "../../../config/samples/lockpolicy-continuity.yaml", &p)
	p.Generation = generation
	return p
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); -update rewrites it:\n%s", name, diff)
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// mutation: any time taken from a clock, a step shown twice or not at all, or a control character
// let through makes this fail.
func TestTreeAndWhyAsPeopleSeeThem(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var run v1alpha1.WorkflowRun
			load(t, path, &run)
			tree := TreeOf(&run, now, kidsOf(&run)...)
			why := Why(&run, []v1alpha1.LockPolicy{samplePolicy(t, 3)}, now, kidsOf(&run)...)
			var out bytes.Buffer
			if err := tree.Text(&out, false); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".tree.txt", out.Bytes())
			out.Reset()
			if err := why.Text(&out, now, false); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".why.txt", out.Bytes())
			golden(t, name+".tree.json", asJSON(t, tree))
			golden(t, name+".why.json", asJSON(t, why))
		})
	}
}

// kidsOf are the child runs that a run's status names, and one of the name and another uid.
func kidsOf(run *v1alpha1.WorkflowRun) []v1alpha1.WorkflowRun {
	var kids []v1alpha1.WorkflowRun
	for _, s := range statusOf(run).Steps {
		if s.ChildRun == nil || s.ChildRun.UID == "" || s.ChildRun.UID == "unread" {
			continue
		}
		kid := v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Progress: "1/3"}}
		kid.Name, kid.UID = s.ChildRun.Name, types.UID(s.ChildRun.UID)
		other := *kid.DeepCopy()
		other.UID, other.Status.Phase = "another", v1alpha1.RunFailed
		kids = append(kids, kid, other)
	}
	return kids
}
