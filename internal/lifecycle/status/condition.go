// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// LeftOut begins what condition Succeeded says of an end that is not written in full. Nothing else
// in a status tells such an end from others.
const LeftOut = "The object has no room for the rest of its status"

// Condition is the one of a type; nil: there is none.
func Condition(st *v1alpha1.WorkflowRunStatus, kind string) *metav1.Condition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == kind {
			return &st.Conditions[i]
		}
	}
	return nil
}

// ReasonOf is the reason of the condition of a type; "": there is none.
func ReasonOf(st *v1alpha1.WorkflowRunStatus, kind string) string {
	if c := Condition(st, kind); c != nil {
		return c.Reason
	}
	return ""
}

// CutShort says whether the end of a run was not written in full: outputs of its steps
// are left out.
func CutShort(st *v1alpha1.WorkflowRunStatus) bool {
	c := Condition(st, v1alpha1.ConditionSucceeded)
	return c != nil && strings.HasPrefix(c.Message, LeftOut)
}
