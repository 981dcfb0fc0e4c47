// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// Label is on all that verify makes, so that what is left of one that was killed can be found.
	Label = "syncopate.dev/verify"
	// policyPatience is how long the operator may take to read a new LockPolicy, if the runs have
	// as long to end.
	policyPatience = 30 * time.Second
	natsPatience   = 10 * time.Second
	// nameSuffix is as long as the API server's in names that it makes.
	nameSuffix = 5
)

// settle makes the namespace and the policy. Before anything is made it looks whether NATS has the
// operator's streams.
func (t *trial) settle(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, natsPatience)
	defer cancel()
	for _, stream := range []string{t.Names.JobsStream(), t.Names.ResultsStream()} {
		if _, err := t.JS.Stream(asked, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("NATS has no stream %s: no operator with prefix %q has connected to it (--nats-url, --nats-prefix)", stream, t.Names.Prefix)
		} else if err != nil {
			return fmt.Errorf("NATS, stream %s: %w", stream, err)
		}
	}
	space := namespaceOf("syncopate-verify-" + rand.String(nameSuffix))
	if err := t.Kube.Create(ctx, space); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	t.name = space.Name
	most := int32(limit)
	policy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: t.name, Labels: space.Labels}, Spec: v1alpha1.LockPolicySpec{
		WorkloadClasses: []string{t.name}, Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &most},
	}}
	if err := t.Kube.Create(ctx, policy); err != nil {
		return fmt.Errorf("create LockPolicy %s: %w", t.name, err)
	}
	return t.policyRead(ctx, policy)
}

// namespaceOf is the namespace of a verify. It permits the class and the topic of that name: an
// operator with --require-allow-lists lets nobody in otherwise.
func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{Label: ""},
		Annotations: map[string]string{v1alpha1.AnnotationAllowedClasses: name, v1alpha1.AnnotationAllowedTopics: name},
	}}
}

// policyRead waits until the operator has said of the policy that it is in force.
func (t *trial) policyRead(ctx context.Context, policy *v1alpha1.LockPolicy) error {
	patience := min(policyPatience, t.Patience)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := fmt.Sprintf("no operator has read it for %s: is one running? (kubectl syncopate check)", patience)
	ready := false
	err := t.await(within, func() (bool, error) {
		if err := t.Kube.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return false, fmt.Errorf("read LockPolicy %s: %w", policy.Name, err)
		}
		if policy.Status == nil {
			return false, nil
		}
		if c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			ready, said = c.Status == metav1.ConditionTrue, c.Reason+": "+c.Message
		}
		return ready, nil
	})
	if err == nil && !ready {
		err = fmt.Errorf("LockPolicy %s: %s", policy.Name, said)
	}
	return err
}

// cleanUp takes away what was made, also when the user has stopped the command.
func (t *trial) cleanUp(ctx context.Context) error {
	if t.name == "" {
		return nil
	}
	if t.Keep {
		t.Say("left: namespace and LockPolicy %s", t.name)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	t.Say("cleaning up")
	left := t.runsGone(ctx)
	made := metav1.ObjectMeta{Name: t.name}
	for _, o := range []client.Object{&v1alpha1.LockPolicy{ObjectMeta: made}, &corev1.Namespace{ObjectMeta: made}} {
		if err := client.IgnoreNotFound(t.Kube.Delete(ctx, o)); err != nil {
			left = errors.Join(left, fmt.Errorf("delete %T %s: %w", o, t.name, err))
		}
	}
	if err := t.JS.DeleteConsumer(ctx, t.Names.JobsStream(), protocol.Durable(t.name)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Say("the operator deletes consumer %s when it has had no worker for some time: %v", protocol.Durable(t.name), err)
	}
	if left != nil {
		return fmt.Errorf("clean up (kubectl delete namespace,lockpolicy %s): %w", t.name, left)
	}
	return nil
}

// runsGone deletes the runs and waits until they are gone: the operator takes their jobs out of
// NATS and their keys out of Redis then.
func (t *trial) runsGone(ctx context.Context) error {
	runs := &metav1.PartialObjectMetadataList{}
	runs.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	if err := t.Kube.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(t.name)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete runs: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, cleanUpLimit/2)
	defer cancel()
	left := -1
	err := t.await(within, func() (bool, error) {
		if err := t.Kube.List(within, runs, client.InNamespace(t.name)); err != nil {
			return false, fmt.Errorf("read runs: %w", err)
		}
		left = len(runs.Items)
		return left == 0, nil
	})
	if err == nil && left > 0 {
		err = fmt.Errorf("%d runs are not gone: an operator has to release them", left)
	}
	return err
}
