// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Timetable has the slots of a schedule. Its error has the fields that are wrong.
func Timetable(timing *v1alpha1.ScheduleTiming) (*cron.Timetable, error) {
	t, err := cron.New(timing.Cron, timing.TimeZone, cron.Rules{Gap: cron.Gap(timing.DST.Gap), Repeat: cron.Repeat(timing.DST.Repeat)})
	if err != nil {
		return nil, named(err)
	}
	return t, nil
}

// named gives the errors of a timetable the names of fields.
func named(err error) error {
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var all []error
	for _, e := range list.Unwrap() {
		field := "spec.timeZone"
		if wrong, ok := errors.AsType[*cron.FieldError](e); ok && wrong.Index >= 0 {
			field = fmt.Sprintf("spec.cron[%d]", wrong.Index)
		}
		all = append(all, fmt.Errorf("%s: %w", field, e))
	}
	return errors.Join(all...)
}

// Problem is what is wrong with a spec beside its times and its runs; "": nothing.
func Problem(spec *v1alpha1.ScheduleSpec) string {
	if spec.StopWhen != "" {
		if _, err := expr.ConditionSteps(spec.StopWhen); err != nil {
			return "spec.stopWhen: " + err.Error()
		}
	}
	if b := spec.Backfill; b != nil {
		if problem := bounds.YearProblem(b.To.Time); problem != "" {
			return "spec.backfill.to: " + problem // a status that has it could not be written
		}
	}
	return ""
}

// RunSpec is the spec of a schedule's runs. The error says what is wrong with the template, also
// that it is too large, or was, before Slim.
func RunSpec(s *v1alpha1.Schedule) (spec v1alpha1.WorkflowRunSpec, err error) {
	if err := Fits(s); err != nil {
		return spec, err
	}
	strict, err := kjson.UnmarshalStrict(s.Spec.RunTemplate.Spec.Raw, &spec)
	if err := errors.Join(append(strict, err)...); err != nil {
		return spec, err
	}
	if fields := notInTemplates(&spec); len(fields) > 0 {
		return spec, fmt.Errorf("a schedule has no %s", strings.Join(fields, ", "))
	}
	return spec, nil
}

// notInTemplates are fields that are of one run only. A run with a time to live may be gone before
// it is known that it was created.
func notInTemplates(spec *v1alpha1.WorkflowRunSpec) (fields []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"startFrom", spec.StartFrom != nil},
		{"idempotencyKey", spec.IdempotencyKey != ""},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished != nil},
		{"suspend", spec.Suspend},
		{"shutdown", spec.Shutdown != ""},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}
