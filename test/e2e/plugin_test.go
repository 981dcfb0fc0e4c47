// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// plugin is the built kubectl-syncopate, as a user has it: in a directory on the PATH.
type plugin struct {
	dir string
	env []string
}

func (w *world) buildPlugin(ctx context.Context) *plugin {
	GinkgoHelper()
	p := &plugin{dir: GinkgoT().TempDir()}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(p.dir, "kubectl-syncopate"), "./cmd/kubectl-syncopate")
	build.Dir = root
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	p.env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig, "PATH="+p.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return p
}

// run runs a program with the plugin on its PATH; it returns what goes to stdout and stderr, and
// the exit code.
func (p *plugin) run(ctx context.Context, program string, args ...string) (answer, notes string, code int) {
	GinkgoHelper()
	var out, messages bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &out, &messages
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
		code = exit.ExitCode()
	}
	return out.String(), messages.String(), code
}

// call runs the plugin itself; it must succeed and have nothing to remark.
func (p *plugin) call(ctx context.Context, args ...string) string {
	GinkgoHelper()
	answer, notes, code := p.run(ctx, filepath.Join(p.dir, "kubectl-syncopate"), args...)
	Expect(code).To(BeZero(), notes)
	Expect(notes).To(BeEmpty())
	AddReportEntry("kubectl syncopate "+args[0], "\n"+answer)
	return answer
}

// forbidSuccess has the API server refuse each write that says of a run that a step succeeded,
// until the returned function is called: an admission policy of somebody else that is wrong.
func (w *world) forbidSuccess(ctx context.Context, run string) (allow func()) {
	GinkgoHelper()
	deny := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					ResourceNames: []string{run},
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Update},
						Rule: admissionv1.Rule{
							APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{v1alpha1.GroupVersion.Version},
							Resources: []string{"workflowruns/status"},
						},
					},
				}},
			},
			Validations: []admissionv1.Validation{{
				Expression: `!object.status.steps.exists(s, s.phase == "Succeeded")`, Message: "success is out of fashion",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: w.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	Expect(k8s.Create(ctx, deny)).To(Succeed())
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	remove := func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, deny))).To(Succeed())
	}
	DeferCleanup(remove)
	return func() { remove(ctx) }
}

// succeeding tries a write that says of a step of a run that it succeeded, without effect.
func (w *world) succeeding(ctx context.Context, name string) error {
	run := w.get(ctx, name)
	run.Status.Steps[0].Phase = v1alpha1.StepSucceeded
	return k8s.Status().Update(ctx, run, client.DryRunAll)
}

func (w *world) get(ctx context.Context, name string) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	run := &v1alpha1.WorkflowRun{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, run)).To(Succeed())
	return run
}

// letter is what dead-letters list and show say in JSON.
type letter struct {
	Sequence                uint64
	Reason, Cause, Refused  string
	Namespace, Name, RunUID string
	Step                    string
	Attempt                 int32
	Body                    json.RawMessage
	Headers                 map[string][]string
}

// mutation: a redrive that keeps the first Msg-Id (message in internal/bus/deadletters/redrive.go)
// is dropped by the server, and the run does not end; one that does not delete the letter fails the
// last list; a plugin that does not find kubectl's namespace fails the calls of kubectl.
var _ = Describe("a user with kubectl syncopate", func() {
	It("sees a run stand still for a dead letter, redrives it, and the run finishes", func(ctx context.Context) {
		w := newWorld(ctx)
		p := w.buildPlugin(ctx)
		name := w.namespace
		apply(ctx, &v1alpha1.LockPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.LockPolicySpec{
				WorkloadClasses: []string{name}, Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 2, MaxDelaySeconds: 1},
			},
		})
		w.startManager(ctx, "story")
		may := make(chan struct{})
		w.startWorker(ctx, 4, func(ctx context.Context, job worker.Job) (any, error) {
			select {
			case <-may:
				return map[string]int{"pages": 3}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, "plugin.work")
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "report"}, Spec: singleStep("plugin.work")}
		run.Spec.WorkloadClass = name
		second := run.Spec.Steps[0]
		second.Name, second.DependsOn = "more", []string{"work"}
		run.Spec.Steps = append(run.Spec.Steps, second)
		Expect(k8s.Create(ctx, run)).To(Succeed())
		phases := func() []v1alpha1.StepPhase {
			var all []v1alpha1.StepPhase
			if now := w.get(ctx, "report"); !now.Unwritten() {
				for _, s := range now.Status.Steps {
					all = append(all, s.Phase)
				}
			}
			return all
		}
		Eventually(phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal([]v1alpha1.StepPhase{v1alpha1.StepRunning, v1alpha1.StepPending}))
		allow := w.forbidSuccess(ctx, "report")
		Eventually(func() bool { return apierrors.IsInvalid(w.succeeding(ctx, "report")) }).
			WithContext(ctx).WithPolling(pollInterval).Should(BeTrue(), "the policy is in force")
		close(may)

		By("looking at the run that stands still")
		Eventually(func() []metav1.Condition { return w.get(ctx, "report").Status.Conditions }).WithContext(ctx).WithPolling(pollInterval).
			Should(ContainElement(And(HaveField("Type", v1alpha1.ConditionDeadLettered), HaveField("Reason", v1alpha1.ReasonDeliveriesExhausted))))
		tree := p.call(ctx, "tree", "report", "-n", name)
		Expect(tree).To(And(ContainSubstring(name+"/report  Running  0/2"), MatchRegexp(`work +Running +1 `), MatchRegexp(`more +Pending`)))
		why := p.call(ctx, "why", "report", "-n", name)
		Expect(why).To(And(MatchRegexp(`step work +its answer is a dead letter \(attempt 1\)`), ContainSubstring("success is out of fashion"),
			ContainSubstring("kubectl syncopate dead-letters redrive --run report -n "+name)))

		By("looking at the dead letter")
		nats := []string{"--nats-url", env.NATS.URL(), "--nats-prefix", w.prefix, "-n", name}
		letters := func(args ...string) []letter {
			var list struct{ DeadLetters []letter }
			Expect(json.Unmarshal([]byte(p.call(ctx, append(append([]string{"dead-letters", "list", "-o", "json"}, args...), nats...)...)), &list)).To(Succeed())
			return list.DeadLetters
		}
		all := letters("--run", "report")
		Expect(all).To(HaveLen(1))
		l := all[0]
		Expect(l.Cause).To(ContainSubstring("success is out of fashion"))
		l.Cause = ""
		Expect(l).To(Equal(letter{
			Sequence: l.Sequence, Reason: deadletters.ReasonDeliveriesExhausted, Namespace: name, Name: "report",
			RunUID: string(w.get(ctx, "report").UID), Step: "work", Attempt: 1,
		}))
		Expect(letters("--reason", "rejected")).To(BeEmpty())
		table := p.call(ctx, append([]string{"dead-letters", "list"}, nats...)...)
		Expect(table).To(MatchRegexp(`DeliveriesExhausted +` + name + `/report +work +1 +2 `))
		sequence := firstWord(table)
		shown := p.call(ctx, append([]string{"dead-letters", "show", sequence}, nats...)...)
		Expect(shown).To(And(ContainSubstring(`"pages": 3`), ContainSubstring("Syncopate-Token: (hidden)"), Not(ContainSubstring("refused:"))))

		By("redriving it too early, with kubectl")
		kubectl := filepath.Join(assets(), "kubectl")
		again := append([]string{"syncopate", "dead-letters", "redrive", sequence}, nats...)
		answer, notes, code := p.run(ctx, kubectl, append(again, "--dry-run")...)
		Expect([]any{code, notes}).To(Equal([]any{0, ""}))
		Expect(answer).To(ContainSubstring("would be redriven"))
		answer, notes, code = p.run(ctx, kubectl, again...)
		Expect([]any{code, notes}).To(Equal([]any{0, ""}))
		Expect(answer).To(ContainSubstring("redriven to " + w.prefix + ".results."))
		Eventually(func() []letter { return letters() }).WithContext(ctx).WithPolling(pollInterval).
			Should(ConsistOf(HaveField("Reason", deadletters.ReasonDeliveriesExhausted)), "it is put aside again: its cause is still there")
		Expect(w.get(ctx, "report").Status.Phase).To(Equal(v1alpha1.RunRunning))

		By("redriving it when its cause is gone")
		allow()
		Eventually(func() error { return w.succeeding(ctx, "report") }).WithContext(ctx).WithPolling(pollInterval).Should(Succeed(), "the policy is gone")
		Expect(p.call(ctx, append([]string{"dead-letters", "redrive", "--run", "report"}, nats...)...)).To(ContainSubstring("redriven to "))
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 1)
		w.expectEachOnce(2)
		Expect(letters()).To(BeEmpty())
		for _, s := range w.get(ctx, "report").Status.Steps {
			Expect(s.Attempt).To(BeEquivalentTo(1), "no attempt was repeated for it")
		}
		answer, notes, code = p.run(ctx, kubectl, "syncopate", "tree", "report", "-n", name)
		Expect([]any{code, notes}).To(Equal([]any{0, ""}))
		Expect(answer).To(And(ContainSubstring("Succeeded  2/2"), MatchRegexp(`more +Succeeded +1 `)))
		answer, _, _ = p.run(ctx, kubectl, "plugin", "list")
		Expect(answer).To(ContainSubstring("kubectl-syncopate"))
	}, NodeTimeout(specTimeout))

	It("is told what is wrong: exit code 1 for what fails, 2 for a command line without sense", func(ctx context.Context) {
		w := newWorld(ctx)
		p := w.buildPlugin(ctx)
		for _, c := range []struct {
			says string
			code int
			line []string
		}{
			{"not found", 1, []string{"tree", "nobody", "-n", w.namespace}},
			{"nats", 1, []string{"dead-letters", "list", "--nats-url", "nats://127.0.0.1:1"}},
			{"nonsense", 2, []string{"tree", "--nonsense"}},
		} {
			answer, notes, code := p.run(ctx, filepath.Join(assets(), "kubectl"), append([]string{"syncopate"}, c.line...)...)
			Expect(code).To(Equal(c.code), notes)
			Expect(answer).To(BeEmpty())
			Expect(notes).To(And(HavePrefix("error: "), ContainSubstring(c.says)))
		}
	}, NodeTimeout(specTimeout))
})

// assets is the directory of kubectl.
func assets() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join(root, "bin", "k8s")
}

// firstWord is that of the second line: the sequence of the first letter in a table.
func firstWord(table string) string {
	GinkgoHelper()
	lines := bytes.SplitN([]byte(table), []byte("\n"), 3)
	Expect(len(lines)).To(BeNumerically(">", 1))
	return string(bytes.Fields(lines[1])[0])
}
