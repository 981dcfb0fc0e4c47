// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheDocsSayHowMuchItemsMayHave(t *testing.T) {
	bound := fmt.Sprint("have ", float64(MaxItemsOutput)/(1<<20), " MiB")
	for _, file := range []string{"docs/workflows.md", "docs/api.md", "internal/lifecycle/doc.go", "api/v1alpha1/foreach_types.go"} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), bound) {
			t.Errorf("%s does not say that outputs of all items may %s", file, bound)
		}
	}
}
