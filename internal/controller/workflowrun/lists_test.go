// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// listOf are lists of a run that take so many bytes, and some.
func listOf(bytes int) map[string][]any { return map[string][]any{"all": {strings.Repeat("x", bytes)}} }

// known is how many of the first n runs of a name have lists.
func (l *lists) known(name string, n int) (known int) {
	for i := range n {
		if l.of(types.UID(fmt.Sprint(name, i))) != nil {
			known++
		}
	}
	return known
}

// mutations: lists of other runs kept beyond the bound, or bytes not given back, make this fail.
func TestListsAreForgottenWhenThereAreTooMany(t *testing.T) {
	l := &lists{}
	for i := range 20 {
		l.keep("team", types.UID(fmt.Sprint(i)), listOf(10<<20))
		if l.bytes > maxListBytes {
			t.Fatalf("%d bytes", l.bytes)
		}
	}
	if n := len(l.byRun); n != 6 {
		t.Errorf("%d runs", n)
	}
	l.keep("another", "20", listOf(maxListBytes))
	if l.of("20") != nil || len(l.byRun) != 6 {
		t.Errorf("what is too large was kept, or others were forgotten for it: %d runs", len(l.byRun))
	}
	for uid := range l.byRun {
		l.forget(uid)
	}
	if l.bytes != 0 || len(l.byRun) != 0 || len(l.bySize) != 0 {
		t.Errorf("%d bytes of %d runs in %d namespaces are left", l.bytes, len(l.byRun), len(l.bySize))
	}
	again := map[string][]any{"all": {map[string]any{"a": []any{1, "b"}}}}
	l.keep("team", "x", again)
	before := l.bytes
	l.keep("team", "x", map[string][]any{"all": again["all"]})
	if l.bytes != before || before == 0 {
		t.Errorf("%d bytes, then %d", before, l.bytes)
	}
}

// The lists of others are known however large those of one namespace are, and in which order the
// runs are decided about: whose list is not known may need a desk for each of its results.
//
// mutations: makeRoom that takes from any run, or from whoever has less; that takes for what finds
// no room all the same; no share by namespace.
func TestLargeListsOfANamespaceTakeNoRoomOfOthers(t *testing.T) {
	for name, large := range map[string][]string{
		"of one namespace":      {"hog", "hog", "hog", "hog", "hog", "hog"},
		"of a namespace each":   {"hog-0", "hog-1", "hog-2", "hog-3", "hog-4", "hog-5"},
		"of that of the others": {"team", "team", "team", "team", "team", "team"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lists{}
			before := 0
			for round := range 20 {
				for i, namespace := range large {
					l.keep(namespace, types.UID(fmt.Sprint("large-", i)), listOf(15<<20))
				}
				if known := l.known("tiny-", 200); round > 0 && known != 200 {
					t.Fatalf("round %d: of 200 tiny lists %d are known", round, known)
				}
				for i := range 200 {
					l.keep("team", types.UID(fmt.Sprint("tiny-", i)), map[string][]any{"all": {i}})
				}
				known := l.known("large-", len(large))
				if l.bytes > maxListBytes || known < 3 || round > 1 && known != before {
					t.Fatalf("round %d: %d bytes, %d large lists, %d before", round, l.bytes, known, before)
				}
				before = known
			}
		})
	}
}

// A namespace is sure of its part, and of more only where nobody wants it. Who came first keeps no
// more than that.
//
// mutations: makeRoom that never takes from others, or that goes on when it has enough.
func TestNamespacesShareTheRoomForLists(t *testing.T) {
	l := &lists{}
	for i := range 6 {
		l.keep("first", types.UID(fmt.Sprint("first-", i)), listOf(10<<20))
	}
	if got := len(l.byRun); got != 6 {
		t.Fatalf("alone it has %d", got)
	}
	for range 3 {
		for i := range 6 {
			l.keep("second", types.UID(fmt.Sprint("second-", i)), listOf(10<<20))
			l.keep("first", types.UID(fmt.Sprint("first-", i)), listOf(10<<20))
		}
		if first, second := l.known("first-", 6), l.known("second-", 6); first != 3 || second != 3 {
			t.Errorf("%d and %d of 6", first, second)
		}
	}
	l.keep("second", "small", listOf(6<<20)) // smaller than what its namespace has
	if l.of("small") == nil || l.known("first-", 6) != 3 {
		t.Errorf("%d and %d, and the small one: %t", l.known("first-", 6), l.known("second-", 6), l.of("small") != nil)
	}
	l.keep("second", "another", listOf(20<<20)) // for which others would have to give all that they have
	if l.of("another") != nil || l.known("first-", 6) != 3 {
		t.Error("who has as much as others takes from them")
	}
}
