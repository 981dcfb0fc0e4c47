// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// anyDAG is a run whose steps depend on any others, themselves and unknown ones included.
func anyDAG(r *rand.Rand) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{}
	n := 1 + r.IntN(12)
	for i := range n {
		s := v1alpha1.Step{Name: fmt.Sprintf("s%d", i)}
		for range r.IntN(4) {
			s.DependsOn = append(s.DependsOn, fmt.Sprintf("s%d", r.IntN(n+2)))
		}
		switch r.IntN(4) {
		case 3:
			s.Run = &v1alpha1.ChildRun{}
		case 0:
			s.Approval = &v1alpha1.Approval{}
		case 1:
			s.Delay = &v1alpha1.Delay{}
		}
		if r.IntN(5) == 0 {
			run.Spec.Finally = append(run.Spec.Finally, s)
		} else {
			run.Spec.Steps = append(run.Spec.Steps, s)
		}
	}
	return run
}

// mutation: without the second loop of grow (steps on a cycle), or without shown, this fails.
func TestATreeHasEachStepOnceBelowItsParent(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		run := anyDAG(r)
		seen := map[string]int{}
		for i, row := range TreeOf(run, now).Steps {
			if _, twice := seen[row.Name]; twice {
				t.Fatalf("step %s twice: %+v", row.Name, run.Spec.Steps)
			}
			if above, ok := seen[row.Parent]; row.Depth > 0 && (!ok || above >= i) {
				t.Fatalf("step %s stands above its parent %s", row.Name, row.Parent)
			}
			seen[row.Name] = i
		}
		if want := len(run.Spec.Steps) + len(run.Spec.Finally); len(seen) != want {
			t.Fatalf("%d of %d steps: %+v", len(seen), want, run.Spec)
		}
		_ = Why(run, nil, now) // total, too
	}
}

// mutation: the first dependency as the parent makes this fail.
func TestAStepStandsBelowItsLastDependencyInSpecOrder(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{}
	for name, deps := range map[string][]string{"a": nil} {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: name, DependsOn: deps})
	}
	run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: "b"}, v1alpha1.Step{Name: "c"}, v1alpha1.Step{Name: "end", DependsOn: []string{"c", "a", "b"}})
	rows := TreeOf(run, now).Steps
	end := rows[len(rows)-1]
	if diff := cmp.Diff([]string{"a", "b"}, end.AlsoAfter); end.Parent != "c" || diff != "" {
		t.Errorf("parent %s, also after (-want +got):\n%s", end.Parent, diff)
	}
}

// mutation: colours without a terminal, or widths that count them, make this fail.
func TestColoursChangeNothingButColours(t *testing.T) {
	t.Parallel()
	var run v1alpha1.WorkflowRun
	load(t, "testdata/running.yaml", &run)
	var plain, colored bytes.Buffer
	tree := TreeOf(&run, now)
	if err := tree.Text(&plain, false); err != nil {
		t.Fatal(err)
	}
	if err := tree.Text(&colored, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colored.String(), "\x1b[32m✔\x1b[0m") {
		t.Errorf("plain %q, coloured %q", plain.String(), colored.String())
	}
	stripped := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colored.String(), "")
	if diff := cmp.Diff(plain.String(), stripped); diff != "" {
		t.Errorf("without the colours (-plain +coloured):\n%s", diff)
	}
}

func TestSpansAreShortAndNeverNegative(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0ms": -time.Second, "350ms": 350*time.Millisecond + 999, "2.1s": 2199 * time.Millisecond, "9.9s": 9999 * time.Millisecond,
		"10s": 10 * time.Second, "3m10s": 190 * time.Second, "5h": 5*time.Hour + time.Second,
	} {
		if got := Span(d); got != want {
			t.Errorf("Span(%d) = %s, want %s", d, got, want)
		}
	}
}

// mutation: leaving out any of the classes in Printable makes this fail.
func TestTextsCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{0, '\x1b', '\n', '\r', '\t', 0x7f, 0x9b, 0x200b, 0x202e, 0x2028, 0x2029, 0xfeff} {
		if got := Printable("a"+string(r)+"b", 10); got != "a b" {
			t.Errorf("%U: %q", r, got)
		}
	}
	if got := Printable("a\xffb", 10); got != "a?b" {
		t.Errorf("%q", got)
	}
	if got := Printable("äöüäöü", 4); got != "äöü…" {
		t.Errorf("%q", got)
	}
}

func TestAStepThatAnotherRunDidNamesIt(t *testing.T) {
	for by, want := range map[string]string{"": "", "report-x7k2p": "done by run report-x7k2p"} {
		if got := doneElsewhere(&step{status: v1alpha1.StepStatus{DoneBy: by}}); got != want {
			t.Errorf("%q: %q", by, got)
		}
	}
}

// mutation: pending that does not look at locks makes this fail.
func TestAStepThatWaitsForALockSaysSo(t *testing.T) {
	wait := &v1alpha1.LocksWait{Lock: "mutex:team-a/db\x1b", StartedAt: metav1.NewTime(now.Add(-time.Minute))}
	for name, spec := range map[string]v1alpha1.Step{
		"a job": {Name: "migrate", Job: &v1alpha1.Job{Topic: "t"}}, "an approval": {Name: "migrate", Approval: &v1alpha1.Approval{}},
	} {
		run := underWay("orders", "acme", "")
		run.Spec.Steps = []v1alpha1.Step{spec}
		run.Status.Steps = []v1alpha1.StepStatus{{Name: "migrate", Phase: v1alpha1.StepPending, LockWait: wait}}
		if got, want := TreeOf(&run, now).Steps[0].Why, "waits for lock mutex:team-a/db  since 2026-11-20T10:09:00Z (60s ago)"; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A step that is due and has no place waits for one; one that holds its locks has its place.
//
// mutations: lacksPlace that counts no others, nextAttempt and nextAttemptFact without it, and
// placeless and toBegin that do not look at who holds locks, make this fail.
func TestWhoWaitsForAPlaceSaysSo(t *testing.T) {
	due, later := metav1.NewMicroTime(midnight), metav1.NewMicroTime(midnight.Add(time.Hour))
	now := midnight.Add(time.Minute)
	hold := []v1alpha1.LockHold{{Name: "mutex:ns/m", Permits: 1, Fence: 1}}
	backing := func(at *metav1.MicroTime, locks []v1alpha1.LockHold) v1alpha1.StepStatus {
		return v1alpha1.StepStatus{Phase: v1alpha1.StepBackingOff, Attempt: 1, NextAttemptAt: at, Locks: locks}
	}
	const waits = "waits for a place (maxParallelSteps 1)"
	for name, c := range map[string]struct {
		step            v1alpha1.StepStatus
		others          int
		says, saysNot   string
		until, inLineOf bool
	}{
		"it is due":                         {step: backing(&due, nil), others: 1, says: waits, saysNot: "next attempt"},
		"it is due later":                   {step: backing(&later, nil), others: 1, says: waits, until: true},
		"it is due, and there is a place":   {step: backing(&due, nil), says: "next attempt at", saysNot: waits, until: true},
		"it is due, and has its place":      {step: backing(&due, hold), others: 1, says: "next attempt at", saysNot: waits, until: true},
		"it is to begin":                    {step: v1alpha1.StepStatus{Phase: v1alpha1.StepPending}, others: 1, says: waits, inLineOf: true},
		"it is to begin, and has its place": {step: v1alpha1.StepStatus{Phase: v1alpha1.StepPending, Locks: hold}, says: "begins as soon as possible"},
	} {
		t.Run(name, func(t *testing.T) {
			run := underWay("one", "acme", "")
			run.Spec.MaxParallelSteps = 1
			c.step.Name = "a"
			run.Spec.Steps, run.Status.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}, []v1alpha1.StepStatus{c.step}
			for range c.others {
				run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: "b", Job: &v1alpha1.Job{Topic: "t"}})
				run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepRunning, Attempt: 1})
			}
			if got := TreeOf(&run, now).Steps[0].Why; !strings.Contains(got, c.says) || c.saysNot != "" && strings.Contains(got, c.saysNot) {
				t.Errorf("tree says %q", got)
			}
			var said, line Fact
			for _, f := range Why(&run, nil, now).Facts {
				switch f.About {
				case "step a":
					said = f
				case "steps":
					line = f
				}
			}
			inText := strings.Contains(said.Text, waits)
			if want := c.says == waits && !c.inLineOf; inText != want || (said.Until != nil) != c.until || (line.Text != "") != c.inLineOf {
				t.Errorf("why says %+v, %+v", said, line)
			}
		})
	}
}
