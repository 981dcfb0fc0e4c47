// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"
)

// mutation: brackets that count within strings, an escaped quote that ends one, or a bracket that
// does not close make a row fail.
func TestDeeper(t *testing.T) {
	for text, depth := range map[string]int{
		`1`: 0, ``: 0, `[]`: 1, `{"a":[1,{}]}`: 3, `[[],[],[]]`: 2, `{"a":{},"b":{"c":[]}}`: 3,
		`["[[["]`: 1, `{"[{":"\"[["}`: 1, `["\\",[]]`: 2, `"[`: 0, `["\`: 1,
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000): 9000,
	} {
		if Deeper([]byte(text), depth) || depth > 0 && !Deeper([]byte(text), depth-1) {
			t.Errorf("%.40s: it is %d deep", text, depth)
		}
	}
}
