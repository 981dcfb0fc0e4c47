// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"fmt"
	"reflect"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// ForJobs lists the fields of steps that are for jobs and stand at a step that is none, each with
// what to write instead, in spec order, with the child runs whose specs are inline. Such a field
// does nothing, and it is no error: manifests that have one are stored. It says nothing of a spec
// that is too large to be looked at.
func ForJobs(run *v1alpha1.WorkflowRun, p *Plan, nest Nest) (found []string) {
	v := validator{run: run, plan: p, nest: nest}
	if len(v.sizes()) > 0 {
		return nil
	}
	for i := range p.Steps {
		found = append(found, forJobs(&p.Steps[i], p.Field(i))...)
		if child := p.Steps[i].Run; child != nil && nest.Level < maxLevels {
			found = append(found, forJobsBelow(child, p.Field(i)+".run.", nest.Child(p))...)
		}
	}
	return found
}

// forJobsBelow is ForJobs for a child run, if its spec is inline and can be read.
func forJobsBelow(child *v1alpha1.ChildRun, field string, nest Nest) (found []string) {
	spec, problems := ChildSpec(child)
	if len(problems) > 0 || spec.WorkflowRef != nil {
		return nil
	}
	run := &v1alpha1.WorkflowRun{Spec: spec}
	p := Of(run)
	for _, text := range ForJobs(run, &p, nest) {
		found = append(found, field+text)
	}
	return found
}

func forJobs(s *v1alpha1.Step, field string) (found []string) {
	is, bound := otherKind(s)
	if is == "" {
		return nil
	}
	for _, f := range []struct {
		name, instead string
		set           bool
	}{
		{"timeoutSeconds", bound, s.TimeoutSeconds != 0},
		{"startTimeoutSeconds", "", s.StartTimeoutSeconds != 0},
		{"retry", "", !reflect.ValueOf(s.Retry).IsZero()},
	} {
		if !f.set {
			continue
		}
		if f.instead == "" {
			f.instead = "does nothing with it"
		}
		found = append(found, fmt.Sprintf("%s.%s: it is for jobs; %s %s", field, f.name, is, f.instead))
	}
	return found
}

// otherKind is what a step is that is no job, and what bounds it; "": it is a job, or of no kind.
func otherKind(s *v1alpha1.Step) (is, bound string) {
	switch k := waits.Of(s); {
	case s.Job != nil:
		return "", ""
	case s.Approval != nil:
		return "an approval", "has approval.timeoutSeconds"
	case s.Run != nil:
		return "a child run", "has an activeDeadlineSeconds of its own"
	case k != nil:
		return "a " + k.Field, ""
	default:
		return "", ""
	}
}
