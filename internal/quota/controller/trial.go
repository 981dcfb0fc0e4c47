// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// voteTTL is for how long it is remembered who has the vote of a tenant-minute: until no process is
// in that minute any more, were its clock a minute late.
const voteTTL = 2 * rollout.Period

// trials put starts into the arms of rollouts, and say how they fare.
type trials struct {
	ballots *ballot.Box // nil: nobody votes
	clock   clock.PassiveClock
	gate    *store.Store
	log     logr.Logger
}

// ask asks for a slot of a run, under what governs its tenant at this moment. While an edit of that
// is tried it says, too, how the start fared.
func (t trials) ask(
	ctx context.Context, run *v1alpha1.WorkflowRun, at store.Key, p policy.Effective, tenant string, decide func(store.Limits) error,
) error {
	now := t.clock.Now()
	governs, minute := p.Admission.At(tenant, now)
	p.Admission = governs
	l := limitsOf(p, tenant)
	if minute == nil || t.ballots == nil {
		return decide(l)
	}
	m := ballot.Minute{Entry: ballot.Entry{Policy: p.Name, Candidate: minute.Candidate}, Tenant: tenant, Period: minute.Period}
	claim := t.ballots.Enter(m, minute.Arm, now)
	var vote ballot.Vote
	if l.Lock != nil {
		l.Lock.OnWaited = func(busyTries int, waited time.Duration) {
			vote.BusyTries, vote.Wait = max(vote.BusyTries, busyTries), max(vote.Wait, waited)
		}
	}
	err := decide(l)
	gaveUp := ctx.Err() != nil && vote.BusyTries > 0
	if _, busy := errors.AsType[*store.BusyError](err); busy || gaveUp {
		vote = ballot.PutOff(vote.BusyTries)
	}
	// While Redis does not answer there is no vote: that is not worth another second.
	if _, away := errors.AsType[*store.UnavailableError](err); claim && (!away || gaveUp) {
		t.claim(ctx, at, m)
	}
	t.ballots.Leave(m, string(run.UID), vote)
	return err
}

// claim claims the vote of a minute for this process, also if the caller gave up.
func (t trials) claim(ctx context.Context, at store.Key, m ballot.Minute) {
	ours, err := t.gate.ClaimVote(context.WithoutCancel(ctx), at, m.Candidate+":"+strconv.FormatInt(m.Period, 10), voteTTL)
	if err != nil {
		t.log.V(1).Info("Tenant-minute has no vote", "policy", m.Policy, "tenant", m.Tenant, "cause", err.Error())
	}
	t.ballots.Claimed(m, ours)
}
