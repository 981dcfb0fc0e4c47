// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"
	"testing"
)

// made compiles an expression that is in no cache.
func made(t *testing.T, c *compiler, text string) *program {
	t.Helper()
	p, err := c.make(source{text: text}, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func newTestCompiler(t *testing.T) *compiler {
	t.Helper()
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is compiled takes up to 90 times its text, by what it took to compile it.
//
// mutations: put without maxWeight, or that counts what is there twice.
func TestCompiledExpressionsAreBoundedByWhatTheyTake(t *testing.T) {
	c := newTestCompiler(t)
	p := made(t, c, "inputs.x"+strings.Repeat("+inputs.y", 100))
	of := &c.classes[classes-1]
	for i := range 1000 {
		src := source{text: fmt.Sprint(i)}
		c.keep(src, p)
		c.keep(src, p)
		if of.weight != len(of.programs)*p.weight() || of.weight+len(of.before)*p.weight() > maxWeight || c.cached(src) == nil {
			t.Fatalf("%d expressions of %d are kept, %d counted, beside %d", len(of.programs), p.weight(), of.weight, len(of.before))
		}
	}
}

// Somebody who has thousands of expressions compiled takes away the room, and not those that others
// use all the time.
//
// mutation: put that forgets everything when there is no room; get that leaves what it finds
// among the older ones.
func TestAFloodOfExpressionsLeavesThoseThatAreUsed(t *testing.T) {
	c := newTestCompiler(t)
	p := made(t, c, "1")
	used := source{text: "used"}
	c.keep(used, p)
	for i := range 5 * maxCached {
		c.keep(source{text: fmt.Sprint(i)}, p)
		if i%100 == 0 && c.cached(used) == nil {
			t.Fatalf("it is gone after %d others", i)
		}
		if n := len(c.classes[0].programs) + len(c.classes[0].before); n > maxCached {
			t.Fatalf("%d are kept", n)
		}
	}
	if c.cached(source{text: "0"}) != nil {
		t.Error("nothing is ever forgotten")
	}
}

// Long texts that are compiled in no time have none forgotten that took long, also where they read
// a variable and are used again, and those that are used now and then stay.
//
// mutations: one class for all; a weight that counts characters; put that counts bytes of text.
func TestAFloodOfLongTextsLeavesWhatTookLonger(t *testing.T) {
	for name, flood := range map[string]string{
		"constants": "'%08d" + strings.Repeat("x", 980) + "'",
		"variables": "inputs.x == '%08d" + strings.Repeat("x", 970) + "'",
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCompiler(t)
			var others []*program
			for i := range 100 {
				others = append(others, made(t, c, fmt.Sprintf("steps.fetch.output.status == %d && inputs.region in ['eu', 'us']", i)))
				c.keep(others[i].source, others[i])
			}
			used := made(t, c, "inputs.count")
			c.keep(used.source, used)
			p := made(t, c, fmt.Sprintf(flood, 0))
			for i := range 3 * maxCached {
				next := *p
				next.text = fmt.Sprintf(flood, i)
				c.keep(next.source, &next)
				if c.cached(next.source) == nil {
					t.Fatal("it is not known when it is used again")
				}
				if i%400 == 0 && c.cached(used.source) == nil {
					t.Fatalf("what is used is gone after %d others", i)
				}
			}
			for _, other := range others {
				if c.cached(other.source) == nil {
					t.Fatalf("%s is gone; it took %d, one of the others %d", other.text, other.weight(), p.weight())
				}
			}
		})
	}
}
