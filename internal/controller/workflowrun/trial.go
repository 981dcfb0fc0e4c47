// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// policyReference is what status says of the policy, in a write under a lock; nil:
// built-in defaults.
func (p *pass) policyReference(lock lifecycle.Lock) *v1alpha1.PolicyReference {
	if p.policy.Name == "" {
		return nil
	}
	now := p.r.Clock.Now()
	return &v1alpha1.PolicyReference{
		Name: p.policy.Name, Generation: p.policy.Generation,
		Trial: p.trial.Votes(p.run, p.mem.lock.VotesUnder(lock, now), p.batch.Facts(), now),
	}
}

// rolloutChanged says that runs that keep their lease may have another policy now.
func rolloutChanged(before, after client.Object) bool {
	old, ok := before.(*v1alpha1.LockPolicy)
	now, ok2 := after.(*v1alpha1.LockPolicy)
	if !ok || !ok2 {
		return false
	}
	return inTrial(old) != inTrial(now)
}

// tried says which runs have which revision.
type tried struct {
	phase               v1alpha1.RolloutPhase
	baseline, candidate string
}

func inTrial(p *v1alpha1.LockPolicy) tried {
	if p.Status == nil || p.Status.Rollout == nil {
		return tried{}
	}
	r := p.Status.Rollout
	t := tried{phase: r.Phase, baseline: r.Baseline.Name}
	if r.Candidate != nil {
		t.candidate = r.Candidate.Name
	}
	return t
}
