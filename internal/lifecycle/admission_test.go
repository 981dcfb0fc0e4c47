// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

func full(position int) Gate {
	return Gate{State: GateFull, Used: 2, Limit: 2, Position: position, Waiting: 5, Ahead: "team-a/first"}
}

// mutation: an unknown answer of the gate taken for an open one makes "not asked" fail; starts that
// do not look at the admission make all of them dispatch.
func TestARunWaitsForItsGate(t *testing.T) {
	tests := map[string]struct {
		gate    Gate
		reason  string // of Admitted=False; "": Unknown
		message string
		event   string
	}{
		"not asked":        {Gate{}, "", "Waits for admission", ""},
		"not answered yet": {Gate{State: GateAsked}, "", "Waits for admission", ""},
		"at the limit": {
			full(2), v1alpha1.ReasonTenantAtCapacity,
			"Tenant team-a has 2 slots taken, of at most 2 by LockPolicy batch; place 2 of 5 in line at 2026-01-02T10:00:00Z, behind team-a/first", "Normal",
		},
		"all tenants have the total": {
			Gate{State: GateFull, Used: 1, Limit: 2, All: 9, Total: 9, Position: 1, Waiting: 3},
			v1alpha1.ReasonTotalAtCapacity,
			"All tenants have 9 slots taken, of at most 9 by LockPolicy batch; tenant team-a has 1, place 1 of 3 in its line at 2026-01-02T10:00:00Z", "Normal",
		},
		"at a limit of 0":  {Gate{State: GateFull, Position: 1, Waiting: 1}, v1alpha1.ReasonTenantAtCapacity, "LockPolicy batch admits no runs of tenant team-a: its limit is 0", "Normal"},
		"its lock is busy": {Gate{State: GateBusy, Cause: "tried for 2 s"}, v1alpha1.ReasonAdmissionBusy, "The admission lock of tenant team-a is busy; tried for 2 s", "Warning"},
		"it lost its data": {Gate{State: GateRebuilding}, v1alpha1.ReasonAdmissionRebuilding, "Redis lost what it knew of admitted runs; nobody is admitted until they are counted again", "Warning"},
		"its policy is gone": {
			Gate{State: GateNoPolicy, Cause: "batch", Until: epoch.Add(30 * time.Second)},
			v1alpha1.ReasonWaitingForPolicy,
			"LockPolicy batch is gone; the run waits until " + epoch.Add(30*time.Second).UTC().Format(time.RFC3339) + " whether it comes back", "Normal",
		},
		"it cannot be used": {Gate{State: GateUnavailable, Cause: "connection refused"}, v1alpha1.ReasonAdmissionUnavailable, "Nobody is admitted while Redis cannot be used; connection refused", "Warning"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Policy: &v1alpha1.PolicyReference{Name: "batch", Generation: 1}})
			in.Gate = tt.gate
			out := Decide(in)
			c := status.Condition(&out.Status, v1alpha1.ConditionAdmitted)
			want := strings.ReplaceAll(tt.message, "2026-01-02T10:00:00Z", epoch.UTC().Format(time.RFC3339))
			if c.Message != want || (tt.reason != "" && c.Reason != tt.reason) {
				t.Errorf("Admitted=%s/%s: %s", c.Status, c.Reason, c.Message)
			}
			if len(out.Dispatch) > 0 || out.Status.Phase != v1alpha1.RunQueued || out.Status.Admission.AdmittedAt != nil {
				t.Errorf("phase %s, dispatched %v", out.Status.Phase, out.Dispatch)
			}
			if got := outcomeOf(&out.Status); got != "Queued/Queued" {
				t.Errorf("outcome %s", got)
			}
			if out.Needs.Admission != (tt.gate.State == GateUnasked) {
				t.Errorf("needs %+v", out.Needs)
			}
			if tt.event != "" && (len(out.Events) != 1 || out.Events[0].Type != tt.event || out.Events[0].Reason != tt.reason) {
				t.Errorf("events %+v", out.Events)
			}
			run.Status = persisted(t, &out.Status)
			in.Gate = Gate{State: GateOpen}
			if out = Decide(in); len(out.Dispatch) != 1 || out.Status.Phase != v1alpha1.RunRunning || out.Status.Admission.Policy != "batch" {
				t.Errorf("with the gate open: phase %s, dispatched %v, policy %q", out.Status.Phase, out.Dispatch, out.Status.Admission.Policy)
			}
		})
	}
}

// Waiting costs nothing: a line that moves is not worth a write.
//
// mutation: a message that follows the line makes the first fail; one that never
// changes the others.
func TestWaitingIsToldOnce(t *testing.T) {
	run := newRun(newStep("a"))
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Policy: &v1alpha1.PolicyReference{Name: "batch"}})
	in.Gate = full(4)
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	for name, tt := range map[string]struct {
		gate  Gate
		write bool
	}{
		"the line moved":            {full(1), false},
		"nobody was asked":          {Gate{}, false},
		"nobody has answered":       {Gate{State: GateAsked}, false},
		"the limit was raised":      {Gate{State: GateFull, Used: 3, Limit: 3, Position: 4, Waiting: 5}, true},
		"Redis went down meanwhile": {Gate{State: GateUnavailable, Cause: "x"}, true},
	} {
		in.Gate, in.Now = tt.gate, epoch.Add(time.Hour)
		if out := Decide(in); out.Changed != tt.write {
			t.Errorf("%s: changed %t", name, out.Changed)
		}
	}
}

func TestAQueueTimeOutSaysWhatWasWaitedFor(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.QueueTimeoutSeconds = new(int32(60))
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
	in.Gate = full(1)
	out := Decide(in)
	if want := epoch.Add(time.Minute); !out.Wake.Equal(want) {
		t.Errorf("wakes at %s, want %s", out.Wake, want)
	}
	run.Status = persisted(t, &out.Status)
	in.Now = epoch.Add(time.Minute)
	out = Decide(in)
	if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message; outcomeOf(&out.Status) != "TimedOut/QueueTimeout" ||
		!strings.HasPrefix(got, "not admitted within queueTimeoutSeconds (60): Tenant team-a has 2 slots taken") {
		t.Errorf("%s: %s", outcomeOf(&out.Status), got)
	}
}

// mutation: whyLocked that takes any message of Admitted for a reason, or mixes up states of the
// lock, makes this fail.
func TestAQueueTimeOutSaysWhatKeptTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		lock Lock
		want string
	}{
		"the gate was never asked":     {held(2), "not admitted within queueTimeoutSeconds (60)"},
		"another has the lock":         {busy(), "not admitted within queueTimeoutSeconds (60): the run lock is busy"},
		"Redis is down and tells that": {unavailable(), "not admitted within queueTimeoutSeconds (60): the run lock cannot be taken: dial tcp: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.QueueTimeoutSeconds = new(int32(60))
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
			in.Gate = Gate{}
			out := Decide(in)
			run.Status = persisted(t, &out.Status)
			in.Now, in.Lock = epoch.Add(time.Minute), c.lock
			out = Decide(in)
			if diff := cmp.Diff(c.want, status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message); diff != "" || outcomeOf(&out.Status) != "TimedOut/QueueTimeout" {
				t.Errorf("%s %s", outcomeOf(&out.Status), diff)
			}
		})
	}
}

// mutation: a claim that is not known taken for ours makes "not asked" and "not to be had" fail.
func TestIdempotencyKeys(t *testing.T) {
	tests := map[string]struct {
		claim   Claim
		want    string
		message string // of Succeeded
	}{
		"ours":                   {Claim{State: ClaimOurs}, "Running/Running", "0 of 1 steps finished"},
		"not asked":              {Claim{}, "Queued/Queued", "Waits for admission"},
		"not to be had":          {Claim{State: ClaimUnavailable, Cause: "refused"}, "Queued/Queued", "The idempotency key cannot be claimed; refused"},
		"another's":              {Claim{State: ClaimTaken, Owner: "team-a/first", Same: true}, "Failed/DuplicateRun", "run team-a/first of tenant team-a has the same idempotency key and the same spec"},
		"another's, who differs": {Claim{State: ClaimTaken, Owner: "team-a/first"}, "Failed/IdempotencyConflict", "run team-a/first of tenant team-a has the same idempotency key and another spec"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.IdempotencyKey = "k"
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
			in.Claim = tt.claim
			out := Decide(in)
			if got := outcomeOf(&out.Status); got != tt.want {
				t.Errorf("outcome %s, want %s", got, tt.want)
			}
			if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message; !strings.HasPrefix(got, tt.message) {
				t.Errorf("message %q", got)
			}
			if out.Needs.Claim != (tt.claim.State == ClaimUnasked) {
				t.Errorf("needs %+v", out.Needs)
			}
			if (len(out.Dispatch) > 0) != (tt.claim.State == ClaimOurs) {
				t.Errorf("dispatched %v", out.Dispatch)
			}
		})
	}
	t.Run("a suspended run claims nothing", func(t *testing.T) {
		run := newRun(newStep("a"))
		run.Spec.IdempotencyKey, run.Spec.Suspend = "k", true
		if out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1)})); out.Needs.Any() {
			t.Errorf("needs %+v", out.Needs)
		}
	})
}

// mutation: "llm.*" as a prefix without its dot makes "a topic that only begins like it" fail.
func TestPermits(t *testing.T) {
	lists := map[string]string{v1alpha1.AnnotationAllowedClasses: "batch, default ,", v1alpha1.AnnotationAllowedTopics: "llm.*,http.fetch"}
	tests := map[string]struct {
		annotations  map[string]string
		requireLists bool
		class, topic string
		want         string
	}{
		"no lists, all is permitted":               {nil, false, "x", "y", "Running/Running"},
		"no lists, but they are required":          {nil, true, "x", "y", "Failed/ClassNotAllowed"},
		"listed":                                   {lists, true, "batch", "llm.summarize", "Running/Running"},
		"listed in full":                           {lists, false, "default", "http.fetch", "Running/Running"},
		"another class":                            {lists, false, "payments", "http.fetch", "Failed/ClassNotAllowed"},
		"another topic":                            {lists, false, "batch", "http.post", "Failed/TopicNotAllowed"},
		"a topic that only begins like it":         {lists, false, "batch", "llmx.post", "Failed/TopicNotAllowed"},
		"the topic of all of them":                 {lists, false, "batch", "llm", "Failed/TopicNotAllowed"},
		"an empty list permits nothing":            {map[string]string{v1alpha1.AnnotationAllowedTopics: ""}, false, "x", "y", "Failed/TopicNotAllowed"},
		"a list of classes says nothing of topics": {map[string]string{v1alpha1.AnnotationAllowedClasses: "x"}, false, "x", "y", "Running/Running"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.WorkloadClass, run.Spec.Steps[0].Job.Topic = tt.class, tt.topic
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
			in.Permits = facts.ResolvePermits(tt.annotations, tt.requireLists)
			out := Decide(in)
			if diff := cmp.Diff(tt.want, outcomeOf(&out.Status)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			run.Status = persisted(t, &out.Status)
			in.Permits = Permits{}
			if out = Decide(in); out.Status.CompletedAt != nil && tt.want == "Running/Running" {
				t.Error("a list that is changed later ended the run")
			}
		})
	}
}
