// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// maxLocksTogether bounds the locks that are taken together, and maxLockKey a key
// before evaluation.
const (
	maxLocksTogether = 8
	maxLockKey       = 512
)

var semaphoreName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// locks checks the locks of step i, or of its items, or, below 0, of the run.
func (v *validator) locks(i int, field string, requests []v1alpha1.LockRequest, with ...expr.Option) {
	if len(requests) == 0 {
		return
	}
	if len(requests) > maxLocksTogether {
		v.add(field, "%d locks, more than %d", len(requests), maxLocksTogether)
	}
	if v.taken += len(requests); v.taken > bounds.MaxLocks && v.taken-len(requests) <= bounds.MaxLocks {
		v.add(field, "a run and its steps may have %d locks together", bounds.MaxLocks)
	}
	for _, r := range requests {
		v.lock(i, field, &r, with)
	}
}

func (v *validator) lock(i int, field string, r *v1alpha1.LockRequest, with []expr.Option) {
	if problem := lockProblem(r); problem != "" {
		v.add(field, "%s", problem)
		return
	}
	names, err := expr.TemplateSteps(LockTemplate(*r), append(v.place(i), with...)...)
	if i < 0 && err == nil && len(names) > 0 {
		v.add(field, "it is taken before any step begins, and cannot read steps")
		return
	}
	v.references(max(i, 0), field, names, err)
}

// lockProblem is what is wrong with a lock but its expressions; "": nothing.
func lockProblem(r *v1alpha1.LockRequest) string {
	switch {
	case (r.Semaphore == "") == (r.Mutex == ""):
		return "a lock needs exactly one of semaphore and mutex"
	case r.Mutex != "" && (r.Key != "" || r.Permits != nil):
		return "a mutex has neither key nor permits"
	case r.Semaphore != "" && !semaphoreName.MatchString(r.Semaphore):
		return quote(r.Semaphore) + " is no name of a Semaphore"
	case bounds.ValueOr(r.Permits, 1) < 1:
		return "fewer permits than 1"
	case len(r.Mutex+r.Key) > maxLockKey:
		return fmt.Sprintf("a key of %d bytes, more than %d", len(r.Mutex+r.Key), maxLockKey)
	}
	return ""
}

// LockTemplate is what is evaluated for locks: a list of their keys.
func LockTemplate(requests ...v1alpha1.LockRequest) []byte {
	keys := make([]string, len(requests))
	for k, r := range requests {
		keys[k] = r.Mutex + r.Key // one of them is there, or none
	}
	raw, _ := json.Marshal(keys) // strings can always be written
	return raw
}
