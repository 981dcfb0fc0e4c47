package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Permits are the workload classes and topics that the runs of a namespace may use. The zero value permits nothing.
type Permits struct {
	AnyClass, AnyTopic bool
	Classes            []string
	Topics             []string // "a.b", or "a.*" for all that begin with "a."
}

// ResolvePermits reads the annotations of a namespace. Where one is absent everything is permitted, or nothing if lists are
// required.
func ResolvePermits(annotations map[string]string, requireLists bool) Permits {
	classes, hasClasses := annotations[v1alpha1.AnnotationAllowedClasses]
	topics, hasTopics := annotations[v1alpha1.AnnotationAllowedTopics]
	return Permits{
		AnyClass: !hasClasses && !requireLists, Classes: words(classes),
		AnyTopic: !hasTopics && !requireLists, Topics: words(topics),
	}
}

// words are those of a list that is separated by commas.
func words(list string) []string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

func (p Permits) class(name string) bool { return p.AnyClass || slices.Contains(p.Classes, name) }

func (p Permits) topic(name string) bool {
	return p.AnyTopic || slices.ContainsFunc(p.Topics, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, ".*"); ok {
			return strings.HasPrefix(name, prefix+".")
		}
		return pattern == name
	})
}

// unpermitted ends a run that may not run in its namespace; it says whether it did.
func (d *decider) unpermitted() bool {
	if (d.run.Status == nil || d.run.Status.Tenant == "") && !d.in.Tenant.Allowed {
		d.end(v1alpha1.RunFailed, v1alpha1.ReasonTenantNotAllowed, fmt.Sprintf(
			"spec.tenant: namespace %q may not run for tenant %q: its annotation %s does not list it",
			d.run.Namespace, bounds.Cut(d.in.Tenant.Name, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedTenants))
		return true
	}
	if class := d.run.Spec.WorkloadClass; !d.in.Permits.class(class) {
		d.end(v1alpha1.RunFailed, v1alpha1.ReasonClassNotAllowed, fmt.Sprintf(
			"spec.workloadClass: namespace %q may not use class %q: its annotation %s does not list it",
			d.run.Namespace, bounds.Cut(class, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedClasses))
		return true
	}
	for i := range d.plan.Steps {
		if job := d.plan.Steps[i].Job; job != nil && !d.in.Permits.topic(job.Topic) {
			d.end(v1alpha1.RunFailed, v1alpha1.ReasonTopicNotAllowed, fmt.Sprintf(
				"%s.job.topic: namespace %q may not use topic %q: its annotation %s does not list it",
				d.plan.Field(i), d.run.Namespace, bounds.Cut(job.Topic, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedTopics))
			return true
		}
	}
	return false
}
