// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// TestGoldenStories plays the files of testdata/stories; docs/testing.md says how to write one.
// -rewrite writes what happens into the files.
func TestGoldenStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		p := &player{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := p.command(t, d)
			if err != nil {
				d.Fatalf(t, "%s: %v", d.Cmd, err)
			}
			return out
		})
	})
}

// player plays the commands of one file.
type player struct {
	*story           // nil before the command run
	results []Result // since the last decision
}

// command plays one command, and returns what the file has below it.
func (p *player) command(t *testing.T, d *datadriven.TestData) (string, error) {
	switch {
	case d.Cmd == "run":
		return "", p.begin(t, d)
	case d.Cmd != "decide":
		return "", fmt.Errorf("unknown command, want run or decide")
	case len(d.CmdArgs) > 0:
		return "", fmt.Errorf("takes no argument %q: the facts are below it, one on a line", d.CmdArgs[0].Key)
	case p.story == nil:
		return "", fmt.Errorf("there is no run yet")
	}
	for i, line := range strings.Split(d.Input, "\n") {
		if err := p.play(line); err != nil {
			return "", fmt.Errorf("line %d below, %q: %w", i+1, line, err)
		}
	}
	p.decide(0, "", p.results...)
	text := p.out.String()
	p.out.Reset()
	p.results = nil
	return strings.TrimRight(text, "\n"), nil
}

// begin makes the run whose spec is the command's input.
func (p *player) begin(t *testing.T, d *datadriven.TestData) error {
	if p.story != nil {
		return fmt.Errorf("a story has one run")
	}
	run := newRun()
	for _, arg := range d.CmdArgs {
		if arg.Key != "child" || len(arg.Vals) > 0 {
			return fmt.Errorf("unknown argument %q, want child", arg.String())
		}
		run = ownedRun()
	}
	if err := yaml.UnmarshalStrict([]byte(d.Input), &run.Spec); err != nil {
		return err
	}
	withDefaults(run.Spec.Steps)
	withDefaults(run.Spec.Finally)
	p.story = newStory(t, run)
	if len(d.CmdArgs) > 0 {
		p.seeing(aParent())
	}
	return nil
}

// withDefaults gives steps the defaults of the schema.
func withDefaults(steps []v1alpha1.Step) {
	for i := range steps {
		s, schema := &steps[i], newStep("")
		setDefault(&s.TimeoutSeconds, schema.TimeoutSeconds)
		setDefault(&s.StartTimeoutSeconds, schema.StartTimeoutSeconds)
		setDefault(&s.Retry.MaxFailures, schema.Retry.MaxFailures)
		if s.Approval != nil {
			setDefault(&s.Approval.OnTimeout, v1alpha1.Reject)
		}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// play plays one fact of the command decide.
func (p *player) play(line string) error {
	if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	f, err := parseFact(line)
	if err != nil {
		return err
	}
	k, ok := factKinds[f.kind]
	if !ok {
		return fmt.Errorf("unknown fact %q, want one of %s", f.kind, factNames())
	}
	if err := k.check(f); err != nil {
		return err
	}
	return k.play(p, f)
}

// mutation: a check of the player, of parseFact or of factKind that is left out makes this fail.
func TestAWrongStorySaysWhatIsWrong(t *testing.T) {
	const good = "steps: [{name: a, job: {topic: t.a}}]"
	for name, c := range map[string]struct {
		command, input string
		want           string
	}{
		"an unknown command":           {"decided", "", "unknown command, want run or decide"},
		"facts beside the command":     {"decide advance=1s", "", `takes no argument "advance"`},
		"a second run":                 {"run", good, "a story has one run"},
		"an unknown fact":              {"decide", "advance 1s\nstrated step=a", `line 2 below, "strated step=a": unknown fact "strated", want one of advance, `},
		"an unknown word":              {"decide", "lock hold", `unknown word "hold", want one of: held busy`},
		"an unknown key":               {"decide", "started steps=a", `unknown key "steps", want of: step item`},
		"a key that is missing":        {"decide", "started attempt=1", "step= is missing"},
		"a key that is there twice":    {"decide", "started step=a step=b", "step= is there twice"},
		"a text that does not end":     {"decide", `failed step=a message="no`, "message: invalid syntax"},
		"an output that is not JSON":   {"decide", "succeeded step=a output=done", "output=done is not JSON"},
		"an output that does not end":  {"decide", `succeeded step=a output={"x":`, "output: unexpected EOF"},
		"a number that is none":        {"decide", "started step=a attempt=one", "attempt=one is not a number"},
		"an item that is no number":    {"decide", "started step=a item=one", "item=one is not a number"},
		"a fence that is no number":    {"decide", "lock held fence=one", "fence=one is not a number"},
		"a lock without a state":       {"decide", "lock renewed", "want held, busy or unavailable first"},
		"a time that is none":          {"decide", "lock held unlocked=noon", "cannot parse"},
		"a duration that is none":      {"decide", "advance 30", "missing unit in duration"},
		"no duration":                  {"decide", "advance", "want one duration, as 30s"},
		"a wait that is no duration":   {"decide", "retry step=a after=soon", "invalid duration"},
		"a child where there is none":  {"decide", "child step=a there uid=u", "step a has no child run under way"},
		"a child that does not say":    {"decide", "child step=a", "want one of there, postponed"},
		"a parent where there is none": {"decide", "parent named", "the run is no child"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{}
			if _, err := p.command(t, directive(t, "run", good)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.command(t, directive(t, c.command, c.input)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	for name, c := range map[string]struct{ command, input, want string }{
		"no run yet":         {"decide", "", "there is no run yet"},
		"an unknown field":   {"run", "step: []", `unknown field "step"`},
		"no YAML":            {"run", "steps: [", "yaml: line 1"},
		"a field twice":      {"run", "suspend: true\nsuspend: true", "already set"},
		"a wrong argument":   {"run parent", good, `unknown argument "parent", want child`},
		"a wrong type":       {"run", "steps: 3", "cannot unmarshal number"},
		"a child of a value": {"run child=boss", good, `unknown argument "child=boss", want child`},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{}
			if _, err := p.command(t, directive(t, c.command, c.input)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func directive(t *testing.T, line, input string) *datadriven.TestData {
	t.Helper()
	command, args, err := datadriven.ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	return &datadriven.TestData{Cmd: command, CmdArgs: args, Input: input}
}
