// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func classes(list string) string {
	return "apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {generateName: policy-}\nspec: {workloadClasses: " + list + "}\n"
}

// Mutation: 2 * to 1 * in the first rule, or < to <= in either, makes a boundary case fail.
func TestLockPolicyRules(t *testing.T) {
	lock := func(fields string) string { return aPolicy("  runLock: {" + fields + "}") }
	for name, c := range map[string]struct {
		manifest string
		refused  []string
	}{
		"defaults":                                 {aPolicy(), nil},
		"the smallest TTL cannot fit":              {lock("ttlSeconds: 5"), []string{"unsafe times: 2 x interval + ttl x drift + safety margin must be less than the TTL", "2 x 1666 ms + 50 ms + 3000 ms is not less than 5000 ms"}},
		"the smallest TTL with a smaller margin":   {lock("ttlSeconds: 5, renewal: {safetyMarginMillis: 500, timeoutMillis: 500}"), nil},
		"the largest TTL":                          {lock("ttlSeconds: 3600"), nil},
		"a TTL too small":                          {lock("ttlSeconds: 4"), []string{"spec.runLock.ttlSeconds"}},
		"an interval of half the rest":             {lock("ttlSeconds: 30, renewal: {intervalMillis: 14950, safetyMarginMillis: 100, clockDriftPercent: 0}"), []string{"2 x 14950 ms + 0 ms + 100 ms is not less than 30000 ms"}},
		"an interval just below half":              {lock("ttlSeconds: 30, renewal: {intervalMillis: 14949, safetyMarginMillis: 100, clockDriftPercent: 0}"), nil},
		"a drift that eats the validity":           {lock("renewal: {clockDriftPercent: 50}"), []string{"2 x 10000 ms + 15000 ms + 3000 ms is not less than 30000 ms"}},
		"a margin that eats the validity":          {lock("renewal: {safetyMarginMillis: 9700}"), []string{"2 x 10000 ms + 300 ms + 9700 ms is not less than 30000 ms"}},
		"a margin just small enough":               {lock("renewal: {safetyMarginMillis: 9699}"), nil},
		"a timeout as long as the interval":        {lock("renewal: {intervalMillis: 900, timeoutMillis: 900}"), []string{"unsafe times: renewal.timeoutMillis (900 ms) must be less than the renewal interval (900 ms)"}},
		"a timeout longer than the client's":       {lock("renewal: {timeoutMillis: 1001}"), []string{"spec.runLock.renewal.timeoutMillis", "less than or equal to 1000"}},
		"a timeout just below the interval":        {lock("renewal: {intervalMillis: 900, timeoutMillis: 899}"), nil},
		"a jitter above 100 percent":               {lock("busyRetry: {jitterPercent: 101}"), []string{"spec.runLock.busyRetry.jitterPercent: Invalid value: 101", "less than or equal to 100"}},
		"a jitter of 100 percent":                  {lock("busyRetry: {jitterPercent: 100}"), nil},
		"a delay of nothing":                       {lock("busyRetry: {delayMillis: 0}"), []string{"spec.runLock.busyRetry.delayMillis"}},
		"an unknown mode":                          {lock("busyRetry: {mode: Random}"), []string{"spec.runLock.busyRetry.mode", `supported values: "Jittered", "Fixed"`}},
		"shares of a total":                        {aPolicy("  admission: {maxConcurrentRuns: 5, total: {maxConcurrentRuns: 10}, tenants: [{name: a, maxConcurrentRuns: 9, guaranteed: 4, weight: 1000}, {name: b, maxConcurrentRuns: 6, guaranteed: 6}]}"), nil},
		"guaranteed without a total":               {aPolicy("  admission: {tenants: [{name: a, maxConcurrentRuns: 9, guaranteed: 4}]}"), []string{"guaranteed and weight of a tenant are parts of total"}},
		"a weight without a total":                 {aPolicy("  admission: {tenants: [{name: a, maxConcurrentRuns: 9, weight: 4}]}"), []string{"guaranteed and weight of a tenant are parts of total"}},
		"more guaranteed than the tenant may have": {aPolicy("  admission: {total: {maxConcurrentRuns: 10}, tenants: [{name: a, maxConcurrentRuns: 3, guaranteed: 4}]}"), []string{"guaranteed must be at most maxConcurrentRuns of the tenant"}},
		"more guaranteed than there are":           {aPolicy("  admission: {total: {maxConcurrentRuns: 10}, tenants: [{name: a, maxConcurrentRuns: 9, guaranteed: 5}, {name: b, maxConcurrentRuns: 6, guaranteed: 6}]}"), []string{"the sum of what tenants are guaranteed must be at most total.maxConcurrentRuns"}},
		"a weight of nothing":                      {aPolicy("  admission: {total: {maxConcurrentRuns: 10}, tenants: [{name: a, maxConcurrentRuns: 3, weight: 0}]}"), []string{"weight"}},
		"a negative guarantee":                     {aPolicy("  admission: {total: {maxConcurrentRuns: 10}, tenants: [{name: a, maxConcurrentRuns: 3, guaranteed: -1}]}"), []string{"guaranteed"}},
		"a total of nothing said":                  {aPolicy("  admission: {total: {}}"), []string{"total.maxConcurrentRuns"}},
		"a total of none":                          {aPolicy("  admission: {total: {maxConcurrentRuns: 0}}"), nil},
		"no failure allowed":                       {lock("renewal: {maxConsecutiveFailures: 0}"), []string{"spec.runLock.renewal.maxConsecutiveFailures"}},
		"a linger too long":                        {lock("lingerMillis: 2001"), []string{"spec.runLock.lingerMillis"}},
		"a part that is not there":                 {lock("scopes: Run"), []string{`unknown field "spec.runLock.scopes"`}},
		"a lock for the whole run":                 {lock("scope: Run"), nil},
		"an unknown scope":                         {lock("scope: Step"), []string{"spec.runLock.scope", `supported values: "Activation", "Run"`}},
		"waiting by polling":                       {lock("wait: {mode: Poll, budgetMillis: 0}"), nil},
		"an unknown way to wait":                   {lock("wait: {mode: Spin}"), []string{"spec.runLock.wait.mode", `supported values: "HandOff", "Poll"`}},
		"the largest budget":                       {lock("wait: {budgetMillis: 60000}"), nil},
		"a budget too large":                       {lock("wait: {budgetMillis: 60001}"), []string{"spec.runLock.wait.budgetMillis", "less than or equal to 60000"}},
		"a lock that goes on for a moment":         {lock("scope: Activation, renewal: {onFailure: Continue}"), []string{"renewal.onFailure Continue needs scope Run"}},
		"a lock that goes on by default scope":     {lock("renewal: {onFailure: Continue}"), []string{"renewal.onFailure Continue needs scope Run"}},
		"a lock that goes on":                      {lock("scope: Run, renewal: {onFailure: Continue}"), nil},
		"an unknown way to fail":                   {lock("renewal: {onFailure: Ignore}"), []string{"spec.runLock.renewal.onFailure", `supported values: "Fence", "Continue"`}},
		"a margin as long as the TTL":              {lock("renewal: {safetyMarginMillis: 29700}"), []string{"2 x 10000 ms + 300 ms + 29700 ms is not less than 30000 ms"}},
		"a margin longer than the TTL":             {lock("ttlSeconds: 5, renewal: {safetyMarginMillis: 600000}"), []string{"2 x 1666 ms + 50 ms + 600000 ms is not less than 5000 ms"}},
		"an interval as long as the TTL":           {lock("renewal: {intervalMillis: 30000}"), []string{"2 x 30000 ms + 300 ms + 3000 ms is not less than 30000 ms"}},
		"a timeout longer than the interval":       {lock("renewal: {intervalMillis: 500}"), []string{"unsafe times: renewal.timeoutMillis (1000 ms) must be less than the renewal interval (500 ms)"}},
		"the largest budget of deliveries":         {aPolicy("  delivery: {maxDeliveries: 10000, maxDelaySeconds: 3600}"), nil},
		"the smallest budget of deliveries":        {aPolicy("  delivery: {maxDeliveries: 1, maxDelaySeconds: 1}"), nil},
		"a budget of no delivery":                  {aPolicy("  delivery: {maxDeliveries: 0}"), []string{"spec.delivery.maxDeliveries: Invalid value: 0", "greater than or equal to 1"}},
		"too many deliveries":                      {aPolicy("  delivery: {maxDeliveries: 10001}"), []string{"spec.delivery.maxDeliveries", "less than or equal to 10000"}},
		"no delay at all":                          {aPolicy("  delivery: {maxDelaySeconds: 0}"), []string{"spec.delivery.maxDelaySeconds", "greater than or equal to 1"}},
		"a delay of more than an hour":             {aPolicy("  delivery: {maxDelaySeconds: 3601}"), []string{"spec.delivery.maxDelaySeconds", "less than or equal to 3600"}},
		"a delivery part that is not there":        {aPolicy("  delivery: {maxTries: 3}"), []string{`unknown field "spec.delivery.maxTries"`}},
		"the fallback class":                       {classes(`["*"]`), nil},
		"no class":                                 {classes(`[]`), []string{"spec.workloadClasses", "at least 1 items"}},
		"a class twice":                            {classes(`[a, a]`), []string{"spec.workloadClasses", "Duplicate value"}},
		"a pattern of classes":                     {classes(`["a*"]`), []string{"spec.workloadClasses[0]"}},
		"an empty class":                           {classes(`[""]`), []string{"spec.workloadClasses[0]"}},
		"51 classes":                               {classes("[" + manyClasses(51) + "]"), []string{"spec.workloadClasses: Too many"}},
		"a rollout by defaults":                    {aPolicy("  rollout: {}"), nil},
		"a rollout by canary":                      {aPolicy("  rollout: {strategy: Canary, stepsPercent: [5, 20, 50], maxStepMinutes: 1}"), nil},
		"a rollout of one step":                    {aPolicy("  rollout: {stepsPercent: [50]}"), nil},
		"an unknown strategy":                      {aPolicy("  rollout: {strategy: BlueGreen}"), []string{"spec.rollout.strategy", `supported values: "Immediate", "Canary"`}},
		"steps out of order":                       {aPolicy("  rollout: {stepsPercent: [20, 5]}"), []string{"stepsPercent must rise, as [5, 20, 50] does"}},
		"a step twice":                             {aPolicy("  rollout: {stepsPercent: [5, 5]}"), []string{"stepsPercent must rise, as [5, 20, 50] does"}},
		"no step":                                  {aPolicy("  rollout: {stepsPercent: []}"), []string{"spec.rollout.stepsPercent", "at least 1 items"}},
		"a step of nothing":                        {aPolicy("  rollout: {stepsPercent: [0, 5]}"), []string{"spec.rollout.stepsPercent[0]", "greater than or equal to 1"}},
		"no room for a control":                    {aPolicy("  rollout: {stepsPercent: [5, 51]}"), []string{"spec.rollout.stepsPercent[1]", "less than or equal to 50"}},
		"eleven steps":                             {aPolicy("  rollout: {stepsPercent: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}"), []string{"spec.rollout.stepsPercent: Too many"}},
		"no evidence at all":                       {aPolicy("  rollout: {minContendedRuns: 0}"), []string{"spec.rollout.minContendedRuns", "greater than or equal to 1"}},
		"a step without time":                      {aPolicy("  rollout: {maxStepMinutes: 0}"), []string{"spec.rollout.maxStepMinutes", "greater than or equal to 1"}},
		"an unknown end":                           {aPolicy("  rollout: {onInsufficientData: Promote}"), []string{"spec.rollout.onInsufficientData", `supported values: "RollBack", "Hold"`}},
		"guardrails that are off":                  {aPolicy("  rollout: {guardrails: {busyRunsPercent: 10000, lockWaitTailPercent: 10000, resultLatencyPercent: 10000}}"), nil},
		"a guardrail above the one that is off":    {aPolicy("  rollout: {guardrails: {resultLatencyPercent: 10001}}"), []string{"spec.rollout.guardrails.resultLatencyPercent", "less than or equal to 10000"}},
		"a guardrail below the control":            {aPolicy("  rollout: {guardrails: {busyRunsPercent: 99}}"), []string{"spec.rollout.guardrails.busyRunsPercent", "greater than or equal to 100"}},
		"no spec":                                  {"apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {generateName: policy-}\n", []string{"spec: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(t, c.manifest)
			wantRefused(t, err, c.refused...)
		})
	}
}

// Mutation: a minimum taken from a field's markers lets its case through.
func TestLockPolicyRefusesNegativeNumbers(t *testing.T) {
	for path, fields := range map[string]string{
		"ttlSeconds":                     "ttlSeconds: -1",
		"lingerMillis":                   "lingerMillis: -1",
		"wait.budgetMillis":              "wait: {budgetMillis: -1}",
		"busyRetry.delayMillis":          "busyRetry: {delayMillis: -1}",
		"busyRetry.jitterPercent":        "busyRetry: {jitterPercent: -1}",
		"renewal.intervalMillis":         "renewal: {intervalMillis: -1}",
		"renewal.timeoutMillis":          "renewal: {timeoutMillis: -1}",
		"renewal.maxConsecutiveFailures": "renewal: {maxConsecutiveFailures: -1}",
		"renewal.clockDriftPercent":      "renewal: {clockDriftPercent: -1}",
		"renewal.safetyMarginMillis":     "renewal: {safetyMarginMillis: -1}",
	} {
		t.Run(path, func(t *testing.T) {
			_, err := create(t, aPolicy("  runLock: {"+fields+"}"))
			wantRefused(t, err, "spec.runLock."+path+": Invalid value: -1", "greater than or equal to")
		})
	}
}

// What a user sees who applies a file: the sums, and both faults at once.
func TestKubectlSaysWhyAPolicyIsUnsafe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	manifest := strings.Replace(aPolicy("  runLock: {ttlSeconds: 5, renewal: {intervalMillis: 900, timeoutMillis: 900, safetyMarginMillis: 4000}}"),
		"generateName: policy-", "name: unsafe", 1)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := tryKubectl(t, "apply", "-f", file)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, words := range []string{
		`The LockPolicy "unsafe" is invalid`,
		"unsafe times: 2 x interval + ttl x drift + safety margin must be less than the TTL, but 2 x 900 ms + 50 ms + 4000 ms is not less than 5000 ms",
		"unsafe times: renewal.timeoutMillis (900 ms) must be less than the renewal interval (900 ms)",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("kubectl apply does not say %q:\n%s", words, out)
		}
	}
}

func manyClasses(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = strings.Repeat("a", i+1)
	}
	return strings.Join(names, ",")
}

// A policy may be changed at any time; an unsafe change leaves the safe one in force.
func TestLockPolicyMayBeChanged(t *testing.T) {
	o := mustCreate(t, aPolicy())
	wantRefused(t, patch(t, o, "spec: {runLock: {ttlSeconds: 60}, workloadClasses: [other]}"))
	wantRefused(t, patch(t, o, "spec: {runLock: {renewal: {intervalMillis: 30000}}}"), "2 x 30000 ms + 600 ms + 3000 ms is not less than 60000 ms")
	wantRefused(t, patch(t, o, "spec: {runLock: null}"))
	wantRefused(t, patchStatus(t, o, "status: {observedGeneration: 2, runs: {admitted: 1, queued: 0}, contention: {busyRetriesPerMinute: 0, p95LockWaitMillis: 7}}"))
	wantRefused(t, patchStatus(t, o, "status: {runs: {admitted: -1}}"), "status.runs.admitted: Invalid value: -1")
	wantRefused(t, patchStatus(t, o, "status: {contention: {p95LockWaitMillis: -1}}"), "status.contention.p95LockWaitMillis: Invalid value: -1")
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}
