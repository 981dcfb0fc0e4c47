// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A spec has room for hundreds of expressions that each take milliseconds to compile.
//
// mutation: a meter that does not stop, that goes on where a pause ends it, that does not pause,
// or that counts an expression less when it is compiled already; costOf without the nodes: macros
// are written out.
func TestAMeterBoundsWhatIsCompiled(t *testing.T) {
	var list []string
	for i := range 20 {
		list = append(list, fmt.Sprintf(`"${[%d].map(x, x).map(x, x).size() + %d}"`, i, i))
	}
	raw := []byte("[" + strings.Join(list, ",") + "]")
	pauses := 0
	all := &Meter{Pause: func() bool { pauses++; return true }}
	if _, err := TemplateSteps(raw, Metered(all)); err != nil || pauses != 20 || all.took < 20*1000 || all.took > 20*5000 {
		t.Fatalf("%v, %d pauses, %d units", err, pauses, all.took)
	}
	again := &Meter{Most: all.took}
	if _, err := TemplateOutputs(raw, Metered(again)); err != nil || again.took != all.took {
		t.Errorf("%v, %d units when all are compiled", err, again.took)
	}
	part := &Meter{Most: all.took / 2}
	if _, err := TemplateSteps(raw, Metered(part)); !errors.Is(err, ErrUnread) || part.took > all.took*6/10 {
		t.Errorf("%v after %d units of %d", err, part.took, all.took)
	}
	pauses = 0
	ends := &Meter{Pause: func() bool { pauses++; return pauses < 5 }}
	if _, err := TemplateSteps(raw, Metered(ends)); !errors.Is(err, ErrUnread) || pauses != 5 {
		t.Errorf("%v after %d expressions", err, pauses)
	}
	if _, err := ConditionSteps("true", Metered(ends)); !errors.Is(err, ErrUnread) || pauses != 5 {
		t.Errorf("another one: %v after %d expressions", err, pauses)
	}
	for name, f := range map[string]func(Option) error{
		"a condition":               func(o Option) error { _, err := ConditionSteps("true", o); return err },
		"what a condition reads":    func(o Option) error { _, err := ConditionOutputs("true", o); return err },
		"a list":                    func(o Option) error { _, err := ListSteps("${[1]}", o); return err },
		"what a list reads":         func(o Option) error { _, err := ListOutputs("${[1]}", o); return err },
		"what is no expression":     func(o Option) error { _, err := ConditionSteps("1 +", o); return err },
		"what is not worth a pause": func(o Option) error { _, err := TemplateSteps([]byte(`{"a":"${1}"}`), o); return err },
	} {
		if err := f(Metered(&Meter{Most: 1})); !errors.Is(err, ErrUnread) {
			t.Errorf("%s: %v", name, err)
		}
		if err := f(Metered(nil)); errors.Is(err, ErrUnread) {
			t.Errorf("%s without a meter: %v", name, err)
		}
	}
}

// mutations: again that counts each time, and a compile that does not note what it counted.
func TestAMeterCountsAnExpressionOnce(t *testing.T) {
	const src, place = "[4711].map(x, x).size() == 1", `"${[4711].map(x, x).size() == 1}"`
	pauses := 0
	m := &Meter{Once: true, Pause: func() bool { pauses++; return true }}
	if _, err := ConditionSteps(src, Metered(m)); err != nil {
		t.Fatal(err)
	}
	took := m.took
	if _, err := TemplateSteps([]byte("["+place+","+place+"]"), Metered(m)); err != nil || m.took != took || pauses != 1 {
		t.Errorf("%v, %d units, and %d for the first one, with %d pauses", err, m.took, took, pauses)
	}
	if _, err := TemplateSteps([]byte(place), WithItem, Metered(m)); err != nil || m.took != 2*took {
		t.Errorf("%v, %d units in another environment, and %d in the first one", err, m.took-took, took)
	}
}
