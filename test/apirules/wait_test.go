// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin"
)

// ending is what a plugin writes to. A run that it tells of as created ends at once,
// and is deleted.
type ending struct {
	bytes.Buffer
	t    *testing.T
	name string
}

func (e *ending) Write(text []byte) (int, error) {
	if strings.Contains(string(text), e.name+" created") {
		run := &unstructured.Unstructured{}
		run.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRun"))
		key := client.ObjectKey{Namespace: "default", Name: e.name}
		if err := server.client.Get(e.t.Context(), key, run); err != nil {
			e.t.Error(err)
		}
		ended := "status: {phase: Succeeded, completedAt: 2026-11-20T10:00:00Z, outputs: {a: 1}}"
		if err := patchStatus(e.t, run, ended); err != nil {
			e.t.Error(err)
		}
		if err := server.client.Delete(e.t.Context(), run); err != nil {
			e.t.Error(err)
		}
	}
	return e.Buffer.Write(text)
}

// A run with ttlSecondsAfterFinished 0 is deleted before the plugin asks for the first time.
//
// mutation: a plugin whose client cannot watch, or one that watches from now on, makes this fail.
func TestAWaitTellsTheEndOfARunThatIsDeletedAtOnce(t *testing.T) {
	was := mustCreate(t, aRun("  ttlSecondsAfterFinished: 0"))
	out := &ending{t: t, name: was.GetName() + "-again"}
	cmd := plugin.NewCommand(plugin.Env{
		Out: out, Err: os.Stderr, Clock: clock.RealClock{}, Getenv: func(string) string { return "" },
		Config: func() (*rest.Config, string, error) { return rest.CopyConfig(server.env.Config), "default", nil },
	})
	cmd.SetArgs([]string{"rerun", was.GetName(), "--name", out.name, "--wait"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasSuffix(out.String(), "succeeded\n{\"a\":1}\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
