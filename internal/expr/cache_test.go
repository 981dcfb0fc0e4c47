// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"
	"testing"
)

// What is compiled takes some 90 times its text, so the cache is bounded by that: 2,048 expressions
// of 1,024 characters would take 180 MiB.
//
// Mutation that this finds: keep without maxCachedText.
func TestCompiledExpressionsAreBoundedByTheirText(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.make(source{text: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		src := source{text: fmt.Sprintf("%d%s", i, strings.Repeat("+1", 500))}
		c.keep(src, p)
		c.keep(src, p)
		kept := 0
		for s := range c.programs {
			kept += len(s.text)
		}
		if kept != c.text || kept > maxCachedText || c.cached(src) == nil {
			t.Fatalf("%d expressions with %d bytes of text are kept, %d counted", len(c.programs), kept, c.text)
		}
	}
}
