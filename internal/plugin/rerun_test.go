// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The operator and the CRDs are of a newer version than the plugin.
//
// mutations: a run that is created from what this version knows, one that is created with all of
// the old spec, and one without the revision that was asked for, make this fail.
func TestRerunKeepsFieldsThatThePluginDoesNotKnow(t *testing.T) {
	ended := &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunFailed, CompletedAt: &metav1.Time{Time: time.Unix(1, 0)}, Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: "before"},
	}
	follower := testRun("team-a", "follower", "u-follower")
	follower.Spec = v1alpha1.WorkflowRunSpec{
		WorkflowRef: &v1alpha1.WorkflowReference{Name: "report", Revision: "named"}, Inputs: &runtime.RawExtension{Raw: []byte(`{"count":12345678901,"none":null}`)},
		IdempotencyKey: "k", Suspend: true, Shutdown: v1alpha1.ShutdownCancel, Priority: 3, StartFrom: &v1alpha1.StartFrom{Run: "older", UID: "u-older"},
	}
	follower.Status = ended
	own := testRun("team-a", "own", "u-own")
	own.Status = ended
	inputs := map[string]any{"count": int64(12345678901), "none": nil}
	barrier := []any{map[string]any{"barrier": "novel"}}
	steps := []any{map[string]any{"name": "fetch", "job": map[string]any{"topic": "t", "novel": true}}}
	for name, c := range map[string]struct {
		line  []string
		novel map[string]any
		want  map[string]any
	}{
		"the same revision": {
			[]string{"follower"},
			map[string]any{"locks": barrier},
			map[string]any{"locks": barrier, "workflowRef": map[string]any{"name": "report", "revision": "before"}, "inputs": inputs, "priority": int64(3)},
		},
		"the current revision": {
			[]string{"follower", "--revision", "current"},
			map[string]any{"workflowRef": map[string]any{"name": "report", "revision": "named", "novel": "x"}},
			map[string]any{"workflowRef": map[string]any{"name": "report", "novel": "x"}, "inputs": inputs, "priority": int64(3)},
		},
		"steps of its own": {
			[]string{"own"}, map[string]any{"steps": steps, "novel": "x"}, map[string]any{"workloadClass": "default", "steps": steps, "novel": "x"},
		},
		"from what failed": {
			[]string{"own", "--from-failed"}, map[string]any{"novel": "x", "steps": steps}, map[string]any{
				"workloadClass": "default", "steps": steps, "novel": "x", "startFrom": map[string]any{"run": "own", "uid": "u-own"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStarter(t, follower, own)
			s.novel = c.novel
			out := s.must(append([]string{"rerun"}, c.line...)...)
			if want := "workflowrun.syncopate.dev/" + c.line[0] + "-new created\n"; out != want || len(s.raw) != 1 {
				t.Fatalf("%q, made %v", out, s.made)
			}
			if diff := cmp.Diff(c.want, s.raw[0]["spec"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.raw[0]["status"] != nil {
				t.Errorf("status %v", s.raw[0]["status"])
			}
		})
	}
}

// mutation: a creation that loses the name or the version of what was created makes this fail.
func TestRerunWaitsForTheRunThatItCreated(t *testing.T) {
	s := newStarter(t, testRun("team-a", "was", "u-was"))
	s.phase = v1alpha1.RunSucceeded
	if out := s.must("rerun", "was", "--wait", "--name", "mine"); !strings.HasPrefix(out, "workflowrun.syncopate.dev/mine created\nrun mine succeeded\n") {
		t.Error(out)
	}
}

// Two reads make one run: the second has what this version does not know.
//
// mutation: a second read that is not of the same run makes this fail.
func TestRerunIsOfTheRunThatWasRead(t *testing.T) {
	gone := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "was")
	s := newStarter(t, testRun("team-a", "was", "u-was"))
	s.down = []error{nil, gone}
	if _, _, err := s.call("rerun", "was"); !errors.Is(err, gone) || len(s.made) > 0 {
		t.Errorf("it is gone: %v, made %d", err, len(s.made))
	}
	s.replaced = "u-other"
	if _, _, err := s.call("rerun", "was"); !apierrors.IsConflict(err) || len(s.made) > 0 {
		t.Errorf("it is another: %v, made %d", err, len(s.made))
	}
}
