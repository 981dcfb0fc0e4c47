// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// lockKey is what a key may be, and a mutex: it stands in a header, and in keys of Redis.
var lockKey = regexp.MustCompile(`^[A-Za-z0-9._:/@+=-]{1,128}$`)

// MutexPrefix begins the names of mutexes. The name of a semaphore has no colon.
const MutexPrefix = "mutex:"

// OfRun stands for the run itself where a step is named by its index.
const OfRun = -1

// Keys evaluates the keys of the locks of step i, or of the run: as many as there are requests.
func (v *View) Keys(i int, requests []v1alpha1.LockRequest) ([]any, error) {
	var sees []int
	finally, vars := false, func(reads expr.Outputs) (expr.Vars, error) { return v.vars(nil, reads) }
	if i != OfRun {
		sees, finally, vars = v.plan.Sees(i), v.plan.IsFinally(i), func(reads expr.Outputs) (expr.Vars, error) { return v.varsOf(i, reads) }
	}
	raw := dag.LockTemplate(requests...)
	text, err := v.Done.value(v.place(fmt.Sprintf("%d/locks", i), sees, finally), len(raw), func() (json.RawMessage, int, error) {
		reads, err := v.readsOf(sees, raw)
		if err != nil {
			return nil, 0, fmt.Errorf("locks: %w", err)
		}
		vars, err := vars(reads)
		if err != nil {
			return nil, 0, err
		}
		keys, cost, err := v.templateBy(raw, vars)
		if err != nil {
			return nil, cost, fmt.Errorf("locks: %w", err)
		}
		return keys, cost, nil
	})
	return listed(text), err
}

// listed are the keys in a rendered template of keys, which is a list as long as the template.
func listed(text json.RawMessage) (keys []any) {
	_ = json.Unmarshal(text, &keys) // not so if there is none
	return keys
}

// Wants are the locks of requests with the keys that were evaluated.
func Wants(namespace string, requests []v1alpha1.LockRequest, keys []any) ([]facts.LockWant, error) {
	all, seen := make([]facts.LockWant, 0, len(keys)), map[string]bool{}
	for k, r := range requests {
		key, isText := keys[k].(string)
		if !isText || !lockKey.MatchString(key) && key+r.Mutex+r.Key != "" {
			return nil, fmt.Errorf("locks[%d]: %.140q is not 1 to 128 of letters, digits and ._:/@+=-", k, fmt.Sprint(keys[k]))
		}
		w := facts.LockWant{Name: r.Semaphore + "/" + key, Permits: bounds.ValueOr(r.Permits, 1)}
		if r.Mutex != "" {
			w.Name = MutexPrefix + namespace + "/" + key
		}
		if seen[w.Name] {
			return nil, fmt.Errorf("locks[%d]: lock %s is named twice", k, w.Name)
		}
		seen[w.Name] = true
		all = append(all, w)
	}
	return all, nil
}
