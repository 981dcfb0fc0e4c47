// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/origin"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// maxPrefix leaves room in a name for what the API server adds.
const maxPrefix = 50

// ownPrefix begins the labels and annotations that are the operator's.
const ownPrefix = "syncopate.dev/"

// Again is a run that does again what another one did, from the start; it is to be created. A run
// that follows a Workflow is one of the revision that the other one had. The idempotency key is not
// taken over, and neither are suspend and shutdown. A run whose delay has passed is refused, if the
// steps are its own, or those of a run below it whose spec is in its own: it would be created and
// end as InvalidSpec.
func Again(was *v1alpha1.WorkflowRun, now time.Time) (*v1alpha1.WorkflowRun, error) {
	next, err := again(was)
	if err != nil {
		return nil, err
	}
	if step, until := passed(&next.Spec, now); step != "" {
		return nil, useless("step %s waits until %s, which has passed: create a run with another time", step, until.UTC().Format(time.RFC3339))
	}
	return next, nil
}

// passed is the first step of a spec that waits for a time before now, and that time; "": none
// does. One of a run below it has the names of the steps above in front, as in build/test. How deep
// runs are nested is bounded by the size of a spec.
func passed(spec *v1alpha1.WorkflowRunSpec, now time.Time) (step string, until time.Time) {
	for _, s := range slices.Concat(spec.Steps, spec.Finally) {
		if d := s.Delay; d != nil && d.Until != nil && d.Until.Time.Before(now) {
			return s.Name, d.Until.Time
		}
		if s.Run == nil {
			continue
		}
		below, _ := dag.ChildSpec(s.Run) // what is wrong with it is the operator's to say
		if step, until := passed(&below, now); step != "" {
			return s.Name + "/" + step, until
		}
	}
	return "", time.Time{}
}

func again(was *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if was.ClaimsParent() != nil {
		return nil, useless("run %s is a child of run %s: run that one again", was.Name, was.ClaimsParent().Name)
	}
	next := &v1alpha1.WorkflowRun{Spec: *was.Spec.DeepCopy()}
	next.ObjectMeta = metav1.ObjectMeta{
		Namespace: was.Namespace, GenerateName: prefixOf(was.Name), Labels: takenOver(was.Labels), Annotations: takenOver(was.Annotations),
	}
	next.Spec.IdempotencyKey, next.Spec.Suspend, next.Spec.Shutdown, next.Spec.StartFrom = "", false, "", nil
	if ref := next.Spec.WorkflowRef; ref != nil && was.Status != nil && was.Status.Workflow != nil {
		ref.Revision = was.Status.Workflow.Revision
	}
	return next, nil
}

// ofAppliers are labels and annotations of what applied the run from files. Argo CD would take the
// next run for an object of its own that is in no file any more, and delete it.
var ofAppliers = []string{corev1.LastAppliedConfigAnnotation, "app.kubernetes.io/instance", "argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id"}

// prefixesOfAppliers begin what kubectl apply --applyset, and Fleet and k3s, prune by.
var prefixesOfAppliers = []string{"applyset.kubernetes.io/", "objectset.rio.cattle.io/"}

// takenOver are those labels, or annotations, that are as true of the next run: the operator's own
// tell who made the run and for what.
func takenOver(all map[string]string) map[string]string {
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(k, _ string) bool {
		applied := slices.ContainsFunc(prefixesOfAppliers, func(prefix string) bool { return strings.HasPrefix(k, prefix) })
		return applied || slices.Contains(ofAppliers, k) || strings.HasPrefix(k, ownPrefix) && k != v1alpha1.AnnotationStepEvents
	})
	return all
}

// AgainFrom is a run that does again what another one did, but for what is done there.
func AgainFrom(was *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	next, err := again(was)
	if err != nil {
		return nil, err
	}
	if !status.Finished(was) {
		return nil, useless("run %s has not ended", was.Name)
	}
	if was.Status.Phase == v1alpha1.RunSucceeded {
		return nil, useless("run %s succeeded: there is nothing to go on with", was.Name)
	}
	if nothingLeft(was) {
		return nil, useless("run %s has done all of its steps: nothing is left to go on with; run it again from the start, or mend its spec", was.Name)
	}
	next.Spec.StartFrom = &v1alpha1.StartFrom{Run: was.Name, UID: string(was.UID)}
	return next, nil
}

// CleansUp is why a run that has ended cannot be gone on from yet: a run below it has not.
func CleansUp(was, child *v1alpha1.WorkflowRun) error {
	return useless("run %s has ended, and its child run %s is at its clean-up: wait for that (kubectl wait --for=condition=Finished wfr/%s -n %s --timeout=-1s)",
		was.Name, child.Name, child.Name, child.Namespace)
}

// nothingLeft says whether a run from this one would have nothing to do, as the operator finds it.
// Which steps of a Workflow are those of spec.finally is not known here: all have to be done.
func nothingLeft(was *v1alpha1.WorkflowRun) bool {
	steps := was.Status.Steps
	if main := len(was.Spec.Steps); main > 0 {
		if len(steps) < main {
			return false
		}
		steps = steps[:main]
	}
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s v1alpha1.StepStatus) bool { return !origin.Done(&s) })
}

// Create creates next, which Again or AgainFrom made of was, and gives it the name, the UID and the
// version that it has then. What next has of the spec of was is taken from what is stored: an API
// server of a newer version has fields that this version does not know, and a run without them
// would do something else. Its error is a conflict if another run has the name of was by now.
func Create(ctx context.Context, c client.Client, was, next *v1alpha1.WorkflowRun) error {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRun"))
	if err := c.Get(ctx, client.ObjectKeyFromObject(was), stored); err != nil {
		return fmt.Errorf("run %s/%s: %w", was.Namespace, was.Name, err)
	}
	if stored.GetUID() != was.UID {
		return isAnother(was)
	}
	made, err := withStored(was, next, stored)
	if err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	if err := c.Create(ctx, made); err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	next.Name, next.UID, next.ResourceVersion = made.GetName(), made.GetUID(), made.GetResourceVersion()
	return nil
}

// withStored is next, to be created: with the stored spec of was, changed as that of next is
// changed from that of was.
func withStored(was, next *v1alpha1.WorkflowRun, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	from, to := &v1alpha1.WorkflowRun{Spec: was.Spec}, &v1alpha1.WorkflowRun{Spec: next.Spec}
	raw, err := client.MergeFrom(from).Data(to)
	if err != nil {
		return nil, err
	}
	var change map[string]any
	if err := json.Unmarshal(raw, &change); err != nil {
		return nil, err
	}
	spec, _, err := unstructured.NestedMap(stored.Object, "spec")
	if err != nil {
		return nil, err
	}
	made := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	merge(made.Object, change)
	made.SetGroupVersionKind(stored.GroupVersionKind())
	made.SetNamespace(next.Namespace)
	made.SetName(next.Name)
	made.SetGenerateName(next.GenerateName)
	made.SetLabels(next.Labels)
	made.SetAnnotations(next.Annotations)
	return made, nil
}

// merge applies a JSON merge patch (RFC 7386).
func merge(into, change map[string]any) {
	for k, v := range change {
		below, isObject := v.(map[string]any)
		there, both := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isObject && both:
			merge(there, below)
		default:
			into[k] = v
		}
	}
}

// prefixOf is how the name of a run begins that runs another one again.
func prefixOf(name string) string {
	return strings.TrimRight(name[:min(len(name), maxPrefix)], "-.") + "-"
}
