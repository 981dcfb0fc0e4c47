// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

func TestMessagesAreBounded(t *testing.T) {
	steps := make([]v1alpha1.StepStatus, bounds.MaxSteps)
	for i := range steps {
		steps[i] = v1alpha1.StepStatus{Name: fmt.Sprintf("%040d", i), Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: bounds.Micro(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))}
	}
	text := stateText(steps, nothingMore)
	if len(text) > bounds.MaxMessageChars || !strings.HasSuffix(text, " more") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	var problems []string
	for i := range 500 {
		problems = append(problems, fmt.Sprintf("spec.steps[%d]: %s", i, strings.Repeat("ü", i)))
	}
	if text := problemsText(problems); len([]rune(text)) > bounds.MaxProblemsChars || !strings.Contains(text, " more") {
		t.Errorf("%d characters: %s", len(text), text)
	}
}
