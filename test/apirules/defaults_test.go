// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Those of steps are not: see TestManagersWhoApplyTheSameManifestAreInNoConflict.
// Mutation: +kubebuilder:default={} taken from RunLockPolicy.renewal makes the
// nested defaults vanish.
func TestDefaultsAreFilledIn(t *testing.T) {
	for name, c := range map[string]struct{ manifest, wantSpec string }{
		"a minimal run": {
			manifest: aRun(),
			wantSpec: `
workloadClass: default
maxParallelSteps: 20
finallyTimeoutSeconds: 300
priority: 0
steps:
- name: a
  job: {topic: demo.echo}
`,
		},
		"a run's own values stay, zeros too": {
			manifest: aRunOf(
				"  workloadClass: batch",
				"  maxParallelSteps: 1",
				"  finallyTimeoutSeconds: 1",
				"  steps:",
				"  - name: a",
				"    job: {topic: t, input: {}}",
				"    onFailure: Continue",
				"    timeoutSeconds: 1",
				"    startTimeoutSeconds: 2",
				"    retry: {maxFailures: 1, backoff: {initialMillis: 0, factorPercent: 100, maxMillis: 0, jitterPercent: 0}}"),
			wantSpec: `
workloadClass: batch
maxParallelSteps: 1
finallyTimeoutSeconds: 1
priority: 0
steps:
- name: a
  job: {topic: t, input: {}}
  onFailure: Continue
  timeoutSeconds: 1
  startTimeoutSeconds: 2
  retry:
    maxFailures: 1
    backoff: {initialMillis: 0, factorPercent: 100, maxMillis: 0, jitterPercent: 0}
`,
		},
		"an approval, a delay and a finally step": {
			manifest: aRunOf("  steps: [{name: a, approval: {}}]", "  finally: [{name: b, delay: {seconds: 1}}]"),
			wantSpec: `
workloadClass: default
maxParallelSteps: 20
finallyTimeoutSeconds: 300
priority: 0
steps:
- name: a
  approval: {}
finally:
- name: b
  delay: {seconds: 1}
`,
		},
		"a minimal lock policy": {
			manifest: aPolicy(),
			wantSpec: `
workloadClasses: [batch]
runLock:
  ttlSeconds: 30
  scope: Activation
  lingerMillis: 250
  wait: {mode: HandOff, budgetMillis: 3000}
  busyRetry: {mode: Jittered, delayMillis: 500, jitterPercent: 30}
  renewal: {timeoutMillis: 1000, maxConsecutiveFailures: 3, onFailure: Fence, clockDriftPercent: 1, safetyMarginMillis: 3000}
admission: {onLimit: Queue, strategy: Atomic, lock: {ttlSeconds: 10, maxWaitMillis: 2000, retry: {mode: Jittered, delayMillis: 10, jitterPercent: 30}}}
delivery: {maxDeliveries: 100, maxDelaySeconds: 30}
checkpoint: {mode: EveryStep, maxResults: 64, maxDelayMillis: 200}
`,
		},
		"a lock policy's own values stay, zeros too": {
			manifest: aPolicy("  runLock: {scope: Run, lingerMillis: 0, wait: {mode: Poll, budgetMillis: 0}, busyRetry: {mode: Fixed, jitterPercent: 0}, renewal: {onFailure: Continue, clockDriftPercent: 0, safetyMarginMillis: 100}}", "  delivery: {maxDeliveries: 7}"),
			wantSpec: `
workloadClasses: [batch]
runLock:
  ttlSeconds: 30
  scope: Run
  lingerMillis: 0
  wait: {mode: Poll, budgetMillis: 0}
  busyRetry: {mode: Fixed, delayMillis: 500, jitterPercent: 0}
  renewal: {timeoutMillis: 1000, maxConsecutiveFailures: 3, onFailure: Continue, clockDriftPercent: 0, safetyMarginMillis: 100}
admission: {onLimit: Queue, strategy: Atomic, lock: {ttlSeconds: 10, maxWaitMillis: 2000, retry: {mode: Jittered, delayMillis: 10, jitterPercent: 30}}}
delivery: {maxDeliveries: 7, maxDelaySeconds: 30}
checkpoint: {mode: EveryStep, maxResults: 64, maxDelayMillis: 200}
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustCreate(t, c.manifest)
			got, err := yaml.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(normal(t, c.wantSpec), normal(t, string(got))); diff != "" {
				t.Errorf("spec as stored (-want +got):\n%s", diff)
			}
		})
	}
}

func normal(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
