// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// voteTTL is for how long it is remembered who has the vote of a tenant-minute: until no process is
// in that minute any more, were its clock a minute late.
const voteTTL = 2 * rollout.Period

// start asks for a slot of a run, under what governs its tenant at this moment. While an edit of
// that is tried it says, too, how the start fared.
func (k *Controller) start(
	ctx context.Context, run *v1alpha1.WorkflowRun, at store.Key, p policy.Effective, tenant string, ask func(store.Limits) error,
) error {
	now := k.clock.Now()
	governs, minute := p.Admission.At(tenant, now)
	p.Admission = governs
	l := limitsOf(p, tenant)
	decide := func() error { return k.opened(ctx, at, func() error { return ask(l) }) }
	if minute == nil || k.ballots == nil {
		return decide()
	}
	m := ballot.Minute{Entry: ballot.Entry{Policy: p.Name, Candidate: minute.Candidate}, Tenant: tenant, Period: minute.Period}
	claim := k.ballots.Enter(m, minute.Arm, now)
	var vote ballot.Vote
	if l.Lock != nil {
		l.Lock.OnWaited = func(busyTries int, waited time.Duration) {
			vote.BusyTries, vote.Wait = max(vote.BusyTries, busyTries), max(vote.Wait, waited)
		}
	}
	err := decide()
	gaveUp := ctx.Err() != nil && vote.BusyTries > 0
	if _, busy := errors.AsType[*store.BusyError](err); busy || gaveUp {
		vote = ballot.PutOff(vote.BusyTries)
	}
	if _, away := errors.AsType[*store.UnavailableError](err); claim && (!away || gaveUp) {
		k.claimVote(ctx, at, m)
	} // while Redis does not answer there is no vote: that is not worth another second
	k.ballots.Leave(m, string(run.UID), vote)
	return err
}

// claimVote claims the vote of a minute for this process, also if the caller gave up.
func (k *Controller) claimVote(ctx context.Context, at store.Key, m ballot.Minute) {
	ours, err := k.quota.ClaimVote(context.WithoutCancel(ctx), at, m.Candidate+":"+strconv.FormatInt(m.Period, 10), voteTTL)
	if err != nil {
		k.log.V(1).Info("Tenant-minute has no vote", "policy", m.Policy, "tenant", m.Tenant, "cause", err.Error())
	}
	k.ballots.Claimed(m, ours)
}
