// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

func withKey(key string) func(*v1alpha1.WorkflowRunSpec) {
	return func(s *v1alpha1.WorkflowRunSpec) { s.IdempotencyKey = key }
}

func ofTopic(topic string) func(*v1alpha1.WorkflowRunSpec) {
	return func(s *v1alpha1.WorkflowRunSpec) { s.Steps[0].Job.Topic = topic }
}

func (k *instance) claims(run *v1alpha1.WorkflowRun, want *Owner) {
	k.w.t.Helper()
	got, err := k.Claim(k.w.ctx(), run, tenant)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		k.w.t.Fatalf("claim of %s: %v; owner (-want +got):\n%s", run.Name, err, diff)
	}
}

// mutation: Claim that ignores who was first makes this fail, as does a hash of nothing.
func TestOfManyRunsWithOneKeyOneHasIt(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	others := []*instance{w.boss, w.instance()}
	var all []*v1alpha1.WorkflowRun
	for i := range 10 {
		all = append(all, w.run(fmt.Sprint("r", i), withKey("k"), func(s *v1alpha1.WorkflowRunSpec) { s.Priority = int32(i) }))
	}
	owners := make([]*Owner, len(all))
	var claiming sync.WaitGroup
	for i, run := range all {
		claiming.Go(func() {
			var err error
			if owners[i], err = others[i%2].Claim(w.ctx(), run, tenant); err != nil {
				t.Error(err)
			}
		})
	}
	claiming.Wait()
	var first *v1alpha1.WorkflowRun
	for i, o := range owners {
		if o == nil && first != nil {
			t.Fatalf("%s and %s have the key", first.Name, all[i].Name)
		}
		if o == nil {
			first = all[i]
		}
	}
	if first == nil {
		t.Fatal("nobody has the key")
	}
	want := &Owner{Name: "default/" + first.Name, Same: true}
	for i, run := range all {
		if run != first {
			if diff := cmp.Diff(want, owners[i]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", run.Name, diff)
			}
		}
	}
	w.boss.claims(first, nil)
	w.boss.claims(w.run("conflict", withKey("k"), ofTopic("else")), &Owner{Name: want.Name})
	w.boss.claims(w.run("another-key", withKey("k2")), nil)
	elsewhere := w.run("elsewhere", withKey("k"))
	if o, err := w.boss.Claim(w.ctx(), elsewhere, "other-tenant"); o != nil || err != nil {
		t.Errorf("the same key of another tenant: %+v, %v", o, err)
	}
}

// mutation: claimant that always finds the claim's run makes all of these fail.
func TestAKeyOfWhoDoesNotOwnItIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		become func(w *world, run *v1alpha1.WorkflowRun)
		taken  bool
	}{
		"its run is deleted": {become: func(w *world, run *v1alpha1.WorkflowRun) {
			w.remove(run)
			w.boss.stale = nil // a cache that has the run would raise a doubt
		}, taken: true},
		"another run has its name":          {become: func(w *world, run *v1alpha1.WorkflowRun) { w.remove(run); w.run(run.Name) }, taken: true},
		"its run is itself a duplicate":     {become: becomes(refusedFor(v1alpha1.ReasonDuplicateRun)), taken: true},
		"its run is itself in conflict":     {become: becomes(refusedFor(v1alpha1.ReasonIdempotencyConflict)), taken: true},
		"its run failed otherwise":          {become: becomes(refusedFor(v1alpha1.ReasonStepFailed))},
		"its run succeeded and still there": {become: becomes(ended)},
		"its run is admitted":               {become: becomes(admittedUnder(""))},
		"its run was not looked at":         {become: func(*world, *v1alpha1.WorkflowRun) {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.boss.looks()
			owner, run := w.run("owner", withKey("k")), w.run("run", withKey("k"))
			w.boss.freeze() // it is decided by a live read
			w.boss.claims(owner, nil)
			c.become(w, owner)
			if c.taken {
				w.boss.claims(run, nil)
				return
			}
			w.boss.claims(run, &Owner{Name: "default/owner", Same: true})
		})
	}
}

// A load balancer says of anything that it is not there, for a moment. A run that the watch knows
// keeps its key, its slot, and what a rebuild counts of it.
//
// mutation: resyncs.Read that believes it makes this fail.
func TestOneAnswerThatARunIsNotThereGivesNothingAway(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.boss.looks()
	owner, run := w.run("owner", withKey("k")), w.run("run", withKey("k"))
	w.boss.claims(owner, nil)
	w.write(owner, admittedUnder("batch"))
	notFound := apierrors.NewGenericServerResponse(404, "get", v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "", "default backend - 404", 0, true)
	w.boss.refuseGet = notFound
	if o, err := w.boss.Claim(w.ctx(), run, tenant); o != nil || !errors.Is(err, resyncs.ErrDoubted) {
		t.Errorf("a claim: %+v, %v; want a doubt", o, err)
	}
	if o, err := w.boss.ReserveKey(w.ctx(), run, tenant, time.Hour); o != nil || !errors.Is(err, resyncs.ErrDoubted) {
		t.Errorf("a reservation: %+v, %v; want a doubt", o, err)
	}
	if now, err := w.boss.read(w.ctx(), client.ObjectKeyFromObject(owner), owner.UID); now != nil || !errors.Is(err, resyncs.ErrDoubted) {
		t.Errorf("a read: %+v, %v; want a doubt", now, err)
	}
	w.boss.refuseGet = nil
	w.boss.claims(run, &Owner{Name: "default/owner", Same: true})
	w.remove(owner)
	w.boss.claims(run, nil)
}

func becomes(change func(*v1alpha1.WorkflowRunStatus)) func(*world, *v1alpha1.WorkflowRun) {
	return func(w *world, run *v1alpha1.WorkflowRun) { w.write(run, change) }
}

// mutation: releaseKeysOfGone that does nothing makes this fail; so does one that yields what the
// cache does not have.
func TestController_ResyncReleasesKeysOfRunsThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	gone, refused, held := w.run("gone", withKey("k1")), w.run("refused", withKey("k2")), w.run("stays", withKey("k3"))
	for _, run := range runs(gone, refused, held) {
		w.boss.claims(run, nil)
	}
	w.write(refused, refusedFor(v1alpha1.ReasonDuplicateRun))
	w.remove(gone)
	w.boss.freeze()
	late := w.run("late", withKey("k4"))
	w.instance().claims(late, nil)
	w.boss.looksLong()
	owners, err := w.boss.quota.Claims(w.ctx(), tenant)
	must(t, err)
	got := map[string]string{}
	for key, c := range owners {
		got[key] = c.Name
	}
	if diff := cmp.Diff(map[string]string{"k3": "default/stays", "k4": "default/late"}, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// Who asks before the run exists is told who will be first, though that one does not exist either.
//
// mutation: a run that does not exist yet taken for one that is gone makes this fail: by whoever
// claims, or by a resync.
func TestAKeyIsReservedForARunThatIsAboutToBeCreated(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	reserves := func(run *v1alpha1.WorkflowRun, ttl time.Duration, want *Owner) {
		t.Helper()
		got, err := w.boss.ReserveKey(w.ctx(), run, tenant, ttl)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("reserve for %s: %v; owner (-want +got):\n%s", run.Name, err, diff)
		}
	}
	unborn := func(name, topic string) *v1alpha1.WorkflowRun {
		run := w.run(name, withKey("k"), ofTopic(topic))
		w.remove(run)
		return run
	}
	first, second, other := unborn("first", "t"), unborn("second", "t"), unborn("other", "else")
	reserves(first, 0, nil)
	reserves(second, 0, nil)
	reserves(first, time.Hour, nil)
	reserves(first, time.Hour, nil)
	reserves(second, time.Hour, &Owner{Name: "default/first", Same: true})
	reserves(second, 0, &Owner{Name: "default/first", Same: true})
	reserves(other, time.Hour, &Owner{Name: "default/first"})
	w.boss.looks() // a resync
	passedBy := w.run("passed-by", withKey("k"))
	if owner, err := w.boss.Claim(w.ctx(), passedBy, tenant); owner != nil || !errors.Is(err, errBeingCreated) {
		t.Errorf("a run that exists: %+v, %v; want to come again", owner, err)
	}
	must(t, w.boss.ReleaseKey(w.ctx(), first.UID, tenant, "k")) // it was not created after all
	reserves(second, time.Millisecond, nil)
	for owner := (&Owner{}); owner != nil; { // until its time is over
		var err error
		owner, err = w.boss.ReserveKey(w.ctx(), other, tenant, time.Hour)
		must(t, err)
	}
}

// mutation: ReleaseKey that does nothing makes this fail.
func TestYield(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	a, b := w.run("a", withKey("k")), w.run("b", withKey("k"))
	w.boss.claims(a, nil)
	must(t, w.boss.ReleaseKey(w.ctx(), b.UID, tenant, "k"))
	w.boss.claims(b, &Owner{Name: "default/a", Same: true})
	must(t, w.boss.ReleaseKey(w.ctx(), a.UID, tenant, "k"))
	w.boss.claims(b, nil)
	w.boss.refuse = errors.New("test")
	if err := w.boss.ReleaseKey(w.ctx(), b.UID, tenant, "k"); !errors.Is(err, w.boss.refuse) {
		t.Errorf("yield: %v; want the cause", err)
	}
	if o, err := w.boss.Claim(w.ctx(), a, tenant); o != nil || !errors.Is(err, w.boss.refuse) {
		t.Errorf("claim: %+v, %v; want the cause", o, err)
	}
}

// mutation: contents without owners makes this fail: the late run takes the key of the one that
// runs. One that gives keys to runs that are not admitted makes it fail, too.
func TestKeysAfterALoss(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.boss.looks()
	in, over, waits := w.run("in", withKey("k1")), w.run("over", withKey("k2")), w.run("waits", withKey("k3"))
	for _, run := range runs(in, over, waits) {
		w.boss.claims(run, nil)
	}
	w.boss.admits(in)
	w.write(w.boss.admits(over), ended)
	for name, lose := range map[string]func(){
		"everything": func() { w.server.FlushAll() },
		"the keys":   func() { must(t, w.redis.Del(w.ctx(), claimsKey).Err()) },
	} {
		lose()
		if _, err := w.boss.Claim(w.ctx(), w.get("in"), tenant); !isClosed(err) {
			t.Fatalf("%s: %v; want closed", name, err)
		}
		w.boss.looks()
		if _, err := w.tryWrite(waits, admittedUnder("batch")); !apierrors.IsConflict(err) {
			t.Fatalf("%s: a run was admitted by a claim of before the loss: %v", name, err)
		}
		for _, key := range []string{"k1", "k2"} {
			late := w.run("late-"+key, withKey(key))
			w.boss.claims(late, &Owner{Name: "default/" + map[string]string{"k1": "in", "k2": "over"}[key], Same: true})
			w.remove(late)
		}
		late := w.run("late-k3", withKey("k3")) // nobody was admitted with it: the first who asks again has it
		w.boss.claims(late, nil)
		w.boss.claims(w.get("waits"), &Owner{Name: "default/late-k3", Same: true})
		w.remove(late)
		must(t, w.boss.ReleaseKey(w.ctx(), late.UID, tenant, "k3"))
		waits = w.get("waits")
		if _, err := w.boss.Claim(w.ctx(), waits, tenant); err != nil {
			t.Fatal(err)
		}
	}
}

// mutation: contents without older makes this fail every other time or so: nobody knows how two
// came to be admitted, but the first stays.
func TestTheFirstOfTwoWithOneKeyHasIt(t *testing.T) {
	r := &rebuilding{runs: map[types.UID]fact{}, claims: map[types.UID]store.Claim{}}
	for i := range 20 {
		id := types.UID(fmt.Sprint("u", i))
		r.runs[id] = fact{uid: id, tenant: tenant, key: "k", admittedAt: epoch.Add(-time.Duration(i%7) * time.Minute)}
		r.claims[id] = store.Claim{UID: string(id)}
	}
	want := map[string]store.Claim{"k": {UID: "u13"}}
	if diff := cmp.Diff(want, r.contents()[store.Key{Tenant: tenant}].owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// permits says how many permits the locks of a spec are of.
func permits(n int32, of func(*v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest) func(*v1alpha1.WorkflowRunSpec) {
	return func(s *v1alpha1.WorkflowRunSpec) {
		for i := range of(s) {
			of(s)[i].Permits = &n
		}
	}
}

func TestSpecHash(t *testing.T) {
	base := func() v1alpha1.WorkflowRunSpec {
		return v1alpha1.WorkflowRunSpec{
			WorkloadClass: "batch", Steps: []v1alpha1.Step{
				{Name: "a", Job: &v1alpha1.Job{Topic: "t"}, Locks: []v1alpha1.LockRequest{{Mutex: "m"}}},
				{Name: "b", Approval: &v1alpha1.Approval{}},
				{Name: "c", Job: &v1alpha1.Job{Topic: "t"}, ForEach: &v1alpha1.ForEach{Items: "${[1]}", Locks: []v1alpha1.LockRequest{{Semaphore: "s"}}}},
			},
			Finally: []v1alpha1.Step{{Name: "f", Job: &v1alpha1.Job{Topic: "t"}, Locks: []v1alpha1.LockRequest{{Mutex: "f"}}}},
			Locks:   []v1alpha1.LockRequest{{Semaphore: "s", Key: "k"}},
			Inputs:  &runtime.RawExtension{Raw: []byte(`{"a":1,"b":{"c":[1,2],"d":null}}`)},
		}
	}
	ttl, wait := int32(5), int32(7)
	raw := func(s string) func(*v1alpha1.WorkflowRunSpec) {
		return func(spec *v1alpha1.WorkflowRunSpec) { spec.Inputs = &runtime.RawExtension{Raw: []byte(s)} }
	}
	// mutation: specHash without one of its resets or defaults, or without the canonical form,
	// makes its line fail.
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowRunSpec)
		same   bool
	}{
		"suspend is no work":              {func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true }, true},
		"shutdown is no work":             {func(s *v1alpha1.WorkflowRunSpec) { s.Shutdown = v1alpha1.ShutdownCancel }, true},
		"how long it is kept is no work":  {func(s *v1alpha1.WorkflowRunSpec) { s.TTLSecondsAfterFinished = &ttl }, true},
		"priority is no work":             {func(s *v1alpha1.WorkflowRunSpec) { s.Priority = 9 }, true},
		"the tenant may be named or not":  {func(s *v1alpha1.WorkflowRunSpec) { s.Tenant = "acme" }, true},
		"the key itself is no work":       {withKey("k"), true},
		"order of fields does not matter": {raw(`{"b": {"d":null, "c":[1,2]}, "a":1}`), true},
		"another class is another work":   {ofClass("else"), false},
		"another topic is another work":   {ofTopic("else"), false},
		"another input is another work":   {raw(`{"a":2,"b":{"c":[1,2],"d":null}}`), false},
		"order of a list matters":         {raw(`{"a":1,"b":{"c":[2,1],"d":null}}`), false},
		"null and absent differ":          {raw(`{"a":1,"b":{"c":[1,2]}}`), false},
		"a default may be said or not": {func(s *v1alpha1.WorkflowRunSpec) {
			twenty, second, minute := int32(20), int64(1000), int64(60000)
			s.Steps[0].OnFailure, s.Steps[0].TimeoutSeconds, s.Steps[0].StartTimeoutSeconds = v1alpha1.FailRun, 3600, 3600
			s.Steps[0].Retry = v1alpha1.Retry{MaxFailures: 3, Backoff: v1alpha1.Backoff{
				InitialMillis: &second, FactorPercent: 200, MaxMillis: &minute, JitterPercent: &twenty,
			}}
			s.Steps[1].Approval = &v1alpha1.Approval{OnTimeout: v1alpha1.Reject}
			s.Steps[2].ForEach.MaxParallel, s.Steps[2].ForEach.OnItemFailure = 10, v1alpha1.FailStep
		}, true},
		"one permit of the run may be said or not":    {permits(1, func(s *v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest { return s.Locks }), true},
		"one permit of a step may be said or not":     {permits(1, func(s *v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest { return s.Steps[0].Locks }), true},
		"one permit of an item may be said or not":    {permits(1, func(s *v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest { return s.Steps[2].ForEach.Locks }), true},
		"one permit of a clean-up may be said or not": {permits(1, func(s *v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest { return s.Finally[0].Locks }), true},
		"two permits are another work":                {permits(2, func(s *v1alpha1.WorkflowRunSpec) []v1alpha1.LockRequest { return s.Locks }), false},
		"another time-out is another work":            {func(s *v1alpha1.WorkflowRunSpec) { s.Steps[0].TimeoutSeconds = 3601 }, false},
		"no backoff is another work":                  {func(s *v1alpha1.WorkflowRunSpec) { s.Steps[0].Retry.Backoff.InitialMillis = new(int64(0)) }, false},
		"a time limit is work":                        {func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = &wait }, false},
		"no inputs are other inputs":                  {func(s *v1alpha1.WorkflowRunSpec) { s.Inputs = nil }, false},
		"large numbers are not rounded off":           {raw(`{"a":1.0000000000000000001,"b":{"c":[1,2],"d":null}}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			was, err := specHash(base())
			must(t, err)
			changed := base()
			c.change(&changed)
			given := changed.DeepCopy()
			is, err := specHash(changed)
			must(t, err)
			if diff := cmp.Diff(*given, changed); diff != "" { // runs are the cache's own
				t.Errorf("the spec was changed (-want +got):\n%s", diff)
			}
			if (was == is) != c.same {
				t.Errorf("%s and %s; want the same: %t", was, is, c.same)
			}
		})
	}
	broken := base()
	raw(`{`)(&broken)
	if _, err := specHash(broken); err == nil {
		t.Error("no error for what is no JSON")
	}
	two := base()
	raw(`{"a":12345678901234567890,"b":1}`)(&two)
	three := base()
	raw(`{"a":12345678901234567891,"b":1}`)(&three)
	h2, err2 := specHash(two)
	h3, err3 := specHash(three)
	if err := errors.Join(err2, err3); err != nil || h2 == h3 {
		t.Errorf("%s, %s, %v; want large numbers told apart", h2, h3, err)
	}
}
