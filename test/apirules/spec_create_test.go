// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"fmt"
	"strings"
	"testing"
)

func nSteps(n int) string {
	var b strings.Builder
	b.WriteString("  steps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: s-%d, job: {topic: t}}\n", i)
	}
	return b.String()
}

func step(fields string) string { return "  steps: [{" + fields + "}]" }

// Mutation: the rule on unique names, or has(self.steps), made always true lets its case through.
func TestSpecAtCreate(t *testing.T) {
	const topic = "job: {topic: t}"
	for name, c := range map[string]struct {
		manifest string
		refused  []string // words of the refusal; none: accepted
	}{
		"a run without steps":            {aRunOf(), []string{"exactly one source of steps is needed: set spec.steps or spec.workflowRef"}},
		"a run of a workflow":            {aRunOf("  workflowRef: {name: w}", "  inputs: {a: 1}"), nil},
		"a run of a workflow and steps":  {aRun("  workflowRef: {name: w}"), []string{"exactly one source of steps is needed"}},
		"a workflow without a name":      {aRunOf("  workflowRef: {revision: abc}"), []string{"spec.workflowRef.name"}},
		"a workflow and outputs":         {aRunOf("  workflowRef: {name: w}", "  outputs: {a: 1}"), []string{"are those of the Workflow"}},
		"a workflow and a deadline":      {aRunOf("  workflowRef: {name: w}", "  activeDeadlineSeconds: 3"), []string{"are those of the Workflow"}},
		"a workflow and a width":         {aRunOf("  workflowRef: {name: w}", "  maxParallelSteps: 3"), []string{"are those of the Workflow"}},
		"an empty list of steps":         {aRunOf("  steps: []"), []string{"spec.steps", "should have at least 1 items"}},
		"200 steps":                      {aRunOf(nSteps(200)), nil},
		"201 steps":                      {aRunOf(nSteps(201)), []string{"spec.steps: Too many: 201: must have at most 200 items"}},
		"two steps of one name":          {aRunOf("  steps: [{name: a, job: {topic: t}}, {name: b, job: {topic: t}}, {name: a, job: {topic: t}}]"), []string{"spec.steps", "step names must be unique"}},
		"a step without a name":          {aRunOf(step(topic)), []string{"spec.steps[0].name: Required value"}},
		"a step with an empty name":      {aRunOf(step(`name: "", ` + topic)), []string{"spec.steps[0].name"}},
		"a step name with upper case":    {aRunOf(step("name: Fetch, " + topic)), []string{"spec.steps[0].name", "^[a-z0-9-]+$"}},
		"a step name with a dot":         {aRunOf(step("name: a.b, " + topic)), []string{"spec.steps[0].name", "^[a-z0-9-]+$"}},
		"a start from another run":       {aRun("  startFrom: {run: a.b-1, uid: u}"), nil},
		"a start from a path":            {aRun("  startFrom: {run: a/b, uid: u}"), []string{"spec.startFrom.run", `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`}},
		"a step name of 40 characters":   {aRunOf(step("name: " + strings.Repeat("a", 40) + ", " + topic)), nil},
		"a step name of 41 characters":   {aRunOf(step("name: " + strings.Repeat("a", 41) + ", " + topic)), []string{"spec.steps[0].name: Too long"}},
		"a job without a topic":          {aRunOf(step("name: a, job: {}")), []string{"spec.steps[0].job.topic: Required value"}},
		"a topic of words and dots":      {aRunOf(step("name: a, job: {topic: llm.summarize-2.x}")), nil},
		"a topic with a wildcard":        {aRunOf(step(`name: a, job: {topic: "llm.*"}`)), []string{"spec.steps[0].job.topic", `^[a-z0-9-]+(\.[a-z0-9-]+)*$`}},
		"a topic with the wildcard >":    {aRunOf(step(`name: a, job: {topic: "llm.>"}`)), []string{"spec.steps[0].job.topic"}},
		"a topic with a space":           {aRunOf(step(`name: a, job: {topic: "a b"}`)), []string{"spec.steps[0].job.topic"}},
		"a topic with a line feed":       {aRunOf(step(`name: a, job: {topic: "a\n"}`)), []string{"spec.steps[0].job.topic"}},
		"a topic with an empty word":     {aRunOf(step("name: a, job: {topic: a..b}")), []string{"spec.steps[0].job.topic"}},
		"a topic of 101 characters":      {aRunOf(step("name: a, job: {topic: " + strings.Repeat("a", 101) + "}")), []string{"spec.steps[0].job.topic: Too long"}},
		"51 dependencies":                {aRunOf(step("name: a, dependsOn: [" + strings.Repeat("b,", 50) + "b], " + topic)), []string{"spec.steps[0].dependsOn: Too many"}},
		"an empty condition":             {aRunOf(step(`name: a, when: "", ` + topic)), []string{"spec.steps[0].when"}},
		"a condition of 1025 characters": {aRunOf(step("name: a, when: " + strings.Repeat("a", 1025) + ", " + topic)), []string{"spec.steps[0].when: Too long"}},
		"a job input that is a list":     {aRunOf(step("name: a, job: {topic: t, input: [1]}")), []string{"spec.steps[0].job.input", "must be of type object"}},
		"inputs that are a string":       {aRun(`  inputs: "x"`), []string{"spec.inputs", "must be of type object"}},
		"a timeout of nothing":           {aRunOf(step("name: a, timeoutSeconds: 0, " + topic)), []string{"spec.steps[0].timeoutSeconds", "greater than or equal to 1"}},
		"a start timeout of nothing":     {aRunOf(step("name: a, startTimeoutSeconds: 0, " + topic)), []string{"spec.steps[0].startTimeoutSeconds"}},
		"a timeout of a fraction":        {aRunOf(step("name: a, timeoutSeconds: 1.5, " + topic)), []string{"spec.steps[0].timeoutSeconds", "must be of type integer"}},
		"no allowed failure":             {aRunOf(step("name: a, retry: {maxFailures: 0}, " + topic)), []string{"spec.steps[0].retry.maxFailures"}},
		"a shrinking backoff":            {aRunOf(step("name: a, retry: {backoff: {factorPercent: 99}}, " + topic)), []string{"spec.steps[0].retry.backoff.factorPercent"}},
		"a jitter above 100 percent":     {aRunOf(step("name: a, retry: {backoff: {jitterPercent: 101}}, " + topic)), []string{"spec.steps[0].retry.backoff.jitterPercent"}},
		"no parallel step":               {aRun("  maxParallelSteps: 0"), []string{"spec.maxParallelSteps"}},
		"201 parallel steps":             {aRun("  maxParallelSteps: 201"), []string{"spec.maxParallelSteps"}},
		"a class with upper case":        {aRun("  workloadClass: Batch"), []string{"spec.workloadClass"}},
		"an empty class":                 {aRun(`  workloadClass: ""`), []string{"spec.workloadClass"}},
		"a class of 64 characters":       {aRun("  workloadClass: " + strings.Repeat("a", 64)), []string{"spec.workloadClass: Too long"}},
		"a tenant with a slash":          {aRun("  tenant: a/b"), []string{"spec.tenant"}},
		"an empty tenant":                {aRun(`  tenant: ""`), []string{"spec.tenant"}},
		"a queue timeout of nothing":     {aRun("  queueTimeoutSeconds: 0"), []string{"spec.queueTimeoutSeconds"}},
		"a deadline of nothing":          {aRun("  activeDeadlineSeconds: 0"), []string{"spec.activeDeadlineSeconds"}},
		"a negative time to live":        {aRun("  ttlSecondsAfterFinished: -1"), []string{"spec.ttlSecondsAfterFinished"}},
		"a time to live of nothing":      {aRun("  ttlSecondsAfterFinished: 0"), nil},
		"an unknown way to shut down":    {aRun("  shutdown: Stop"), []string{"spec.shutdown", `supported values: "Cancel", "Terminate"`}},
		"an empty way to shut down":      {aRun(`  shutdown: ""`), []string{"spec.shutdown"}},
		"a run made to be cancelled":     {aRun("  shutdown: Cancel"), nil},
		"an idempotency key":             {aRun("  idempotencyKey: report/2026-11-20@1"), nil},
		"an empty idempotency key":       {aRun(`  idempotencyKey: ""`), []string{"spec.idempotencyKey"}},
		"a key of 129 characters":        {aRun("  idempotencyKey: " + strings.Repeat("k", 129)), []string{"spec.idempotencyKey: Too long"}},
		"a key with a space":             {aRun(`  idempotencyKey: "a b"`), []string{"spec.idempotencyKey"}},
		"an absurd priority":             {aRun("  priority: 1000001"), []string{"spec.priority", "less than or equal to 1000000"}},
		"a priority below all":           {aRun("  priority: -1000000"), nil},
		"a field that does not exist":    {aRun("  templateRef: x"), []string{`unknown field "spec.templateRef"`}},
		"a step field not there":         {aRunOf(step("name: a, withItems: [x], " + topic)), []string{`unknown field "spec.steps[0].withItems"`}},
		"a job for each item":            {aRunOf(step("name: a, forEach: {items: x, maxParallel: 1000, onItemFailure: Collect}, " + topic)), nil},
		"locks of all items together":    {aRunOf(step("name: a, locks: [{mutex: a}], forEach: {items: x, locks: [{mutex: b}]}, " + topic)), nil},
		"the same in the clean-up": {
			aRun("  finally: [{name: f, locks: [{mutex: a}], forEach: {items: x}, job: {topic: t}}]"), nil,
		},
		"for each of nothing":      {aRunOf(step("name: a, forEach: {maxParallel: 3}, " + topic)), []string{"spec.steps[0].forEach.items"}},
		"for each item no job":     {aRunOf(step("name: a, forEach: {items: x}, delay: {seconds: 3}")), []string{"forEach needs a job"}},
		"too many items at a time": {aRunOf(step("name: a, forEach: {items: x, maxParallel: 1001}, " + topic)), []string{"spec.steps[0].forEach.maxParallel"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(t, c.manifest)
			wantRefused(t, err, c.refused...)
		})
	}
}
