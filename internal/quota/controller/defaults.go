// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// withDefaults says in full what steps say: a field that is left out stands for the same work as
// its default. Runs that were created before ADR 35 have defaults stored.
func withDefaults(steps []v1alpha1.Step) []v1alpha1.Step {
	full := slices.Clone(steps)
	for i := range full {
		s := &full[i]
		s.Locks = withPermits(s.Locks)
		setDefault(&s.OnFailure, v1alpha1.FailRun)
		setDefault(&s.TimeoutSeconds, 3600)
		setDefault(&s.StartTimeoutSeconds, 3600)
		setDefault(&s.Retry.MaxFailures, 3)
		b := &s.Retry.Backoff
		setDefault(&b.FactorPercent, 200)
		setPointer(&b.InitialMillis, 1000)
		setPointer(&b.MaxMillis, 60000)
		setPointer(&b.JitterPercent, 20)
		if s.Approval != nil {
			a := *s.Approval
			setDefault(&a.OnTimeout, v1alpha1.Reject)
			s.Approval = &a
		}
		if s.ForEach != nil {
			f := *s.ForEach
			setDefault(&f.MaxParallel, 10)
			setDefault(&f.OnItemFailure, v1alpha1.FailStep)
			f.Locks = withPermits(f.Locks)
			s.ForEach = &f
		}
	}
	return full
}

// withPermits says in full what requests for locks say.
func withPermits(locks []v1alpha1.LockRequest) []v1alpha1.LockRequest {
	full := slices.Clone(locks)
	for i := range full {
		setPointer(&full[i].Permits, 1)
	}
	return full
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
