// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// errTemplate is wrapped by what is wrong with spec.runTemplate. Trying again does not help.
var errTemplate = errors.New("spec.runTemplate")

// runOf is the run of a slot, whose time people of the schedule's zone write as local.
func runOf(s *v1alpha1.Schedule, slot time.Time, local string) (*v1alpha1.WorkflowRun, error) {
	template := &s.Spec.RunTemplate
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: schedule.RunName(s.Name, slot),
		Labels: map[string]string{}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Schedule"))},
	}}
	maps.Copy(run.Labels, template.Metadata.Labels)
	maps.Copy(run.Annotations, template.Metadata.Annotations)
	run.Labels[v1alpha1.LabelSchedule], run.Annotations[v1alpha1.AnnotationSlot] = s.Name, local
	delete(run.Annotations, v1alpha1.AnnotationCreatedBy)
	if by, ok := s.Annotations[v1alpha1.AnnotationCreatedBy]; ok {
		run.Annotations[v1alpha1.AnnotationCreatedBy] = by
	}
	spec, err := schedule.RunSpec(s)
	if err != nil {
		return nil, fmt.Errorf("%w.spec: %w", errTemplate, err)
	}
	run.Spec = spec
	return run, setInput(run, template.SlotInput, local)
}

func setInput(run *v1alpha1.WorkflowRun, name, value string) error {
	if name == "" {
		return nil
	}
	inputs := map[string]json.RawMessage{}
	if run.Spec.Inputs != nil {
		if err := json.Unmarshal(run.Spec.Inputs.Raw, &inputs); err != nil {
			return fmt.Errorf("%w.spec.inputs: %w", errTemplate, err)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%w.slotInput: %w", errTemplate, err)
	}
	inputs[name] = text
	raw, err := json.Marshal(inputs)
	if err != nil {
		return fmt.Errorf("%w.spec.inputs: %w", errTemplate, err)
	}
	run.Spec.Inputs = &runtime.RawExtension{Raw: raw}
	return nil
}

// unpermitted says what a run may not do in its namespace; empty: nothing. It is what the run
// controller would end the run for.
func unpermitted(run *v1alpha1.WorkflowRun, labels, annotations map[string]string, requireLists bool) string {
	if tenant := facts.ResolveTenant(run.Spec.Tenant, run.Namespace, labels, annotations); !tenant.Allowed {
		return fmt.Sprintf("spec.runTemplate.spec.tenant: namespace %s may not name tenant %q", run.Namespace, tenant.Name)
	}
	permits := facts.ResolvePermits(annotations, requireLists)
	class := run.Spec.WorkloadClass
	if class == "" {
		class = "default"
	}
	if !permits.Class(class) {
		return fmt.Sprintf("spec.runTemplate.spec.workloadClass: namespace %s may not use class %q", run.Namespace, class)
	}
	plan := dag.Of(run)
	for i := range plan.Steps {
		if job := plan.Steps[i].Job; job != nil && !permits.Topic(job.Topic) {
			return fmt.Sprintf("spec.runTemplate.%s.job.topic: namespace %s may not use topic %q", plan.Field(i), run.Namespace, job.Topic)
		}
	}
	return ""
}

// invalid says what is wrong with the steps of a run, as the run controller would; empty: nothing,
// or it has none of its own.
func (r *Reconciler) invalid(ctx context.Context, run *v1alpha1.WorkflowRun) (string, error) {
	if len(run.Spec.Steps) == 0 {
		return "", nil
	}
	plan := dag.Of(run)
	problems, err := dag.ValidateAt(run, &plan, dag.Top, func() (rest func() bool, leave func(), err error) { return r.Aside.Work(ctx, run.Namespace) })
	if errors.Is(err, expr.ErrUnread) {
		return "", passes.ErrLater
	}
	if err != nil {
		return "", err
	}
	for i := range problems {
		problems[i] = "spec.runTemplate." + problems[i]
	}
	return strings.Join(problems, "; "), nil
}
