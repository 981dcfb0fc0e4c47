package workflowrun

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func aDesk(clk *clocktesting.FakeClock) *Reconciler {
	return &Reconciler{
		clock: clk, desks: newShares(1, false, placeMetrics{}),
		turns: newTurns(2, placeMetrics{}, func(types.NamespacedName) {}),
	}
}

func passAt(r *Reconciler, namespace string) *pass {
	return &pass{Reconciler: r, key: types.NamespacedName{Namespace: namespace, Name: "x"}, mem: &memory{}}
}

// mutation: a rest though nobody else is there; none though another is; one that is as long as the desk was had without the bound.
func TestADeskStaysEmptyAsLongAsItWasHadIfOthersArePresent(t *testing.T) {
	for name, c := range map[string]struct {
		other string
		ago   time.Duration // of the other's last pass, from when the desk was had
		had   time.Duration
		rest  time.Duration
	}{
		"another tenant":           {"b", 0, 100 * time.Millisecond, 100 * time.Millisecond},
		"the same tenant":          {"a", 0, 100 * time.Millisecond, 0},
		"another, a while ago":     {"b", 2 * maxRest, 100 * time.Millisecond, 0},
		"another, for a long time": {"b", 0, time.Minute, maxRest},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(epoch)
			r := aDesk(clk)
			r.turns.see(c.other, clk.Now())
			clk.Step(c.ago)
			r.turns.see("a", clk.Now())
			p := passAt(r, "a")
			if !p.sitDown(t.Context()) {
				t.Fatal("there is no desk")
			}
			clk.Step(c.had)
			p.standUp()
			next := r.desks.take("a", func() {})
			if r.desks.has(next) != (c.rest == 0) {
				t.Fatalf("the desk is had again at once: %t", r.desks.has(next))
			}
			clk.Step(c.rest - time.Millisecond)
			if c.rest > 0 && r.desks.has(next) {
				t.Error("the desk is had again too early")
			}
			clk.Step(time.Millisecond)
			if !r.desks.has(next) {
				t.Error("the desk is not had again")
			}
		})
	}
}

// mutation: mayWrite, or sitDownForSize, without the look at the size makes this fail.
func TestALargeRunIsWrittenFromADesk(t *testing.T) {
	r := aDesk(clocktesting.NewFakeClock(epoch))
	r.writes = newShares(1, false, placeMetrics{})
	if !passAt(r, "a").sitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	small, large := passAt(r, "b"), passAt(r, "b")
	small.mem.lastWriteBytes, large.mem.lastWriteBytes = largeObject, largeObject+1
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for _, p := range []*pass{small, large} {
		p.run = aRun("1")
		done, err := p.mayWrite(ctx, aRun("1"))
		if err == nil {
			done()
		}
		if want := p == large; errors.Is(err, errTest) != want {
			t.Errorf("a write of %d bytes waits for a desk: %t", p.mem.lastWriteBytes, !want)
		}
	}
}

// mutation: encoded without kind and version makes this fail.
func TestARunIsEncodedAsTheAPIServerWantsIt(t *testing.T) {
	run := aRun("7", v1alpha1.StepPending)
	body, err := encoded(run)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.WorkflowRun
	if err := json.Unmarshal(body, &back); err != nil || back.Kind != "WorkflowRun" || back.APIVersion != v1alpha1.GroupVersion.String() || run.Kind != "" {
		t.Errorf("%v: %s %s; the run itself: %q", err, back.APIVersion, back.Kind, run.Kind)
	}
}
