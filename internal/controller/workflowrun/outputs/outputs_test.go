// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var (
	begin   = metav1.NewMicroTime(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))
	errAway = errors.New("nobody answers")
)

// aDesk is what a pass has that is at one, or not: then it may read so many bytes.
type aDesk struct {
	small int64 // 0: it is at a desk
	rests int
}

func (d *aDesk) ForOutputs(context.Context, int64) error { return nil }
func (d *aDesk) Rest(context.Context)                    { d.rests++ }
func (d *aDesk) May(bytes int64) bool                    { return d.Has() || bytes <= d.small }
func (d *aDesk) Has() bool                               { return d.small == 0 }

// failingStore has nothing, for one reason or another.
type failingStore struct {
	err   error
	asked int
}

func (s *failingStore) Put(context.Context, protocol.OutputRef, []byte) error { return s.err }
func (s *failingStore) Drop(context.Context, []string) error                  { return s.err }

func (s *failingStore) Get(context.Context, protocol.OutputRef) ([]byte, error) {
	s.asked++
	return nil, s.err
}

func attempt(step, item string) protocol.JobID {
	return protocol.JobID{RunUID: "uid", Step: step, Item: item, Attempt: 1}
}

func jobStep(name, input string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t", Input: &runtime.RawExtension{Raw: []byte(input)}}}
}

// items is a run with a thousand items in flight, whose inputs have 200 KiB each.
func items() (*v1alpha1.WorkflowRun, map[string][]any) {
	const n = 1000
	run := &v1alpha1.WorkflowRun{}
	run.UID = "uid"
	run.Spec.Inputs = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 50<<10))}
	all := jobStep("all", `{"n":"${item}","w":"${inputs.x + inputs.x}","x":"${inputs.x}","y":"${inputs.x}"}`)
	all.ForEach = &v1alpha1.ForEach{Items: "${[1]}", MaxParallel: n}
	run.Spec.Steps = []v1alpha1.Step{all}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{
		Name: "all", Phase: v1alpha1.StepRunning, StartedAt: &begin,
		ForEach: &v1alpha1.ForEachStatus{Total: n, Begun: n, Groups: []v1alpha1.ItemGroup{{
			Items: fmt.Sprintf("0-%d", n-1), Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin,
		}}},
	}}}
	list := make([]any, n)
	for i := range list {
		list[i] = int64(i)
	}
	return run, map[string][]any{render.NewView(run, run.Status, new(dag.Of(run)), nil).ListName(0): list}
}

// mutations: Jobs without a budget renders all thousand; one that takes each pass for a quick one
// stops sooner; Input that does not say that it left some.
func TestJobs_OnePassRendersSoMuchAndNoMore(t *testing.T) {
	run, lists := items()
	ids := lifecycle.InFlight(run)
	if len(ids) != 1000 {
		t.Fatalf("%d attempts in flight", len(ids))
	}
	rendered := func(desk *aDesk) (bytes, n int) {
		s := New(nil, desk, nil)
		jobs := s.Jobs(run, lists)
		for _, id := range ids {
			input, err := jobs.Input(t.Context(), id)
			if errors.Is(err, render.ErrEnough) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			bytes, n = bytes+len(input), n+1
		}
		if !s.Enough {
			t.Errorf("%d are rendered, and none is left", n)
		}
		return bytes, n
	}
	desk := &aDesk{}
	bytes, n := rendered(desk)
	if bytes < 1<<20 || bytes > bounds.MaxRenderedTogether+bounds.MaxRenderedBytes {
		t.Fatalf("%d inputs with %d bytes", n, bytes)
	}
	if desk.rests == 0 {
		t.Error("it does not rest")
	}
	if _, quick := rendered(&aDesk{small: 1}); quick >= n {
		t.Errorf("without a desk %d are rendered, at one %d", quick, n)
	}
	if _, err := New(nil, desk, nil).Jobs(run, lists).Input(t.Context(), ids[n]); err != nil {
		t.Errorf("the next pass: %v", err)
	}
}

// fullStore has one output.
type fullStore struct {
	failingStore
	data []byte
}

func (s *fullStore) Get(context.Context, protocol.OutputRef) ([]byte, error) { return s.data, nil }

// A quick pass does not even look what a large template reads.
//
// mutation: List that says what it lacks where it leaves out what its items read.
func TestJobs_WhatALargeTemplateReadsIsReadAtTheDesk(t *testing.T) {
	data := []byte(`"large"`)
	ref := protocol.NewOutputRef(attempt("a", "-"), data)
	run := &v1alpha1.WorkflowRun{}
	run.UID = "uid"
	last := jobStep("x", `{"pad":"`+strings.Repeat("x", 2*bounds.MaxQuickBytes)+`","v":"${steps.a.output}"}`)
	last.DependsOn = []string{"a"}
	run.Spec.Steps = []v1alpha1.Step{jobStep("a", `{}`), last}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
		{Name: "a", Phase: v1alpha1.StepSucceeded, Attempt: 1, OutputRef: &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size}},
		{Name: "x", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin},
	}}
	check := func(item string) {
		t.Helper()
		quick := New(&failingStore{err: errAway}, &aDesk{small: 1 << 20}, nil)
		if _, err := quick.Jobs(run, nil).Input(t.Context(), attempt("x", item)); !errors.Is(err, render.ErrEnough) || !quick.Enough {
			t.Errorf("without a desk: %v, some is left: %t", err, quick.Enough)
		}
		input, err := New(&fullStore{data: data}, &aDesk{}, nil).Jobs(run, nil).Input(t.Context(), attempt("x", item))
		if err != nil || !strings.Contains(string(input), `"v":"large"`) {
			t.Errorf("%.40s, %v", input, err)
		}
	}
	check("-")

	run.Spec.Steps[1].ForEach = &v1alpha1.ForEach{Items: "${[steps.a.output]}", MaxParallel: 1}
	run.Status.Steps[1] = v1alpha1.StepStatus{Name: "x", Phase: v1alpha1.StepRunning, StartedAt: &begin, ForEach: &v1alpha1.ForEachStatus{
		Total: 1, Begun: 1, Groups: []v1alpha1.ItemGroup{{Items: "0", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin}},
	}}
	check("0")
}

// mutations: loadAll that waits for a desk; load that takes the store for away because of that, and
// says so of the next attempt; Child that does not say that it left one.
func TestWhatIsReadAgainWithoutADeskIsLittle(t *testing.T) {
	store, run := storeOf{}, &v1alpha1.WorkflowRun{}
	run.UID, run.Status = "uid", &v1alpha1.WorkflowRunStatus{}
	for name, size := range map[string]int{"a": 10, "b": 2 << 10} {
		data := []byte(`"` + strings.Repeat("x", size) + `"`)
		ref := protocol.NewOutputRef(attempt(name, "-"), data)
		store[ref.Name] = data
		run.Spec.Steps = append(run.Spec.Steps, jobStep(name, `{}`), v1alpha1.Step{
			Name: name + "-child", DependsOn: []string{name}, Run: &v1alpha1.ChildRun{
				Spec:   runtime.RawExtension{Raw: []byte(`{"steps":[{"name":"x","job":{"topic":"t"}}]}`)},
				Inputs: &runtime.RawExtension{Raw: []byte(`{"v":"${steps.` + name + `.output}"}`)},
			},
		})
		reads := jobStep(name+"-job", `{"v":"${steps.`+name+`.output}"}`)
		reads.DependsOn = []string{name}
		run.Spec.Steps = append(run.Spec.Steps, reads)
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{
			Name: name, Phase: v1alpha1.StepSucceeded, Attempt: 1, OutputRef: &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size},
		}, v1alpha1.StepStatus{Name: name + "-child", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: name}},
			v1alpha1.StepStatus{Name: name + "-job", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin})
	}
	for name, again := range map[string]func(s *Session) func(step string) error{
		"-job": func(s *Session) func(string) error {
			jobs := s.Jobs(run, nil)
			return func(step string) error {
				_, err := jobs.Input(t.Context(), attempt(step, "-"))
				return err
			}
		},
		"-child": func(s *Session) func(string) error {
			return func(step string) error {
				_, err := s.Child(t.Context(), run, step)
				return err
			}
		},
	} {
		s := New(store, &aDesk{small: 1 << 10}, nil)
		do := again(s)
		if err := do("b" + name); !errors.Is(err, render.ErrEnough) || !s.Enough {
			t.Errorf("%s: %v, one is left: %t", name, err, s.Enough)
		}
		if err := do("a" + name); err != nil {
			t.Errorf("%s: what reads little: %v", name, err)
		}
		if err := again(New(store, &aDesk{}, nil))("b" + name); err != nil {
			t.Errorf("%s at a desk: %v", name, err)
		}
	}
}

// mutation: load that does not look at the context makes this fail.
func TestJobs_NothingIsRenderedWhenThePassIsOver(t *testing.T) {
	run, lists := items()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(nil, &aDesk{}, nil).Jobs(run, lists).Input(ctx, attempt("all", "7")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// mutation: an object store that is away taken for a lost output, or asked for each attempt, makes
// a case fail.
func TestJobs_AnOutputThatIsLostIsToldFromAStoreThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		lost bool
	}{
		"lost": {payloads.ErrUnusable, true},
		"away": {errAway, false},
	} {
		t.Run(name, func(t *testing.T) {
			ref := protocol.NewOutputRef(attempt("a", "-"), []byte("large"))
			run := &v1alpha1.WorkflowRun{}
			run.UID = "uid"
			run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{
				Name: "a", Phase: v1alpha1.StepSucceeded, Attempt: 1, OutputRef: &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size},
			}}}
			run.Spec.Steps = []v1alpha1.Step{jobStep("a", `{}`)}
			for _, s := range []v1alpha1.Step{jobStep("x", `{"v":"${steps.a.output}"}`), jobStep("y", `{"v":"${steps.a.output}"}`), jobStep("z", `{"v":1}`)} {
				s.DependsOn = []string{"a"}
				run.Spec.Steps = append(run.Spec.Steps, s)
				run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: s.Name, Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin})
			}
			store := &failingStore{err: c.err}
			jobs := New(store, &aDesk{}, nil).Jobs(run, nil)
			for _, step := range []string{"x", "y"} {
				_, err := jobs.Input(t.Context(), attempt(step, "-"))
				if _, lost := errors.AsType[*render.LostError](err); err == nil || lost != c.lost || !strings.Contains(err.Error(), c.err.Error()) {
					t.Errorf("%s: lost %t: %v", step, lost, err)
				}
			}
			if input, err := jobs.Input(t.Context(), attempt("z", "-")); err != nil || string(input) != `{"v":1}` {
				t.Errorf("z: %s, %v", input, err)
			}
			if store.asked != 1 {
				t.Errorf("the store was asked %d times", store.asked)
			}
		})
	}
}

// storeOf has outputs by name.
type storeOf map[string][]byte

func (s storeOf) Put(context.Context, protocol.OutputRef, []byte) error { return nil }
func (s storeOf) Drop(context.Context, []string) error                  { return nil }

func (s storeOf) Get(_ context.Context, ref protocol.OutputRef) ([]byte, error) {
	return s[ref.Name], nil
}

// mutation: load that has what finds no room tried again as after a failure, or that takes the
// store for away then, makes this fail.
func TestJobs_WhatFindsNoRoomIsForTheNextPass(t *testing.T) {
	store, run := storeOf{}, &v1alpha1.WorkflowRun{}
	run.UID, run.Status = "uid", &v1alpha1.WorkflowRunStatus{}
	for _, name := range []string{"a", "b", "c", "d"} {
		data := []byte(`["` + strings.Repeat(name, 7<<20) + `"]`)
		ref := protocol.NewOutputRef(attempt(name, "-"), data)
		store[ref.Name] = data
		run.Spec.Steps = append(run.Spec.Steps, jobStep(name, `{}`))
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{
			Name: name, Phase: v1alpha1.StepSucceeded, Attempt: 1, OutputRef: &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size},
		})
	}
	readers := map[string]string{"v": "a", "w": "a", "x": "b", "y": "c", "z": "d"}
	for name, reads := range readers {
		s := jobStep(name, `{"n":"${size(steps.`+reads+`.output)}"}`)
		s.DependsOn = []string{reads}
		run.Spec.Steps = append(run.Spec.Steps, s)
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &begin})
	}
	jobs := New(store, &aDesk{}, nil).Jobs(run, nil)
	for _, name := range []string{"w", "x", "y"} {
		if _, err := jobs.Input(t.Context(), attempt(name, "-")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if _, err := jobs.Input(t.Context(), attempt("z", "-")); !errors.Is(err, render.ErrEnough) {
		t.Errorf("z: %v", err)
	}
	if _, err := jobs.Input(t.Context(), attempt("v", "-")); err != nil {
		t.Errorf("v, whose output is in memory: %v", err)
	}
	if _, err := New(store, &aDesk{}, nil).Jobs(run, nil).Input(t.Context(), attempt("z", "-")); err != nil {
		t.Errorf("z in the next pass: %v", err)
	}
}

// mutation: read without resting.
func TestToCheckALargeOutputRests(t *testing.T) {
	data := []byte("[" + strings.Repeat("1,", 1<<20) + "1]")
	ref, desk := protocol.NewOutputRef(attempt("a", "-"), data), &aDesk{}
	s := New(storeOf{ref.Name: data}, desk, nil)
	if err := s.Supply(t.Context(), lifecycle.Needs{Check: []protocol.OutputRef{ref}}); err != nil || desk.rests == 0 {
		t.Errorf("%d rests, %v", desk.rests, err)
	}
	if p := s.Payloads()[ref.Name]; len(p.Data) != len(data) || p.JSON.IsZero() {
		t.Error("it is checked again where it is read")
	}
}

// What was stored is in NATS, so it has not to be in memory: 111 MiB of one pass were.
//
// mutations: put that keeps all bytes, or none; put that does not note of what an output is made, a
// pass that forgets it, or keep that does.
func TestOfWhatAPassStoresItKeepsSoMuch(t *testing.T) {
	store, data := storeOf{}, []byte(`"`+strings.Repeat("x", 1<<20)+`"`)
	s := New(store, &aDesk{}, nil)
	var n, checks lifecycle.Needs
	for i := range 12 {
		one := lifecycle.StoredOutput{Ref: protocol.NewOutputRef(attempt(fmt.Sprint("s", i), "-"), data), Data: data}
		one.Of = one.Ref.Name // it came in canonical form
		if i%2 == 0 {
			one.Of += "-as-it-came"
		}
		store[one.Ref.Name] = data
		n.Store, checks.Check = append(n.Store, one), append(checks.Check, one.Ref)
	}
	if err := s.Supply(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, p := range s.Payloads() {
		kept += len(p.Data)
	}
	if kept == 0 || kept > keptBytes {
		t.Errorf("%d bytes are kept of %d outputs", kept, len(n.Store))
	}
	if err := s.Supply(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	next := New(store, &aDesk{}, s.Facts())
	if err := next.Supply(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	for _, again := range []lifecycle.Payloads{s.Payloads(), s.Facts(), next.Payloads()} {
		for _, one := range n.Store {
			if _, known := again[one.Ref.Name]; !known || again[one.Of].Stored == nil || *again[one.Of].Stored != one.Ref {
				t.Errorf("output %s has to be stored again", one.Ref.Name)
			}
		}
	}
}

// mutation: load that does not tell of what finds no room, or check that does;
// keep that counts the same twice, or that keeps no more than before of what is checked.
func TestWhatFindsNoRoomEndsThePass(t *testing.T) {
	store := storeOf{}
	put := func(step string, size int) protocol.OutputRef {
		data := []byte(`"` + strings.Repeat("x", size-2) + `"`)
		ref := protocol.NewOutputRef(attempt(step, "-"), data)
		store[ref.Name] = data
		return ref
	}
	large, other, third := put("a", 8<<20), put("b", 8<<20), put("c", 8<<20)
	s := New(store, &aDesk{}, nil)
	supply := func(n lifecycle.Needs) {
		t.Helper()
		if err := s.Supply(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
	supply(lifecycle.Needs{Check: []protocol.OutputRef{large}})
	supply(lifecycle.Needs{Check: []protocol.OutputRef{large}}) // another result that refers to it
	if s.Payloads()[large.Name].Data == nil {
		t.Error("what was checked has to be read again")
	}
	supply(lifecycle.Needs{Check: []protocol.OutputRef{other}})
	if s.Payloads()[other.Name].Data != nil {
		t.Errorf("more than %d bytes are kept of what was checked", keptBytes)
	}
	supply(lifecycle.Needs{Load: []protocol.OutputRef{other, third}})
	if s.Payloads()[third.Name].Data == nil {
		t.Error("no room for what a decision reads")
	}
	if err := s.Supply(t.Context(), lifecycle.Needs{Load: []protocol.OutputRef{put("d", 1<<10)}}); !errors.Is(err, errNoRoom) {
		t.Errorf("nobody is told that there is no room: %v", err)
	}
}

// slowStore drops when so many are dropped at the same time. What has the name of a failure fails.
type slowStore struct {
	failingStore
	together int32
	under    atomic.Int32
	all      chan struct{}
}

func (s *slowStore) Drop(ctx context.Context, names []string) error {
	if names[0] == "fails" {
		return errAway
	}
	if s.under.Add(1) == s.together {
		close(s.all)
	}
	select {
	case <-s.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mutations: DropUnused that drops one after the other; one that goes on after a failure.
func TestWhatIsUnusedIsDroppedTogetherUntilOneFails(t *testing.T) {
	dropped := func(together int32, names ...string) (*Session, *slowStore) {
		store := &slowStore{together: together, all: make(chan struct{})}
		s := New(store, &aDesk{}, nil)
		s.Wrote(&v1alpha1.WorkflowRun{}, &v1alpha1.WorkflowRun{}, names)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		s.DropUnused(ctx)
		return s, store
	}
	s, store := dropped(supplyParallel, slices.Repeat([]string{"x"}, 2*supplyParallel)...)
	if n := store.under.Load(); n != 2*supplyParallel {
		t.Errorf("%d are dropped", n)
	}
	s.DropUnused(t.Context())
	if n := store.under.Load(); n != 2*supplyParallel {
		t.Error("they are dropped twice")
	}
	_, store = dropped(100, append([]string{"fails"}, slices.Repeat([]string{"x"}, 99)...)...)
	if n := store.under.Load(); n >= 99 {
		t.Errorf("%d more are asked for when one has failed", n)
	}
}

// mutations: Lacks that asks for no name, or not whether something could not be stored.
func TestOnlyResultsWaitWhoseOutputsAreLacking(t *testing.T) {
	ref := func(name string) *protocol.OutputRef { return &protocol.OutputRef{Name: name, Size: 1} }
	lacks := func(n lifecycle.Needs) (own, other, none bool) {
		s := New(&failingStore{err: errAway}, &aDesk{}, nil)
		tries := s.Tries()
		if tries.Supply(t.Context(), n) {
			t.Error("something was found")
		}
		s.Lacking = tries.Cause
		return s.Lacks(ref("x")), s.Lacks(ref("y")), s.Lacks(nil)
	}
	if own, other, none := lacks(lifecycle.Needs{Load: []protocol.OutputRef{*ref("x")}}); !own || other || !none {
		t.Errorf("x cannot be read: waits for x %t, for y %t, for any %t", own, other, none)
	}
	if own, other, none := lacks(lifecycle.Needs{Store: []lifecycle.StoredOutput{{Ref: *ref("x")}}}); !own || !other || !none {
		t.Errorf("x cannot be stored: waits for x %t, for y %t, for any %t", own, other, none)
	}
	if s := New(nil, &aDesk{}, nil); s.Lacks(nil) || s.Lacks(ref("x")) {
		t.Error("nothing is lacking")
	}
}

// mutation: Wrote that adds to what was unused before, whatever the status refers to now.
func TestWhatAStatusRefersToAgainIsNotDropped(t *testing.T) {
	without, with := &v1alpha1.WorkflowRun{}, &v1alpha1.WorkflowRun{}
	with.Status = &v1alpha1.WorkflowRunStatus{OutputsRef: &v1alpha1.OutputReference{Name: "x"}}
	s := New(nil, &aDesk{}, nil)
	s.Wrote(with, without, nil)
	if !slices.Equal(s.unused, []string{"x"}) {
		t.Errorf("unused: %v", s.unused)
	}
	s.Wrote(without, with, nil)
	if len(s.unused) > 0 {
		t.Errorf("unused: %v", s.unused)
	}
}
