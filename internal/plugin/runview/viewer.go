// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// viewer makes one answer.
type viewer struct {
	run      *v1alpha1.WorkflowRun
	st       *v1alpha1.WorkflowRunStatus
	all      []step
	policies []v1alpha1.LockPolicy
	now      time.Time
	answer   Answer
	advice   []string
	asked    []*step // approvals that wait
	family   family
}

func (v *viewer) add(f Fact) {
	f.About, f.Text = Printable(f.About, maxTextChars), Printable(f.Text, maxTextChars)
	v.answer.Facts = append(v.answer.Facts, f)
}

func (v *viewer) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(v.st.Conditions, kind)
}

// means is the meaning of a condition; one that this version does not know is told in
// its own words.
func (v *viewer) means(c *metav1.Condition) string {
	m, known := meaningOf(c.Type, c.Reason)
	if !known {
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if m.text != "" && m.help != "" {
		v.advise(m.help)
	}
	return m.text
}

func (v *viewer) advise(text string) {
	if !slices.Contains(v.advice, text) {
		v.advice = append(v.advice, text)
	}
}

func (v *viewer) transition(kind string) *time.Time {
	if c := v.condition(kind); c != nil {
		return secondTime(&c.LastTransitionTime)
	}
	return nil
}

func (v *viewer) queuedAt() *time.Time {
	if v.st.Admission != nil && v.st.Admission.QueuedAt != nil {
		return secondTime(v.st.Admission.QueuedAt)
	}
	return utc(v.run.CreationTimestamp.Time)
}

func (v *viewer) admitted() bool { return v.st.Admission != nil && v.st.Admission.AdmittedAt != nil }

func (v *viewer) noNATS() bool { return v.answer.Reason == v1alpha1.ReasonWaitingForNATS }

func earlier(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}
