// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// mutation: a name that is cut without a hash, or behind a dot.
func TestRevisionsLabel_IsAValueOfALabel(t *testing.T) {
	short, long := "reports", strings.Repeat("a", 53)+"."+strings.Repeat("b", 100)
	if got := RevisionsLabel(short); got != short {
		t.Errorf("%s", got)
	}
	got, other := RevisionsLabel(long), RevisionsLabel(long+"c")
	if errs := validation.IsValidLabelValue(got); len(errs) > 0 || got == other || !strings.HasPrefix(got, long[:53]+"-") {
		t.Errorf("%s, %s: %v", got, other, errs)
	}
}
