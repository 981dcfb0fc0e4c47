// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// memory is what this process knows of a schedule beside what is stored.
type memory struct {
	of     types.UID
	tables map[string]*cron.Timetable
	// tookOver says that the run was looked up that began last before.
	tookOver bool
	created  map[int64]time.Time // runs that the cache does not have yet
	failed   map[int64]schedule.Failure
	since    map[int64]time.Time // first tries of creations that failed
	tried    int64               // the generation of is
	is       verdict             // what the API server said
	again    time.Time           // when it is asked again; zero: after an edit
	checked  int64               // the generation of wrong
	wrong    string              // what is wrong with its steps
	long     int64               // the generation that was to be validated
}

// answered says whether the API server said something else of this generation before. A process
// that takes over reads it from status.
func (m *memory) answered(s *v1alpha1.Schedule) bool {
	if m.tried == s.Generation {
		return true
	}
	if s.Status == nil {
		return false
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStalled)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == s.Generation &&
		(c.Reason == v1alpha1.ReasonScheduled || c.Reason == v1alpha1.ReasonTemplateRefused)
}

// learn keeps what the API server said of a generation.
func (m *memory) learn(generation int64, is verdict, again time.Time) {
	m.tried, m.is, m.again = generation, is, again
}

func newMemory(of types.UID) *memory {
	return &memory{
		of: of, tables: map[string]*cron.Timetable{}, created: map[int64]time.Time{},
		failed: map[int64]schedule.Failure{}, since: map[int64]time.Time{},
	}
}

// maxTables bounds the timings of a schedule that are remembered.
const maxTables = 4

// table is the timetable of a timing; the error names fields of spec.
func (m *memory) table(timing *v1alpha1.ScheduleTiming) (*cron.Timetable, error) {
	key := strings.Join(append(slices.Clone(timing.Cron), timing.TimeZone, string(timing.DST.Gap), string(timing.DST.Repeat)), "\n")
	if t, ok := m.tables[key]; ok {
		return t, nil
	}
	t, err := cron.New(timing.Cron, timing.TimeZone, cron.Rules{Gap: cron.Gap(timing.DST.Gap), Repeat: cron.Repeat(timing.DST.Repeat)})
	if err != nil {
		return nil, named(err)
	}
	if len(m.tables) >= maxTables {
		clear(m.tables)
	}
	m.tables[key] = t
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
