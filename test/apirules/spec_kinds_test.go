// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"fmt"
	"strings"
	"testing"
)

// kinds is a step with these fields beside its name.
func kinds(fields string) string { return aRunOf(step("name: a, " + fields)) }

// finally is a run with these steps in its finally list.
func finally(steps string) string { return aRun("  finally: [" + steps + "]") }

func nFinally(n int) string {
	var steps []string
	for i := range n {
		steps = append(steps, fmt.Sprintf("{name: f-%d, job: {topic: t}}", i))
	}
	return finally(strings.Join(steps, ", "))
}

// Mutation: any rule on kinds of steps, of finally steps or of delays made always true lets its
// cases through; exists instead of exists_one lets the steps of two kinds through; an optional
// field without bounds its last case.
func TestKindsOfSteps(t *testing.T) {
	const (
		job       = "job: {topic: t}"
		oneOf     = "each step needs exactly one of job, approval, delay and run"
		finallyOf = "each finally step needs exactly one of job and delay"
		delayOf   = "a delay needs exactly one of seconds and until"
	)
	for name, c := range map[string]struct {
		manifest string
		refused  []string // words of the refusal; none: accepted
	}{
		"a job":                           {kinds(job), nil},
		"an approval":                     {kinds("approval: {}"), nil},
		"an approval with all fields":     {kinds("approval: {message: 'Publish?', timeoutSeconds: 60, onTimeout: Approve}"), nil},
		"a delay":                         {kinds("delay: {seconds: 1}"), nil},
		"a delay until a time":            {kinds(`delay: {until: "2026-11-20T10:00:00Z"}`), nil},
		"a step of no kind":               {aRunOf(step("name: a")), []string{"spec.steps", oneOf}},
		"a job and an approval":           {kinds(job + ", approval: {}"), []string{"spec.steps", oneOf}},
		"a job and a delay":               {kinds(job + ", delay: {seconds: 1}"), []string{"spec.steps", oneOf}},
		"an approval and a delay":         {kinds("approval: {}, delay: {seconds: 1}"), []string{"spec.steps", oneOf}},
		"a child run":                     {kinds("run: {spec: {steps: [{name: x, nothing: known, job: {topic: t}}]}}"), nil},
		"a child run with inputs":         {kinds("run: {inputs: {a: '${inputs.a}'}, spec: {}}"), nil},
		"a child run without a spec":      {kinds("run: {}"), []string{"spec.steps[0].run.spec: Required value"}},
		"a child run of a list":           {kinds("run: {spec: []}"), []string{"spec.steps[0].run.spec", "must be of type object"}},
		"a child run given a list":        {kinds("run: {inputs: [], spec: {}}"), []string{"spec.steps[0].run.inputs", "must be of type object"}},
		"a job and a child run":           {kinds(job + ", run: {spec: {}}"), []string{"spec.steps", oneOf}},
		"a finally child run":             {finally("{name: f, run: {spec: {}}}"), []string{"spec.finally", finallyOf}},
		"a finally job and child run":     {finally("{name: f, " + job + ", run: {spec: {}}}"), []string{"spec.finally", finallyOf}},
		"a step of all kinds":             {kinds(job + ", approval: {}, delay: {seconds: 1}"), []string{"spec.steps", oneOf}},
		"the second step of no kind":      {aRunOf("  steps: [{name: a, " + job + "}, {name: b}]"), []string{"spec.steps", oneOf}},
		"a delay of no time":              {kinds("delay: {}"), []string{"spec.steps[0].delay", delayOf}},
		"a delay of two times":            {kinds(`delay: {seconds: 1, until: "2026-11-20T10:00:00Z"}`), []string{"spec.steps[0].delay", delayOf}},
		"a delay of 0 seconds":            {kinds("delay: {seconds: 0}"), []string{"spec.steps[0].delay.seconds", "greater than or equal to 1"}},
		"a delay of more than a year":     {kinds("delay: {seconds: 31536001}"), []string{"spec.steps[0].delay.seconds", "less than or equal to 31536000"}},
		"a delay until soon":              {kinds("delay: {until: soon}"), []string{"spec.steps[0].delay.until", "date-time"}},
		"an approval within 0 seconds":    {kinds("approval: {timeoutSeconds: 0}"), []string{"spec.steps[0].approval.timeoutSeconds"}},
		"an approval that nobody decides": {kinds("approval: {onTimeout: Skip}"), []string{"spec.steps[0].approval.onTimeout", `supported values: "Approve", "Reject"`}},
		"an empty question":               {kinds(`approval: {message: ""}`), []string{"spec.steps[0].approval.message"}},
		"a question of 1025 characters":   {kinds("approval: {message: " + strings.Repeat("a", 1025) + "}"), []string{"spec.steps[0].approval.message: Too long"}},
		"a step that may fail":            {kinds("onFailure: Continue, " + job), nil},
		"an unknown answer to failure":    {kinds("onFailure: Retry, " + job), []string{"spec.steps[0].onFailure", `supported values: "FailRun", "Continue"`}},
		"retries after some codes":        {kinds(`retry: {onCodes: [Timeout, Busy]}, ` + job), nil},
		"retries after 21 codes":          {kinds(`retry: {onCodes: [` + strings.Repeat("a,", 20) + "a]}, " + job), []string{"spec.steps[0].retry.onCodes: Too many"}},
		"retries after a code of nothing": {kinds(`retry: {onCodes: [""]}, ` + job), []string{"spec.steps[0].retry.onCodes[0]"}},
		"a finally job":                   {finally("{name: f, " + job + "}"), nil},
		"a finally delay":                 {finally("{name: f, delay: {seconds: 1}}"), nil},
		"an empty list of finally steps":  {finally(""), nil},
		"20 finally steps":                {nFinally(20), nil},
		"21 finally steps":                {nFinally(21), []string{"spec.finally: Too many: 21: must have at most 20 items"}},
		"a finally approval":              {finally("{name: f, approval: {}}"), []string{"spec.finally", finallyOf}},
		"a finally step of no kind":       {finally("{name: f}"), []string{"spec.finally", finallyOf}},
		"a finally job and approval":      {finally("{name: f, " + job + ", approval: {}}"), []string{"spec.finally", finallyOf}},
		"a finally job and delay":         {finally("{name: f, " + job + ", delay: {seconds: 1}}"), []string{"spec.finally", finallyOf}},
		"a finally delay of two times":    {finally(`{name: f, delay: {seconds: 1, until: "2026-11-20T10:00:00Z"}}`), []string{"spec.finally[0].delay", delayOf}},
		"0 seconds for the finally steps": {aRun("  finallyTimeoutSeconds: 0"), []string{"spec.finallyTimeoutSeconds"}},
		"outputs":                         {aRun("  outputs: {a: '${steps.a.output}'}"), nil},
		"outputs that are a list":         {aRun("  outputs: [1]"), []string{"spec.outputs", "must be of type object"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(t, c.manifest)
			wantRefused(t, err, c.refused...)
		})
	}
}
