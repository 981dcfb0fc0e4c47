// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"
)

// minutes is an arm of tenant-minutes of which some were contended, and some of these busy. Waits
// of those that were not contended are 0.
func minutes(voted, contended, busy int64) Counts {
	c := Counts{Runs: voted, Ended: voted, Contended: contended, Busy: busy}
	c.Waits[0], c.Waits[6] = voted-contended, contended
	return c
}

// trying is a rollout of tenant-minutes in its only step, once a tally was judged.
func trying(before Tally) State {
	s := progressing(50)
	s.Unit = TenantMinute
	return s.observe(aPlan(), before)
}

// mutation: evidence that needs contended tenant-minutes of both arms, that counts those of an
// arm which did not vote, or that counts those of before the step; and busy ones as a part of the
// contended make this fail.
func TestTenantMinutes(t *testing.T) {
	early := Tally{Canary: minutes(60, 50, 10), Control: minutes(60, 50, 10)}
	atomic := Tally{Canary: minutes(60, 0, 0), Control: minutes(60, 50, 10)}
	quiet := Tally{Canary: minutes(60, 10, 2), Control: minutes(60, 10, 2)}
	locked := Tally{Canary: minutes(60, 50, 25), Control: minutes(60, 0, 0)}
	inStep := func(s State) State { // the thresholds are of before it
		s = s.observe(aPlan(), early.Plus(early))
		s.Begin = s.Seen
		return s
	}
	tests := map[string]struct {
		state  State
		tally  Tally
		phase  Phase
		reason Reason
	}{
		"no worse":                                {trying(early), early.Plus(early), Promoted, ReasonAllStepsPassed},
		"Atomic has no lock that could be busy":   {trying(atomic), atomic.Plus(atomic), Promoted, ReasonAllStepsPassed},
		"Lock in place of Atomic is worse":        {trying(locked), locked.Plus(locked), RolledBack, ReasonBusyRunsWorse},
		"waits without a busy lock are worse":     {trying(atomic), atomic.Plus(Tally{Canary: minutes(60, 0, 0), Control: minutes(60, 50, 10)}).waited(40), RolledBack, ReasonWaitTailWorse},
		"no contention is no evidence":            {trying(quiet), quiet.Plus(quiet), Progressing, ReasonCanaryRuns},
		"contention of before the step is none":   {inStep(trying(early)), early.Plus(early).Plus(Tally{Canary: minutes(60, 0, 0), Control: minutes(60, 0, 0)}), Progressing, ReasonCanaryRuns},
		"nor are votes of one arm":                {inStep(trying(early)), early.Plus(early).Plus(Tally{Control: minutes(41, 41, 5)}), Progressing, ReasonCanaryRuns},
		"busy again":                              {trying(early), early.Plus(Tally{Canary: minutes(60, 50, 45), Control: minutes(60, 50, 10)}), RolledBack, ReasonBusyRunsWorse},
		"one arm votes less":                      {trying(early), early.Plus(Tally{Canary: minutes(1, 1, 0), Control: minutes(80, 60, 10)}), RolledBack, ReasonSampleRatioMismatch},
		"runs do not count for tenant-minutes":    {func() State { s := trying(early); s.Unit = Run; return s }(), early.Plus(early), Progressing, ReasonCanaryRuns},
		"what was never tried on them begins now": {State{Phase: Stable, Baseline: oldRev}, Tally{}, Progressing, ReasonCanaryRuns},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan := aPlan()
			plan.StepsPercent = []int{50}
			got, _ := Decide(Input{Plan: plan, Spec: newRev, Unit: TenantMinute, State: test.state, Tally: test.tally, Now: epoch.Add(time.Minute)})
			if got.Phase != test.phase || got.Reason != test.reason || got.Unit != TenantMinute {
				t.Errorf("%s of %s, %s (%s); want %s, %s", got.Phase, got.Unit, got.Reason, got.Message, test.phase, test.reason)
			}
			if strings.Contains(got.Message, "runs") || strings.Contains(got.Message, "runLock") {
				t.Errorf("the message speaks of runs: %s", got.Message)
			}
		})
	}
}

// waited has so many of the canary wait long.
func (t Tally) waited(n int64) Tally {
	t.Canary.Waits[0] -= n
	t.Canary.Waits[12] += n
	return t
}

// A coin is thrown for each tenant and period anew.
//
// mutation: a name without the tenant, or without the period, makes this fail.
func TestATenantIsInBothArmsOverTime(t *testing.T) {
	first := PeriodOf(epoch)
	for _, tenant := range []string{"acme", "beta"} {
		n := map[Arm]int{}
		for period := range int64(1000) {
			n[ArmOf(NameOf(tenant, first+period), "4f2a-2", 20)]++
		}
		if n[Canary] < 150 || n[Canary] > 250 || n[Control] < 150 || n[Control] > 250 {
			t.Errorf("%s: %v of 1000 periods; want about 200 of each arm", tenant, n)
		}
	}
	same := 0
	for period := range int64(1000) {
		if ArmOf(NameOf("acme", period), "4f2a-2", 50) == ArmOf(NameOf("beta", period), "4f2a-2", 50) {
			same++
		}
	}
	if same < 420 || same > 580 {
		t.Errorf("two tenants are in the same arm in %d of 1000 periods; want about half", same)
	}
}

func TestPeriods(t *testing.T) {
	n := PeriodOf(epoch)
	if BeginOf(n).After(epoch) || !BeginOf(n+1).Equal(BeginOf(n).Add(Period)) || PeriodOf(BeginOf(n+1).Add(-1)) != n || PeriodOf(BeginOf(n+1)) != n+1 {
		t.Errorf("%s is in period %d, which begins at %s", epoch, n, BeginOf(n))
	}
}

// A command about a candidate that an edit replaces in the same moment is not silently dropped.
//
// mutation: superseded that does not tell of the command makes this fail.
func TestACommandThatComesTooLateIsTold(t *testing.T) {
	for command, want := range map[Command]string{
		NoCommand: "Candidate 4f2a-2 is superseded by an edit",
		Promote:   "Candidate 4f2a-2 is superseded by an edit: the command to promote it came too late, and does nothing",
		Abort:     "Candidate 4f2a-2 is superseded by an edit: the command to abort it came too late, and does nothing",
	} {
		_, events := Decide(Input{Plan: aPlan(), Spec: thirdRe, State: progressing(20), Command: command, Now: epoch})
		if len(events) == 0 || events[0].Reason != ReasonSuperseded || events[0].Message != want {
			t.Errorf("%q: %+v; want %q", command, events, want)
		}
	}
}
