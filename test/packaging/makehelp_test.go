// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutation: digits taken from the pattern of help make this fail.
func TestMakeListsEachTargetThatHasADescription(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := run(nil, "make", "--no-print-directory", "help")
	if err != nil {
		t.Fatal(err)
	}
	described := regexp.MustCompile(`(?m)^([^\s:=#.]+):[^=\n]*## `).FindAllStringSubmatch(string(text), -1)
	if len(described) < 10 {
		t.Fatalf("the Makefile describes %d targets: the pattern of this test is old", len(described))
	}
	for _, target := range described {
		if !strings.Contains(string(listed), "  "+target[1]+" ") {
			t.Errorf("make help does not list %s", target[1])
		}
	}
}
