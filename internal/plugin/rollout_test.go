// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

func rollingOut(phase v1alpha1.RolloutPhase) *v1alpha1.LockPolicy {
	at := metav1.NewTime(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	waits := make([]int64, 16)
	waits[8] = 40
	return &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "reports"},
		Status: &v1alpha1.LockPolicyStatus{Rollout: &v1alpha1.LockPolicyRolloutStatus{
			Phase: phase, Percent: 20, ChangedAt: at, Reason: "CanaryRuns", Message: "in words",
			Baseline:  v1alpha1.RolloutRevision{Name: "91bc0011-1", RunLock: v1alpha1.RunLockPolicy{TTLSeconds: 30}},
			Candidate: &v1alpha1.RolloutRevision{Name: "4f2a0011-2", RunLock: v1alpha1.RunLockPolicy{TTLSeconds: 10}},
			Canary:    &v1alpha1.RolloutCounts{Runs: 44, Ended: 40, Contended: 30, Busy: 12, Waits: waits},
			History:   []v1alpha1.RolloutOutcome{{Name: "77aa0011-1", Reason: "BusyRunsWorse", EndedAt: at, Changes: []string{"busyRetry.mode: Jittered -> Fixed", "ttlSeconds: 30 -> 20"}}},
		}},
	}
}

func TestRollouts(t *testing.T) {
	const status = `PHASE       Progressing
UNIT        Run
CANARY      20 percent of the runs, for 10m0s
BASELINE    91bc0011-1
CANDIDATE   4f2a0011-2
CHANGE      ttlSeconds: 30 -> 10
REASON      CanaryRuns: in words

ARM       RUNS   ENDED   CONTENDED   BUSY   P95 WAIT   P95 LATENCY   ABANDONED   FENCES   DEAD LETTERS
canary    44     40      30          12     500ms      0s            0           0        0
control   0      0       0           0      0s         0s            0           0        0
`
	const history = `REVISION     OUTCOME         ENDED                  CHANGES
77aa0011-1   BusyRunsWorse   2026-11-20T10:00:00Z   busyRetry.mode: Jittered -> Fixed, ttlSeconds: 30 -> 20
`
	const minutes = `PHASE       Progressing
UNIT        TenantMinute
CANARY      20 percent of the minutes of each tenant, for 10m0s
BASELINE    91bc0011-1
CANDIDATE   4f2a0011-2
CHANGE      admission.lock.retry.mode: Jittered -> Fixed
REASON      CanaryRuns: in words

ARM       MINUTES   ENDED   CONTENDED   BUSY   P95 WAIT   P95 LATENCY   ABANDONED   FENCES   DEAD LETTERS
canary    44        40      30          12     500ms      0s            0           0        0
control   0         0       0           0      0s         0s            0           0        0
`
	asked := func(verb string) string {
		return "candidate 4f2a0011-2 of lock policy reports: " + verb + " asked for\n"
	}
	tests := map[string]struct {
		args       []string
		phase      v1alpha1.RolloutPhase
		out        string // all that is printed
		part       string // of what is printed, or of the error
		annotation string
	}{
		"status":                       {[]string{"status", "reports"}, "Progressing", status, "", ""},
		"status of tenant-minutes":     {[]string{"status", "gates"}, "Progressing", minutes, "", ""},
		"status for programs":          {[]string{"status", "reports", "-o", "json"}, "Progressing", "", `"contended": 30`, ""},
		"status in an unknown format":  {[]string{"status", "reports", "-o", "toml"}, "Progressing", "", `--output "toml": need one of [table json]`, ""},
		"status of no policy":          {[]string{"status"}, "Progressing", "", "accepts 1 arg(s), received 0", ""},
		"history":                      {[]string{"history", "reports"}, "RolledBack", history, "", ""},
		"history for programs":         {[]string{"history", "reports", "-o", "json"}, "RolledBack", "", `"reason": "BusyRunsWorse"`, ""},
		"promote":                      {[]string{"promote", "reports"}, "Progressing", asked("promote"), "", "promote 4f2a0011-2"},
		"promote what was rolled back": {[]string{"promote", "reports"}, "RolledBack", asked("promote"), "", "promote 4f2a0011-2"},
		"promote what is in force":     {[]string{"promote", "reports"}, "Promoted", "", "nothing to promote: the rollout is Promoted", ""},
		"abort":                        {[]string{"abort", "reports"}, "Holding", asked("abort"), "", "abort 4f2a0011-2"},
		"abort what is over":           {[]string{"abort", "reports"}, "RolledBack", "", "nothing to abort: the rollout is RolledBack", ""},
		"a policy that is not there":   {[]string{"abort", "other"}, "Progressing", "", `"other" not found`, ""},
		"a policy without a rollout":   {[]string{"status", "plain"}, "Progressing", "", "lock policy plain has no rollout: its edits are in force at once", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gates := rollingOut(test.phase)
			gates.Name, gates.Status.Rollout.Unit = "gates", v1alpha1.RolloutUnitTenantMinute
			for rev, mode := range map[*v1alpha1.RolloutRevision]v1alpha1.JitterMode{&gates.Status.Rollout.Baseline: "Jittered", gates.Status.Rollout.Candidate: "Fixed"} {
				rev.RunLock = v1alpha1.RunLockPolicy{}
				rev.Admission = &v1alpha1.RolloutAdmission{Lock: v1alpha1.AdmissionLock{Retry: v1alpha1.AdmissionRetry{Mode: mode}}}
			}
			c := fakeCluster(t, rollingOut(test.phase), gates, &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}).Build()
			p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
			out, _, err := p.call(append([]string{"rollout"}, test.args...)...)
			if diff := cmp.Diff(test.out, out); diff != "" && test.out != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			if err != nil {
				out += err.Error()
			}
			if !strings.Contains(out, test.part) {
				t.Errorf("%q is not in:\n%s", test.part, out)
			}
			policy := &v1alpha1.LockPolicy{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "reports"}, policy); err != nil {
				t.Fatal(err)
			}
			if got := policy.Annotations[v1alpha1.AnnotationRollout]; got != test.annotation {
				t.Errorf("annotation %q; want %q", got, test.annotation)
			}
		})
	}
}

// edited is a policy whose last edit the operator has not looked at yet; looked is what its status
// becomes when it does.
func edited(phase v1alpha1.RolloutPhase) (p *v1alpha1.LockPolicy, looked func(*v1alpha1.LockPolicy)) {
	p = rollingOut(phase)
	p.Generation, p.Status.ObservedGeneration = 3, 2
	return p, func(now *v1alpha1.LockPolicy) {
		now.Status.ObservedGeneration = 3
		now.Status.Rollout.Phase, now.Status.Rollout.Candidate.Name = "Progressing", "77aa0011-3"
	}
}

// A user writes the edit and the command one after the other: the command is about that edit.
//
// mutation: a command that takes the status as it is makes this fail.
func TestACommandRightAfterAnEditIsAboutThatEdit(t *testing.T) {
	for phase, fresh := range map[v1alpha1.RolloutPhase]bool{"Progressing": false, "Promoted": false, "Stable": true} {
		t.Run(string(phase), func(t *testing.T) {
			stale, looked := edited(phase)
			if fresh { // the first status of a policy comes later than the policy, too
				stale.Status = &v1alpha1.LockPolicyStatus{ObservedGeneration: -1}
			}
			reads := 0
			c := fakeCluster(t, stale).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if reads++; reads == 2 {
						now := rollingOut("Progressing")
						if err := c.Get(ctx, key, now); err != nil {
							return err
						}
						now.Status.Rollout = rollingOut("Progressing").Status.Rollout
						looked(now)
						if err := c.Update(ctx, now); err != nil {
							return err
						}
					}
					return c.Get(ctx, key, o, opts...)
				},
			}).Build()
			p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
			out, _, err := p.call("rollout", "promote", "reports")
			if want := "candidate 77aa0011-3 of lock policy reports: promote asked for\n"; err != nil || out != want {
				t.Errorf("printed %q, %v; want %q", out, err, want)
			}
		})
	}
}

// mutation: a command that goes on when the time is over makes this fail.
func TestACommandAboutAnEditThatNobodyLookedAtFails(t *testing.T) {
	for _, verb := range []string{"promote", "abort"} {
		stale, _ := edited("Progressing")
		c := fakeCluster(t, stale).Build()
		p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
		out, _, err := p.call("rollout", verb, "reports", "--wait", "0s")
		if want := "the operator has not looked at generation 3 of lock policy reports yet; try again"; err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s printed %q, %v; want %q", verb, out, err, want)
		}
		policy := &v1alpha1.LockPolicy{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "reports"}, policy); err != nil || policy.Annotations[v1alpha1.AnnotationRollout] != "" {
			t.Errorf("%s wrote %q, %v", verb, policy.Annotations, err)
		}
		if _, _, err := p.call("rollout", verb, "reports", "--wait", "-1s"); err == nil || !strings.Contains(err.Error(), "--wait -1s: need 0s to 1h0m0s") {
			t.Errorf("a time that is none: %v", err)
		}
	}
}

// A policy that is written between the look at it and the command: a status costs nothing, an edit
// ends the command, as it is about a candidate that the edit replaces.
//
// mutation: a patch that does not compare versions, one that is not tried again, and one that is
// about whatever is there then make this fail.
func TestACommandIsAboutTheEditThatWasSeen(t *testing.T) {
	for name, test := range map[string]struct {
		change           func(*v1alpha1.LockPolicy)
		says, annotation string
	}{
		"a status":   {func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Message = "later" }, "abort asked for", "abort 4f2a0011-2"},
		"its end":    {func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Phase = "Promoted" }, "nothing to abort: the rollout is Promoted", ""},
		"no rollout": {func(p *v1alpha1.LockPolicy) { p.Status.Rollout = nil }, "has no rollout", ""},
		"an edit":    {func(p *v1alpha1.LockPolicy) { p.Generation++ }, "lock policy reports was edited meanwhile: nothing is asked for", ""},
		"an edit, seen": {func(p *v1alpha1.LockPolicy) {
			p.Generation, p.Status.ObservedGeneration, p.Status.Rollout.Candidate.Name = 3, 3, "77aa0011-3"
		}, "lock policy reports was edited meanwhile: nothing is asked for", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy, patches := rollingOut("Progressing"), 0
			c := fakeCluster(t, policy).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if patches++; patches == 1 {
						now := &v1alpha1.LockPolicy{}
						if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
							return err
						}
						test.change(now)
						if err := c.Update(ctx, now); err != nil {
							return err
						}
					}
					return c.Patch(ctx, o, patch, opts...)
				},
			}).Build()
			p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
			out, _, err := p.call("rollout", "abort", "reports")
			if err != nil {
				out += err.Error()
			}
			if !strings.Contains(out, test.says) {
				t.Errorf("%q is not in: %s", test.says, out)
			}
			now := &v1alpha1.LockPolicy{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "reports"}, now); err != nil || now.Annotations[v1alpha1.AnnotationRollout] != test.annotation {
				t.Errorf("wrote %q, %v; want %q", now.Annotations, err, test.annotation)
			}
		})
	}
}

// mutation: a read that fails and makes what the one before said forgotten, makes this fail.
func TestACommandWhoseLastReadFailsNamesTheEdit(t *testing.T) {
	stale, _ := edited("Progressing")
	reads := 0
	c := fakeCluster(t, stale).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads++; reads > 1 {
				return apierrors.NewServiceUnavailable("for a moment")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
	out, _, err := p.call("rollout", "abort", "reports", "--wait", "0s")
	if want := "the operator has not looked at generation 3 of lock policy reports yet; try again"; err == nil || !strings.Contains(err.Error(), want) || out != "" {
		t.Errorf("printed %q, %v; want %q", out, err, want)
	}
}

// A selector that has a name of more than 63 characters is refused by kubectl.
//
// mutation: a note with the name of the policy.
func TestRollout_HistoryNamesTheLabelOfItsRevisions(t *testing.T) {
	long := rollingOut("RolledBack")
	long.Name = strings.Repeat("reports-", 10) + "x"
	c := fakeCluster(t, long).Build()
	p := &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }}
	want := "-l syncopate.dev/lock-policy=" + policy.RevisionsLabel(long.Name) + " -o yaml\n"
	if _, note, err := p.call("rollout", "history", long.Name); err != nil || !strings.HasSuffix(note, want) || strings.Contains(note, long.Name) {
		t.Errorf("%v, note %q, want %q", err, note, want)
	}
	if _, note, err := p.call("rollout", "history", long.Name, "-o", "json"); err != nil || note != "" {
		t.Errorf("for programs: %v, note %q", err, note)
	}
}
