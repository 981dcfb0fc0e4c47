package lifecycle

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestResolveTenant(t *testing.T) {
	label := func(v string) map[string]string { return map[string]string{v1alpha1.LabelTenant: v} }
	allow := func(v string) map[string]string { return map[string]string{v1alpha1.AnnotationAllowedTenants: v} }
	tests := map[string]struct {
		spec                string
		labels, annotations map[string]string
		want                Tenant
	}{
		"a namespace is its own tenant":              {"", nil, nil, Tenant{"team-a", true}},
		"a label names the tenant":                   {"", label("acme"), nil, Tenant{"acme", true}},
		"an empty label is none":                     {"", label(""), nil, Tenant{"team-a", true}},
		"naming the own tenant is always allowed":    {"acme", label("acme"), nil, Tenant{"acme", true}},
		"the name does not count beside a label":     {"team-a", label("acme"), nil, Tenant{"team-a", false}},
		"another tenant must be listed":              {"other", nil, nil, Tenant{"other", false}},
		"a listed one is allowed, whatever the gaps": {"other", nil, allow("x , other,y"), Tenant{"other", true}},
		"part of a listed one is not":                {"oth", nil, allow("other"), Tenant{"oth", false}},
		"an empty list allows nobody":                {"other", nil, allow(""), Tenant{"other", false}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ResolveTenant(tt.spec, "team-a", tt.labels, tt.annotations)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mutation: n instead of n-1 steps of growth, or jitter on one side only, makes this fail.
func TestBackoff(t *testing.T) {
	with := func(initial int64, factor int32, limit int64, jitter int32) v1alpha1.Backoff {
		return v1alpha1.Backoff{InitialMillis: &initial, FactorPercent: factor, MaxMillis: &limit, JitterPercent: &jitter}
	}
	tests := map[string]struct {
		backoff   v1alpha1.Backoff
		n         int32
		low, high time.Duration
	}{
		"the first wait is the initial one": {with(1000, 200, 60000, 0), 1, time.Second, time.Second},
		"it doubles":                        {with(1000, 200, 60000, 0), 4, 8 * time.Second, 8 * time.Second},
		"it is capped":                      {with(1000, 200, 60000, 0), 1000, time.Minute, time.Minute},
		"it may stay":                       {with(1000, 100, 60000, 0), 1000, time.Second, time.Second},
		"a small one grows too":             {with(1, 110, 60000, 0), 3, 3 * time.Millisecond, 3 * time.Millisecond},
		"zero stays zero":                   {with(0, 200, 60000, 100), 9, 0, 0},
		"jitter spreads to both sides":      {with(1000, 200, 60000, 20), 1, 800 * time.Millisecond, 1200 * time.Millisecond},
		"full jitter starts at zero":        {with(1000, 200, 60000, 100), 1, 0, 2 * time.Second},
		"an absent one has the defaults":    {v1alpha1.Backoff{}, 2, 1600 * time.Millisecond, 2400 * time.Millisecond},
		"absurd values are bounded":         {with(math.MaxInt64, math.MaxInt32, math.MaxInt64, math.MaxInt32), math.MaxInt32, 0, 48 * time.Hour},
		"negative values are bounded":       {with(math.MinInt64, math.MinInt32, math.MinInt64, math.MinInt32), math.MinInt32, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for attempt := range int32(2000) {
				d := backoff(tt.backoff, tt.n, job("a", attempt+1))
				least, most = min(least, d), max(most, d)
			}
			if least < tt.low || most > tt.high {
				t.Errorf("[%s, %s], want within [%s, %s]", least, most, tt.low, tt.high)
			}
			if width := tt.high - tt.low; tt.n < 10 && (least > tt.low+width/50 || most < tt.high-width/50) {
				t.Errorf("[%s, %s] does not fill [%s, %s]", least, most, tt.low, tt.high)
			}
			once := backoff(tt.backoff, tt.n, job("a", 1))
			if again := backoff(tt.backoff, tt.n, job("a", 1)); again != once {
				t.Errorf("%s, then %s", once, again)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for millis, want := range map[int64]time.Duration{
		-1: bounds.MinRetryAfter, 0: bounds.MinRetryAfter, 1500: 1500 * time.Millisecond, 3_600_000: time.Hour, 3_600_001: time.Hour, math.MaxInt64: time.Hour, math.MinInt64: bounds.MinRetryAfter,
	} {
		if got := retryAfter(millis, time.Hour); got != want {
			t.Errorf("retryAfter(%d) = %s, want %s", millis, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	raw := func(s string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(s)} }
	topic := func(s string) stepOption { return func(st *v1alpha1.Step) { st.Job.Topic = s } }
	many := make([]v1alpha1.Step, bounds.MaxSteps+1)
	for i := range many {
		many[i] = newStep(fmt.Sprint("s", i))
	}
	bulky := make([]v1alpha1.Step, 9) // each within its own bound
	for i := range bulky {
		bulky[i] = newStep(fmt.Sprint("s", i), input(`{"x":"`+strings.Repeat("x", 60<<10)+`"}`))
	}
	tests := map[string]struct {
		steps  []v1alpha1.Step
		inputs *runtime.RawExtension
		want   []string // parts of the message, each naming field and reason
	}{
		"a good one":           {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), when("true"))}},
		"no steps":             {want: []string{"spec.steps: at least one"}},
		"too many steps":       {steps: many, want: []string{"spec.steps: 201 steps, those of spec.finally included, more than 200"}},
		"duplicate names":      {steps: []v1alpha1.Step{newStep("a"), newStep("a")}, want: []string{`spec.steps[1].name: "a" is already the name of spec.steps[0]`}},
		"a bad name":           {steps: []v1alpha1.Step{newStep("A b")}, want: []string{`spec.steps[0].name: "A b"`}},
		"an unknown step":      {steps: []v1alpha1.Step{newStep("a", after("x"))}, want: []string{`spec.steps[0].dependsOn[0]: there is no step "x"`}},
		"itself":               {steps: []v1alpha1.Step{newStep("a", after("a"))}, want: []string{`spec.steps[0].dependsOn[0]: step "a" depends on itself`}},
		"twice":                {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a", "a"))}, want: []string{`spec.steps[1].dependsOn[1]: "a" is listed twice`}},
		"a cycle":              {steps: []v1alpha1.Step{newStep("z"), newStep("a", after("b")), newStep("b", after("c")), newStep("c", after("z", "a"))}, want: []string{"a -> b -> c -> a"}},
		"a bad topic":          {steps: []v1alpha1.Step{newStep("a", topic("a..b"))}, want: []string{`spec.steps[0].job.topic: "a..b"`}},
		"a wildcard topic":     {steps: []v1alpha1.Step{newStep("a", topic("a.>"))}, want: []string{`spec.steps[0].job.topic: "a.>"`}},
		"a bad condition":      {steps: []v1alpha1.Step{newStep("a", when("1 +"))}, want: []string{"spec.steps[0].when: ", "1 +"}},
		"a condition not bool": {steps: []v1alpha1.Step{newStep("a", when("'x'"))}, want: []string{"spec.steps[0].when: "}},
		"a bad template":       {steps: []v1alpha1.Step{newStep("a", input(`{"x":["${1 +}"]}`))}, want: []string{"spec.steps[0].job.input: ", "1 +"}},
		"large inputs":         {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`{"x":"` + strings.Repeat("x", bounds.MaxInputsBytes) + `"}`), want: []string{"spec.inputs: 65544 bytes, more than 65536"}},
		"a large input":        {steps: []v1alpha1.Step{newStep("a", input(`{"x":"`+strings.Repeat("x", bounds.MaxJobInputBytes)+`"}`))}, want: []string{"spec.steps[0].job.input: 65544 bytes"}},
		"inputs of no JSON":    {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`{"x":`), want: []string{"spec.inputs: not JSON"}},
		"inputs of no object":  {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`[1]`), want: []string{"spec.inputs: "}},
		"a read of no step":    {steps: []v1alpha1.Step{newStep("a", when("steps.x.output == 1"))}, want: []string{`spec.steps[0].when: there is no step "x"`}},
		"a read of itself":     {steps: []v1alpha1.Step{newStep("a", input(`{"x":"${steps.a.output}"}`))}, want: []string{"spec.steps[0].job.input: the step reads its own state"}},
		"a read of a stranger": {steps: []v1alpha1.Step{newStep("a"), newStep("b", input(`{"x":"${steps.a.output}"}`))}, want: []string{`spec.steps[1].job.input: step "a" is read but not depended on`}},
		"a read of ancestors":  {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a")), newStep("c", after("b"), input(`{"x":"${steps.a.phase}", "y":"${steps.?z}"}`))}},
		"too large altogether": {steps: bulky, want: []string{"spec: ", "more than 524288 in all"}},
		"several at once":      {steps: []v1alpha1.Step{newStep("a", after("x"), when("("))}, want: []string{"dependsOn[0]", "when"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(tt.steps...)
			run.Spec.Inputs = tt.inputs
			out := decideAt(run, epoch, held(1))
			c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if tt.want == nil {
				if c.Reason != v1alpha1.ReasonRunning {
					t.Errorf("reason %s: %s", c.Reason, c.Message)
				}
				return
			}
			if c.Reason != v1alpha1.ReasonInvalidSpec || len(out.Dispatch) > 0 {
				t.Errorf("reason %s, dispatched %d", c.Reason, len(out.Dispatch))
			}
			for _, part := range tt.want {
				if !strings.Contains(c.Message, part) {
					t.Errorf("message %q does not name %q", c.Message, part)
				}
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	steps := make([]v1alpha1.StepStatus, bounds.MaxSteps)
	for i := range steps {
		steps[i] = v1alpha1.StepStatus{Name: fmt.Sprintf("%040d", i), Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: bounds.Micro(epoch)}
	}
	text := stateText(steps, nothingMore)
	if len(text) > bounds.MaxMessageChars || !strings.HasSuffix(text, " more") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	var problems []string
	for i := range 500 {
		problems = append(problems, fmt.Sprintf("spec.steps[%d]: %s", i, strings.Repeat("ü", i)))
	}
	if text := problemsText(problems); len([]rune(text)) > bounds.MaxProblemsChars || !strings.Contains(text, " more") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	if text := bounds.CutBytes(strings.Repeat("…", 2*bounds.MaxMessageChars), bounds.MaxEventBytes); len(text) > bounds.MaxEventBytes || len(text) < bounds.MaxEventBytes-3 || !utf8.ValidString(text) {
		t.Errorf("an event of %d bytes: %s", len(text), text)
	}
	for _, s := range []string{"", "abc", "<é\u2028>", strings.Repeat("<é", 20)} {
		for n := range 40 {
			got := bounds.CutStored(s, n)
			if !strings.HasPrefix(s, got) || (got != "" && bounds.StoredBytes(got) > n) || (got != s && bounds.StoredBytes(s) <= n) {
				t.Errorf("cutStored(%q, %d) = %q", s, n, got)
			}
		}
	}
	for in, want := range map[string]string{"abc": "abc", "äöüß": "äö…", "a\xffb": "a?b", "\xff\xff\xff\xff\xffx": "?x"} {
		if got := bounds.Cut(in, 3); got != want {
			t.Errorf("cut(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1.0,"a":[1e2,-0.0]}`: `{"a":[100,0],"b":1}`, `"<"`: `"\u003c"`, `9007199254740993`: `9007199254740993`, `null`: `null`,
		`12345678901234567890`: `12345678901234567000`,
	} {
		got, err := bounds.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("canonicalJSON(%s) = %s, %v; want %s", in, got, err, want)
		}
		if n := bounds.StoredBytes(want); n < len(mustJSON(t, want)) {
			t.Errorf("storedBytes(%q) = %d, but it takes %d", want, n, len(mustJSON(t, want)))
		}
	}
	if _, err := bounds.Canonical([]byte(`{"a":`)); err == nil {
		t.Error("no error for what is no JSON")
	}
}
