// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// still makes a kit without a worker, whose process never stands still.
func still(t *testing.T) *kit {
	t.Helper()
	k := &kit{operator: operate(t), pace: &pace{times: 1}}
	var err error
	if k.tap, err = listen(k.config, k.names); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.tap.close)
	return k
}

// mutation: doubt without one of its cases, try that goes on for ever, or that keeps the time of a
// check which failed, fails a case.
func TestWhatASlowMachineShowsIsLookedAtAgainWithMoreTime(t *testing.T) {
	t.Parallel()
	wrong := &Failure{Expected: "a", Saw: "b"}
	job := newJob("a")
	say := func(k *kit, es ...event) {
		k.tap.mu.Lock()
		defer k.tap.mu.Unlock()
		k.tap.all = append(k.tap.all, es...)
	}
	deliver := func(k *kit, again uint64) { say(k, event{kind: ping, delivered: again}) }
	begin := func(k *kit, id protocol.JobID) { say(k, event{kind: started, subject: k.names.Result(id)}) }
	for name, tc := range map[string]struct {
		needs need
		find  func(k *kit, try int) error
		tries int
		times int // of AckWait and Patience, afterwards
		fails bool
	}{
		"a check that passes":                                  {nothing, func(*kit, int) error { return nil }, 1, 1, false},
		"a worker that is wrong, on a machine that keeps up":   {nothing, func(*kit, int) error { return wrong }, 1, 1, true},
		"a worker that is wrong, on a machine that never does": {nothing, func(k *kit, _ int) error { deliver(k, 2); return wrong }, 4, 1, true},
		"a check that is never in time":                        {restart, func(*kit, int) error { return fmt.Errorf("%w: x", errInconclusive) }, 4, 1, true},
		"a check that is in time when it is done again":        {restart, inTime(3, func(*kit) error { return errInconclusive }), 3, 4, false},
		"a job that was delivered again":                       {several, inTime(2, func(k *kit) error { deliver(k, 2); return wrong }), 2, 2, false},
		"a job that was delivered again, by a restart":         {restart, inTime(2, func(k *kit) error { deliver(k, 2); return wrong }), 1, 1, true},
		"a job that was begun again": {nothing, inTime(2, func(k *kit) error {
			begin(k, job)
			begin(k, job)
			return wrong
		}), 2, 2, false},
		"two jobs that were begun once": {nothing, inTime(2, func(k *kit) error {
			begin(k, job)
			begin(k, newJob("b"))
			return wrong
		}), 1, 1, true},
		"a process that stood still": {process, inTime(2, func(k *kit) error { k.pace.worst = k.config.AckWait; return wrong }), 2, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, tries := still(t), 0
			deliver(k, 7) // before the check, and so none of its business
			k.pace.worst = k.config.AckWait
			before := k.config
			err := k.try(t.Context(), check{needs: tc.needs, run: func(_ context.Context, k *kit) error { tries++; return tc.find(k, tries) }})
			info, infoErr := k.info(t.Context())
			if infoErr != nil {
				t.Fatal(infoErr)
			}
			type found struct {
				Tries, AckWait, Server, Patience int
				Fails                            bool
			}
			got := found{tries, int(k.config.AckWait / before.AckWait), int(info.Config.AckWait / before.AckWait), int(k.config.Patience / before.Patience), err != nil}
			if diff := cmp.Diff(found{tc.tries, tc.times, tc.times, tc.times, tc.fails}, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// inTime is a check that finds something until its n-th try.
func inTime(n int, find func(*kit) error) func(*kit, int) error {
	return func(k *kit, try int) error {
		if try >= n {
			return nil
		}
		return find(k)
	}
}
