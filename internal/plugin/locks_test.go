// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// lockObjects are a semaphore, a run that holds all of it, two that wait, and one of a mutex in
// another namespace.
func lockObjects() []client.Object {
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "gpu-pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyQueue}}
	holder, waiter, other := testRun("team-a", "holder", "u-1"), testRun("team-a", "waiter", "u-2"), testRun("team-b", "other", "u-3")
	at := holder.CreationTimestamp
	holder.Status = &v1alpha1.WorkflowRunStatus{
		Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &at}, Locks: []v1alpha1.LockHold{{Name: "gpu-pool/eu", Permits: 1, Fence: 17}},
	}
	waiter.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunQueued, Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "gpu-pool/eu", StartedAt: at}},
	}
	other.Status = &v1alpha1.WorkflowRunStatus{
		Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &at}, Locks: []v1alpha1.LockHold{{Name: "mutex:team-b/deploy", Permits: 1, Fence: 18}},
	}
	last := testRun("team-a", "waiter-2", "u-4")
	last.Status = waiter.Status.DeepCopy()
	return []client.Object{sem, holder, waiter, other, last}
}

// mutations: names that are not looked at, or a bound that is not applied to JSON, makes this fail.
func TestLocks(t *testing.T) {
	p := newPlugin(t, lockObjects()...)
	all := p.must("locks")
	for _, want := range []string{"gpu-pool/eu", "1 of 1", "team-a/holder", "10m ago", "17", "1 of 2   team-a/waiter", "no room: 0 of 1 free", "team-b/other", "kubectl syncopate why holder -n team-a"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	one := p.must("locks", "gpu-pool", "gpu-pool/eu", "--limit", "1", "-o", "json")
	var locks []runview.Lock
	if err := json.Unmarshal([]byte(one), &locks); err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 || locks[0].Holders[0].Fence != 17 || locks[0].Waiting != 2 || len(locks[0].Waiters) != 1 {
		t.Errorf("%v:\n%s", err, one)
	}
	if text := p.must("locks", "mutex:deploy"); !strings.Contains(text, "mutex:team-a/deploy   0 of 1") || strings.Contains(text, "team-b") {
		t.Errorf("a free mutex:\n%s", text)
	}
	why := p.must("why", "waiter")
	if !strings.Contains(why, "lock gpu-pool/eu  place 1 of 2 for it; no room: 0 of 1 free; held by team-a/holder") || strings.Contains(why, "line ") {
		t.Errorf("why:\n%s", why)
	}
	if out, note, err := newPlugin(t).call("locks"); err != nil || out != "" || !strings.Contains(note, "No lock is held") {
		t.Errorf("none: %q, %q, %v", out, note, err)
	}
}

// mutation: a note that is left out makes this fail.
func TestLocksThatMayNotBeSeen(t *testing.T) {
	p := newPlugin(t)
	c := fakeCluster(t, lockObjects()...).WithInterceptorFuncs(forbid(func(list client.ObjectList, o *client.ListOptions) bool {
		_, sems := list.(*v1alpha1.SemaphoreList)
		return sems || o.Namespace == ""
	})).Build()
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	out, note, err := p.call("locks")
	if err != nil || !strings.Contains(out, "1 of ?") || strings.Contains(out, "team-b") {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, want := range []string{"Only the runs of namespace team-a are seen", "Semaphores are not seen"} {
		if !strings.Contains(note, want) {
			t.Errorf("it does not note %q: %q", want, note)
		}
	}
	if _, _, err := p.call("locks", "us-pool"); err == nil || !strings.Contains(err.Error(), "you may not list Semaphores") {
		t.Errorf("a semaphore that may not be seen: %v", err)
	}
}

func TestLocksThatMakeNoSense(t *testing.T) {
	p := newPlugin(t, lockObjects()...)
	for name, c := range map[string]struct {
		line []string
		want string
	}{
		"a run":             {[]string{"locks", "holder"}, "kubectl syncopate run-locks holder"},
		"a key":             {[]string{"locks", "us-pool/us"}, `"us-pool/us"`},
		"a limit below 0":   {[]string{"locks", "--limit", "-1"}, "--limit -1"},
		"no such format":    {[]string{"locks", "-o", "yaml"}, "yaml"},
		"Redis is not used": {[]string{"locks", "--redis-addrs", "x:1"}, "--redis-addrs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := p.call(c.line...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v; want %s", c.line, err, c.want)
			}
		})
	}
	p.cluster = func() (client.Client, string, error) { return nil, "", errors.New("no cluster") }
	if _, _, err := p.call("locks"); err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("without a cluster: %v", err)
	}
}
