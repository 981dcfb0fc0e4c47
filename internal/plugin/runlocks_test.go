// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// The locks of a real operator's lock manager, on a real Redis.
//
// mutation: runLocks that leaves out a run that is named, or seeLock that asks without being told
// to, makes this fail.
func TestRunLocksOfRuns(t *testing.T) {
	server := redistest.Start(t)
	store, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	m := lockmgr.New(store, lockmgr.Options{Holder: "operator-1"})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	lease, err := m.Acquire(t.Context(), lockmgr.Request{RunUID: "u-1", Policy: policy.Defaults().RunLock})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Drop(context.WithoutCancel(t.Context()))
	held, free := testRun("team-a", "held", "u-1"), testRun("team-a", "free", "u-2")
	held.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(1)), Lock: &v1alpha1.RunLockStatus{LeaseID: lease.ID(), Holder: "operator-1"}}
	free.Status = &v1alpha1.WorkflowRunStatus{}
	p := newPlugin(t, held, free)
	at := []string{"--redis-addrs", server.Addr()}

	all := p.must(append([]string{"run-locks"}, at...)...)
	if !strings.Contains(all, "team-a/held") || !strings.Contains(all, "operator-1") || strings.Contains(all, "team-a/free") {
		t.Errorf("all:\n%s", all)
	}
	one := p.must(append([]string{"run-locks", "free", "-o", "json"}, at...)...)
	if !strings.Contains(one, `"state": "free"`) || strings.Contains(one, "held") {
		t.Errorf("one:\n%s", one)
	}
	p.env = map[string]string{"REDIS_ADDRS": server.Addr()}
	if got := p.must("run-locks"); !strings.Contains(got, "team-a/held") {
		t.Errorf("by the environment:\n%s", got)
	}
	if why := p.must("why", "held"); strings.Contains(why, "held by operator-1") {
		t.Errorf("why asked Redis without being told to:\n%s", why)
	}
	p.env = nil
	if why := p.must(append([]string{"why", "held"}, at...)...); !strings.Contains(why, "held by operator-1") {
		t.Errorf("why:\n%s", why)
	}
	if why := p.must("why", "held"); strings.Contains(why, "lock now") {
		t.Errorf("why without Redis:\n%s", why)
	}
	lease.Drop(t.Context())
	if out, note, err := p.call(append([]string{"run-locks"}, at...)...); err != nil || out != "" || !strings.Contains(note, "No run lock is held") {
		t.Errorf("none: %q, %q, %v", out, note, err)
	}
}

// mutation: why that ends where Redis does not answer makes this fail: all else is known.
func TestRunLocksThatCannotBeRead(t *testing.T) {
	noCertificate := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noCertificate, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := testRun("team-a", "r", "u-1")
	run.Status = &v1alpha1.WorkflowRunStatus{}
	p := newPlugin(t, run)
	for name, c := range map[string]struct {
		line []string
		want string
	}{
		"no such run":     {[]string{"run-locks", "nobody"}, "nobody"},
		"no such format":  {[]string{"run-locks", "-o", "yaml"}, "yaml"},
		"no Redis":        {[]string{"run-locks", "--redis-addrs", "127.0.0.1:1"}, "read run locks"},
		"no Redis, JSON":  {[]string{"why", "r", "-o", "json", "--redis-addrs", "127.0.0.1:1"}, "read run locks"},
		"no Redis, why":   {[]string{"why", "r", "--redis-addrs", "127.0.0.1:1"}, "read run locks"},
		"no certificate":  {[]string{"run-locks", "--redis-ca", noCertificate}, "no PEM certificate"},
		"no certificates": {[]string{"why", "r", "--redis-addrs", "x:1", "--redis-ca", "nowhere"}, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := p.call(c.line...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v; want %s", c.line, err, c.want)
			}
			if answered := strings.Contains(out, "operator runs, leads"); answered != (c.line[0] == "why") {
				t.Errorf("%v printed %q", c.line, out)
			}
		})
	}
	c := fakeCluster(t, run).WithInterceptorFuncs(forbid(func(_ client.ObjectList, o *client.ListOptions) bool { return o.Namespace == "" })).Build()
	server := redistest.Start(t)
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	if _, note, err := p.call("run-locks", "--redis-addrs", server.Addr()); err != nil || !strings.Contains(note, "Only the run locks of namespace team-a") {
		t.Errorf("of one namespace: %q, %v", note, err)
	}
}
