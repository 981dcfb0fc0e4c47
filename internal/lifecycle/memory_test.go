// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// What the decisions of one pass about an output of 8 MiB may allocate in all, so their peak is
// below that. The bytes themselves are not counted, for the shell reads them. An output of an item
// is decided on three times, and is copied: as it is kept, and into the list. One that becomes too
// large as it is kept is not kept.
const (
	mostRead    = 64 << 20
	mostTaken   = 320 << 20
	mostRefused = 64 << 20
)

// smallValues are JSON lists of nearly 8 MiB that decode to much more.
func smallValues() map[string]string {
	full := func(element string) string {
		n := (protocol.MaxPayloadBytes - 2 - 256<<10) / (len(element) + 1)
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	return map[string]string{
		"objects with a key": full(`{"a":1}`),
		"empty objects":      full(`{}`),
		"objects in a list":  full(`[{"":{}}]`),
		"numbers":            full(`1`),
		"large exponents":    full(`1e+300`),
		"many digits":        full(`1e20`),
		"less-than signs":    `"` + strings.Repeat("<", protocol.MaxPayloadBytes-2-256<<10) + `"`,
		"deep nesting":       full(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)),
	}
}

// allocated is what f allocates, in bytes.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Mutation that this finds: document.Parse in view.output replaced by decodeJSON (1.2 GB for
// objects with a key).
func TestAnOutputOfManySmallValuesIsReadInBoundedMemory(t *testing.T) {
	for name, output := range smallValues() {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("first"), newStep("then", after("first"),
				when("size(steps.first.output) > 1"), input(`{"n":"${size(steps.first.output)}"}`)))
			store := objects{}
			store.advance(t, run, epoch)
			r := store.put("first", 1, output)
			var out Decision
			n := allocated(func() { out = store.advance(t, run, epoch, r) })
			t.Logf("%d KiB allocated", n>>10)
			if len(out.Dispatch) != 1 || !strings.HasPrefix(string(out.Dispatch[0].Input), `{"n":`) {
				t.Fatalf("dispatched %v, steps %+v", out.Dispatch, run.Status.Steps)
			}
			if n > mostRead {
				t.Errorf("a decision that reads an output of %d bytes allocates %d bytes, more than %d", len(output), n, mostRead)
			}
		})
	}
}

// Mutation that this finds: view.output that decodes what nobody reads.
func TestAnOutputThatIsHandedOnIsNotDecoded(t *testing.T) {
	run := newRun(newStep("first"), newStep("then", after("first"), when("steps.first.outputRef != null"), input(`{"ref":"${steps.first.outputRef}"}`)))
	store := objects{}
	store.advance(t, run, epoch)
	r := store.put("first", 1, smallValues()["objects with a key"])
	var out Decision
	n := allocated(func() { out = store.advance(t, run, epoch, r) })
	if len(out.Dispatch) != 1 || !strings.Contains(string(out.Dispatch[0].Input), `"digest"`) {
		t.Fatalf("dispatched %v, steps %+v", out.Dispatch, run.Status.Steps)
	}
	if n > protocol.MaxPayloadBytes/2 {
		t.Errorf("%d bytes allocated", n)
	}
}

// Mutations that this finds: bounds.PlainOf by decodeJSON and json.Marshal; one without its bound,
// or with < as six bytes.
func TestAnOutputOfAnItemIsTakenInBoundedMemory(t *testing.T) {
	all := smallValues()
	for name, c := range map[string]struct {
		phase v1alpha1.RunPhase
		most  uint64
	}{
		"objects with a key": {v1alpha1.RunSucceeded, mostTaken}, "numbers": {v1alpha1.RunSucceeded, mostTaken},
		"less-than signs": {v1alpha1.RunSucceeded, mostTaken}, "many digits": {v1alpha1.RunFailed, mostRefused},
	} {
		output := all[name]
		t.Run(name, func(t *testing.T) {
			run := fanOut(2, 2, v1alpha1.FailStep)
			store := objects{}
			store.advance(t, run, epoch)
			one, two := store.putItem("all", 0, output), ofItem(1, result("all", 1, protocol.StatusSucceeded))
			var out Decision
			n := allocated(func() { out = store.advance(t, run, epoch, one, two) })
			t.Logf("%d KiB allocated", n>>10)
			if out.Status.Phase != c.phase {
				t.Fatalf("the run is %s: %+v", out.Status.Phase, out.Status.Steps)
			}
			if n > c.most {
				t.Errorf("a decision that takes an output of %d bytes allocates %d bytes, more than %d", len(output), n, c.most)
			}
		})
	}
}

// Mutation that this finds: itemsOf counts a value as one byte.
func TestAListIsBoundedByWhatItTakesInMemory(t *testing.T) {
	run := newRun(newStep("first"), newStep("each", after("first"), func(s *v1alpha1.Step) {
		s.ForEach = &v1alpha1.ForEach{Items: "${steps.first.output}", MaxParallel: 1}
	}))
	store := objects{}
	store.advance(t, run, epoch)
	small := "[" + strings.TrimSuffix(strings.Repeat(`{"":0},`, 20_000), ",") + "]"
	r := store.put("first", 1, fmt.Sprintf("[%s]", strings.TrimSuffix(strings.Repeat(small+",", 50), ",")))
	var out Decision
	n := allocated(func() { out = store.advance(t, run, epoch, r) })
	t.Logf("%d KiB allocated", n>>10)
	if n > mostRead {
		t.Errorf("a list of small objects allocates %d bytes, more than %d", n, mostRead)
	}
	if e := out.Status.Steps[1].Error; e == nil || e.Code != facts.CodeInputTooLarge {
		t.Errorf("the step's error is %+v, want %s", e, facts.CodeInputTooLarge)
	}
}
