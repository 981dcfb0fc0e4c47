// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// A pass may end before the write for which it validated the spec: Redis is away, say.
//
// mutations: noteValid that remembers a spec which is not valid; validAs that heeds no revision, or
// remembers a run that starts from another.
func TestThatASpecIsValidIsRemembered(t *testing.T) {
	first, second := &v1alpha1.WorkflowRevision{Name: "w", Revision: "1"}, &v1alpha1.WorkflowRevision{Name: "w", Revision: "2"}
	for name, c := range map[string]struct {
		valid    bool
		was, now *v1alpha1.WorkflowRevision
		from     *v1alpha1.StartFrom
		known    bool
	}{
		"a spec":                            {valid: true, known: true},
		"a spec that was not read":          {},
		"a revision":                        {valid: true, was: first, now: first, known: true},
		"another revision":                  {valid: true, was: first, now: second},
		"steps where there was a revision":  {valid: true, was: first},
		"what a run starts from may change": {valid: true, from: &v1alpha1.StartFrom{}},
	} {
		t.Run(name, func(t *testing.T) {
			mem := &memory{}
			pass := func(revision *v1alpha1.WorkflowRevision) *pass {
				p := &pass{mem: mem, spec: v1alpha1.WorkflowRunSpec{StartFrom: c.from}}
				p.template.Revision = revision
				return p
			}
			p := pass(c.was)
			p.evaluated = &lifecycle.Evaluated{Valid: c.valid}
			noteValid(p)
			if known := knownValid(pass(c.now)); (known != nil) != c.known || known != nil && !known.Valid {
				t.Errorf("%+v", known)
			}
		})
	}
}
