// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// shortWindow is the deduplication window of JOBS in this play: over when a late publish
	// arrives, as two minutes would be.
	shortWindow = 100 * time.Millisecond
	// takeOver bounds how long a new owner may take to begin with a run.
	takeOver = 10 * time.Second
	// redispatch is how long the play waits for a job that comes again though it should not.
	redispatch = time.Second
)

// refusedResults has the API server refuse all writes that say of a run that a step succeeded.
// So results become dead letters; then another operator takes over, which finds neither the job
// nor its result.
func refusedResults(ctx context.Context, a *Attack) error {
	if err := a.policy(ctx, v1alpha1.LockPolicySpec{
		RunLock:  v1alpha1.RunLockPolicy{LingerMillis: new(int64(0))},
		Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 2, MaxDelaySeconds: 1},
	}); err != nil {
		return err
	}
	if err := errors.Join(a.shortenWindow(ctx), a.forbidSuccess(ctx)); err != nil {
		return err
	}
	err := a.serve(ctx, "hostile.refused", a.runs(20, 5), func(context.Context, worker.Job) (any, error) { return nil, nil })
	if err != nil {
		return err
	}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		runs, err := a.createSome(ctx, fmt.Sprint("refused-", n), step("work", "hostile.refused"))
		if err != nil {
			return err
		}
		a.underWay()
		for _, run := range runs {
			if err := a.deadLetter(ctx, string(run.UID)); err != nil {
				return err
			}
		}
		if err := a.scene.change(ctx); err != nil {
			return err
		}
		linger(ctx, redispatch)
		return a.deleteRuns(ctx)
	})
}

// createSome creates as many runs of some steps as a round of these plays has.
func (a *Attack) createSome(ctx context.Context, name string, steps ...v1alpha1.Step) ([]*v1alpha1.WorkflowRun, error) {
	spec := v1alpha1.WorkflowRunSpec{Steps: steps}
	var runs []*v1alpha1.WorkflowRun
	for i := range a.runs(20, 5) {
		run := &v1alpha1.WorkflowRun{ObjectMeta: named(name, i), Spec: *spec.DeepCopy()}
		if err := a.create(ctx, run); err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// changesEvery is the time between two changes of owner in the plays that have them, on two cores.
var changesEvery = map[string]time.Duration{"refused-results": 3 * time.Second, "late-publishes": 5 * time.Second}

// changesOfOwner has another operator take over, at a pace. The tenant's runs have one
// step, and end.
func changesOfOwner(ctx context.Context, a *Attack, every time.Duration) error {
	err := a.serve(ctx, "hostile.calm", a.runs(20, 5), func(context.Context, worker.Job) (any, error) { return nil, nil })
	if err != nil {
		return err
	}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		next := time.Now().Add(every)
		runs, err := a.createSome(ctx, fmt.Sprint("calm-", n), step("work", "hostile.calm"))
		if err != nil {
			return err
		}
		a.underWay()
		for _, run := range runs {
			if err := a.finished(ctx, run); err != nil {
				return err
			}
		}
		if err := a.scene.change(ctx); err != nil {
			return err
		}
		linger(ctx, time.Until(next))
		return a.deleteRuns(ctx)
	})
}

// deadLetter waits until there is one of a run.
func (a *Attack) deadLetter(ctx context.Context, runUID string) error {
	names := a.scene.names()
	return until(ctx, func() (bool, error) {
		n, err := a.messages(ctx, names.DeadLettersStream(), names.Prefix+".deadletters.*."+runUID+".>")
		return n > 0, err
	})
}

// messages is of how many subjects a stream has any, of those that a filter lets through.
func (a *Attack) messages(ctx context.Context, stream, filter string) (int, error) {
	s, err := a.scene.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	return len(info.State.Subjects), nil
}

// forbidSuccess is an admission policy that is wrong, and returns when the API server obeys it.
func (a *Attack) forbidSuccess(ctx context.Context) error {
	deny := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: a.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": a.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{v1alpha1.GroupVersion.Version},
						Resources: []string{"workflowruns/status"},
					},
				}}},
			},
			Validations: []admissionv1.Validation{{
				Expression: `!has(object.status) || !has(object.status.steps) || !object.status.steps.exists(s, s.phase == "Succeeded")`, Message: "no success here",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: a.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if err := errors.Join(a.make(ctx, deny), a.make(ctx, binding)); err != nil {
		return err
	}
	probe := &v1alpha1.WorkflowRun{ObjectMeta: named("probe"), Spec: v1alpha1.WorkflowRunSpec{Suspend: true, Steps: []v1alpha1.Step{step("work", "hostile.refused")}}}
	if err := a.create(ctx, probe); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		if err := a.read(ctx, probe); err != nil || probe.Status == nil || len(probe.Status.Steps) == 0 {
			return false, err
		}
		probe.Status.Steps[0].Phase = v1alpha1.StepSucceeded
		err := a.scene.Client.Status().Update(ctx, probe, client.DryRunAll)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err != nil, nil
	})
}

// latePublishes keeps what an operator publishes for runs of two steps, has another operator take
// the runs over while a worker has the job of the first one, and, when that was answered and
// acknowledged, publishes the job as the first operator would have, had it been stopped between its
// last look at its lease and the publish. The deduplication window is over by then.
func latePublishes(ctx context.Context, a *Attack) error {
	first, second := "hostile.first", "hostile.second"
	kept, err := a.keep(first)
	if err != nil {
		return err
	}
	held := &held{gates: map[string]*gate{}}
	for _, topic := range []string{first, second} {
		if err := a.serve(ctx, topic, 20, func(ctx context.Context, job worker.Job) (any, error) {
			return nil, held.of(job.ID.RunUID, job.ID.Step).wait(ctx)
		}); err != nil {
			return err
		}
	}
	if err := a.shortenWindow(ctx); err != nil {
		return err
	}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		runs, err := a.createSome(ctx, fmt.Sprint("publish-", n), step("first", first), step("second", second, "first"))
		if err != nil {
			return err
		}
		return a.publishLate(ctx, runs, kept, held)
	})
}

// held are the gates of runs, by UID and step.
type held struct {
	mu    sync.Mutex
	gates map[string]*gate
}

func (h *held) of(uid, step string) *gate {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := uid + "/" + step
	if h.gates[key] == nil {
		h.gates[key] = newGate()
	}
	return h.gates[key]
}

func (a *Attack) publishLate(ctx context.Context, runs []*v1alpha1.WorkflowRun, kept *kept, held *held) error {
	defer func() {
		for _, run := range runs {
			held.of(string(run.UID), "first").pass()
			held.of(string(run.UID), "second").pass()
		}
	}()
	for _, run := range runs {
		if err := until(ctx, func() (bool, error) { return a.log.jobs(string(run.UID)) >= 1, nil }); err != nil {
			return err
		}
		if err := a.read(ctx, run); err != nil {
			return err
		}
	}
	a.underWay()
	if err := a.scene.change(ctx); err != nil {
		return err
	}
	for _, run := range runs {
		if err := a.afterTakeOver(ctx, run, kept, held); err != nil {
			return err
		}
	}
	linger(ctx, redispatch)
	return nil
}

// afterTakeOver waits until another owner has fenced the first job of a run, lets that step end,
// and publishes its job again.
func (a *Attack) afterTakeOver(ctx context.Context, run *v1alpha1.WorkflowRun, kept *kept, held *held) error {
	uid, names := string(run.UID), a.scene.names()
	job := protocol.JobID{RunUID: uid, Step: "first", Item: protocol.NoItem, Attempt: 1}
	if err := within(ctx, takeOver, func() (bool, error) {
		n, err := a.messages(ctx, names.JobsStream(), names.Fence("hostile.first", job))
		return n > 0, err
	}); err != nil {
		return err
	}
	held.of(uid, "first").pass()
	if err := until(ctx, func() (bool, error) { return a.log.jobs(uid) >= 2, nil }); err != nil {
		return err
	}
	linger(ctx, shortWindow)
	if _, err := a.scene.nc.RequestMsgWithContext(ctx, kept.of(uid)); err != nil {
		return fmt.Errorf("publish late: %w", err)
	}
	return nil
}

// kept are job messages as an operator published them, by the UID of their run.
type kept struct {
	mu       sync.Mutex
	messages map[string]*nats.Msg
}

func (k *kept) of(uid string) *nats.Msg {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.messages[uid]
}

// keep keeps all jobs of a topic.
func (a *Attack) keep(topic string) (*kept, error) {
	k := &kept{messages: map[string]*nats.Msg{}}
	names := a.scene.names()
	sub, err := a.scene.nc.Subscribe(names.TopicJobs(topic), func(m *nats.Msg) {
		if _, id, err := names.ParseJob(m.Subject); err == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.messages[id.RunUID] = &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen to jobs: %w", err)
	}
	a.cleanups = append(a.cleanups, func(context.Context) error { return sub.Unsubscribe() })
	if err := a.scene.nc.FlushTimeout(takeOver); err != nil {
		return nil, fmt.Errorf("listen to jobs: %w", err)
	}
	return k, nil
}

// shortenWindow makes the deduplication window of JOBS as short as it can be.
func (a *Attack) shortenWindow(ctx context.Context) error {
	s, err := a.scene.js.Stream(ctx, a.scene.names().JobsStream())
	if err != nil {
		return fmt.Errorf("look at the stream of jobs: %w", err)
	}
	config := s.CachedInfo().Config
	config.Duplicates = shortWindow
	if _, err := a.scene.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("shorten the window of the stream of jobs: %w", err)
	}
	return nil
}
