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
	p, err := c.make(source{text: "1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		src := source{text: fmt.Sprintf("%d%s", i, strings.Repeat("+1", 500))}
		c.keep(src, p)
		c.keep(src, p)
		kept, before := 0, 0
		for s := range c.programs {
			kept += len(s.text)
		}
		for s := range c.before {
			before += len(s.text)
		}
		if kept != c.text || kept+before > maxCachedText || c.cached(src) == nil {
			t.Fatalf("%d expressions with %d bytes of text are kept, %d counted, beside %d bytes", len(c.programs), kept, c.text, before)
		}
	}
}

// Somebody who has thousands of expressions compiled takes away the room, and not those that others
// use all the time.
//
// mutation: put that forgets everything when there is no room; cached that leaves what it finds
// among the older ones.
func TestAFloodOfExpressionsLeavesThoseThatAreUsed(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.make(source{text: "1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	used := source{text: "used"}
	c.keep(used, p)
	for i := range 5 * maxCached {
		c.keep(source{text: fmt.Sprint(i)}, p)
		if i%100 == 0 && c.cached(used) == nil {
			t.Fatalf("it is gone after %d others", i)
		}
		if n := len(c.programs) + len(c.before); n > maxCached {
			t.Fatalf("%d are kept", n)
		}
	}
	if c.cached(source{text: "0"}) != nil {
		t.Error("nothing is ever forgotten")
	}
}
