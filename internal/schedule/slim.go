// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Slim leaves out of a schedule what the operator does not read, since each replica has all
// schedules in memory. In the place of a template that is too large there is why it is: RunSpec
// says that. No API server may be given the spec: there it is not of the type that it has to be.
func Slim(s *v1alpha1.Schedule) {
	by, named := s.Annotations[v1alpha1.AnnotationCreatedBy]
	why := tooLarge(s)
	s.ManagedFields, s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences = nil, nil, nil, nil, nil
	if why == "" {
		if named {
			s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by}
		}
		return
	}
	text, err := json.Marshal(why)
	if err != nil { // never: it is a string
		text = []byte(`"too large"`)
	}
	s.Spec.RunTemplate = v1alpha1.RunTemplate{}
	s.Spec.RunTemplate.Spec.Raw = text
}

// tooLarge says why a template is larger than the operator takes; empty: it is not. As of a run, no
// more is taken than bounds.MaxSpecBytes; here that is all that is written, whether runs have such
// a field or not, and who made the schedule, which its runs say, too.
func tooLarge(s *v1alpha1.Schedule) string {
	t := &s.Spec.RunTemplate
	n := len(t.Spec.Raw) + len(s.Annotations[v1alpha1.AnnotationCreatedBy])
	for _, some := range []map[string]string{t.Metadata.Labels, t.Metadata.Annotations} {
		for name, value := range some {
			n += len(name) + len(value)
		}
	}
	if n <= bounds.MaxSpecBytes {
		return ""
	}
	return fmt.Sprintf("%d bytes, with the labels and annotations of the runs and who made the schedule (%s), are more than %d",
		n, v1alpha1.AnnotationCreatedBy, bounds.MaxSpecBytes)
}

// Fits says why the template of a schedule is too large, with who made the schedule, if that is so,
// or if Slim found it; nil: it is not.
func Fits(s *v1alpha1.Schedule) error {
	why := tooLarge(s)
	if raw := s.Spec.RunTemplate.Spec.Raw; len(raw) > 0 && raw[0] == '"' { // no spec is a text
		if err := json.Unmarshal(raw, &why); err != nil {
			return fmt.Errorf("no object: %w", err)
		}
	}
	if why == "" {
		return nil
	}
	return errors.New(why)
}
