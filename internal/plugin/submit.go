// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

const (
	defaultTimeout = time.Hour
	maxTimeout     = 24 * time.Hour
)

// submission is what one call of submit, or rerun, was told.
type submission struct {
	name, class, tenant, key string
	priority                 int32
	revision                 string
	inputs                   []string
	wait                     bool
	timeout                  time.Duration
}

func (a *workflows) submitCommand() *cobra.Command {
	s := &submission{}
	cmd := &cobra.Command{
		Use:   "submit WORKFLOW",
		Short: "Run a workflow",
		Long: `Run a workflow: create a WorkflowRun that follows it.

  kubectl syncopate submit report --input region=eu --input count=3 --wait

The value of an input is text where the parameter is a string, and JSON where it is not. NAME:=JSON is JSON in any case. If you may
not see the workflow, or the revision that you name, a value that is JSON is taken for JSON: write name:='"3"' for the text 3.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeWorkflows,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return a.submit(cmd.Context(), given[0], s)
		},
	}
	s.bind(cmd)
	cmd.Flags().StringArrayVar(&s.inputs, "input", nil, "An input: NAME=VALUE, or NAME:=JSON. May be given several times.")
	cmd.Flags().StringVar(&s.revision, "revision", "", "Revision of the workflow, or how it begins, or current; none: the current one.")
	cmd.Flags().StringVar(&s.class, "class", "", "Workload class of the run.")
	cmd.Flags().StringVar(&s.tenant, "tenant", "", "Tenant of the run.")
	cmd.Flags().StringVar(&s.key, "idempotency-key", "", "Of runs with the same key one runs.")
	cmd.Flags().Int32Var(&s.priority, "priority", 0, "Who of a tenant's waiting runs is admitted first.")
	return cmd
}

func (s *submission) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.name, "name", "", "Name of the run; none: a new one.")
	cmd.Flags().BoolVar(&s.wait, "wait", false, "Wait until the run has ended; fail if it did not succeed.")
	cmd.Flags().DurationVar(&s.timeout, "timeout", defaultTimeout, "How long to wait.")
}

func (s *submission) check() error {
	if s.timeout <= 0 || s.timeout > maxTimeout {
		return usagef("--timeout %s: need more than 0s, and at most %s", s.timeout, maxTimeout)
	}
	return nil
}

func (a *workflows) submit(ctx context.Context, workflow string, s *submission) error {
	w, c, namespace, err := a.workflow(ctx, workflow)
	if err != nil {
		return err
	}
	ref := &v1alpha1.WorkflowReference{Name: workflow}
	if s.revision != "" && s.revision != theCurrent {
		if ref.Revision, err = fullRevision(ctx, c, namespace, workflow, s.revision); err != nil {
			return err
		}
	}
	parameters, known, err := parametersOf(ctx, c, w, ref.Revision)
	if err != nil {
		return err
	}
	inputs, err := inputsOf(s.inputs, parameters, known)
	if err != nil {
		return err
	}
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{
		WorkloadClass: s.class, Tenant: s.tenant, Priority: s.priority, IdempotencyKey: s.key, WorkflowRef: ref, Inputs: inputs,
	}}
	run.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, GenerateName: workflow + "-"}
	if s.name != "" {
		run.Name, run.GenerateName = s.name, ""
	}
	if err := c.Create(ctx, run); err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	return a.created(ctx, c, run, s)
}

// parametersOf are those of a revision of a Workflow; "": the current one. Of one that may not be
// read, or a Workflow that is nil, they are not known. Its error says that there is none to follow.
func parametersOf(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, revision string) (all []v1alpha1.Parameter, known bool, err error) {
	switch {
	case w == nil:
		return nil, false, nil
	case revision == "":
		return w.Spec.Parameters, true, nil
	}
	if current, ok := revisions.Known(w); ok && revision == current {
		return w.Spec.Parameters, true, nil
	}
	content, err := reads.Revision(ctx, c, w.Namespace, v1alpha1.WorkflowRevision{Name: w.Name, Revision: revision})
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return content.Parameters(), true, nil
}

// created tells of a run that was created, and waits for its end if that was asked for.
func (a *workflows) created(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun, s *submission) error {
	fmt.Fprintf(a.Out, "workflowrun.syncopate.dev/%s created\n", run.Name)
	if !s.wait {
		return nil
	}
	return a.awaitEnd(ctx, c, run, s.timeout)
}

// awaitEnd waits until a run has ended. Its error says that it did not succeed.
func (a *workflows) awaitEnd(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun, limit time.Duration) error {
	seen := sightingOf(run)
	late, err := until(ctx, limit, func(ctx context.Context) (bool, error) {
		if err := seen.again(ctx, c); err != nil {
			return false, err
		}
		return seen.run.Status != nil && seen.run.Status.CompletedAt != nil, nil
	})
	now := seen.run
	if gone(err) && !late {
		now, err = whenGone(ctx, c, seen, err)
	}
	switch {
	case late && err != nil:
		return fmt.Errorf("whether run %s has ended after %s is not known: %w", run.Name, limit, err)
	case late:
		return fmt.Errorf("run %s has not ended after %s (--timeout), and goes on; to see why: kubectl syncopate why %s -n %s", run.Name, limit, run.Name, run.Namespace)
	case err != nil:
		return err
	}
	return a.tellEnd(now)
}

// tellEnd prints that a run succeeded. Its error says that it did not.
func (a *workflows) tellEnd(now *v1alpha1.WorkflowRun) error {
	i := slices.IndexFunc(now.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionSucceeded })
	reason, message := "", ""
	if i >= 0 {
		reason, message = now.Status.Conditions[i].Reason, now.Status.Conditions[i].Message
	}
	if now.Status.Phase != v1alpha1.RunSucceeded {
		return fmt.Errorf("run %s ended as %s (%s): %s", now.Name, now.Status.Phase, reason, message)
	}
	fmt.Fprintf(a.Out, "run %s succeeded\n", now.Name)
	a.tellOutputs(now)
	return nil
}

// tellOutputs prints the outputs of a run, or notes where they are.
func (a *workflows) tellOutputs(run *v1alpha1.WorkflowRun) {
	if ref := run.Status.OutputsRef; ref != nil {
		a.note("The outputs of run %s have %d bytes. They are in the object store of NATS, as %s.", run.Name, ref.Size, runview.Printable(ref.Name, maxHeaderChars))
	} else if run.Status.Outputs != nil {
		out := bufio.NewWriter(a.Out)
		escape(out, run.Status.Outputs.Raw)
		_ = out.WriteByte('\n')
		_ = out.Flush()
	}
}

// inputsOf are inputs as they were given. known says whether the parameters are.
func inputsOf(given []string, parameters []v1alpha1.Parameter, known bool) (*runtime.RawExtension, error) {
	if len(given) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	values := map[string]json.RawMessage{}
	for _, one := range given {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" || name == ":" {
			return nil, usagef("--input %q: need NAME=VALUE or NAME:=JSON", one)
		}
		plain, asJSON := strings.CutSuffix(name, ":")
		if _, twice := values[plain]; twice {
			return nil, usagef("--input %q: %s is given twice", one, plain)
		}
		raw, err := valueOf(value, asJSON, typeOf(plain, parameters, known))
		if err != nil {
			return nil, usagef("--input %q: %w", one, err)
		}
		values[plain] = raw
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// typeOf is the type of a parameter; "": not known.
func typeOf(name string, parameters []v1alpha1.Parameter, known bool) v1alpha1.ParameterType {
	i := slices.IndexFunc(parameters, func(p v1alpha1.Parameter) bool { return p.Name == name })
	switch {
	case i >= 0 && parameters[i].Type != "":
		return parameters[i].Type
	case i >= 0 || known: // the API server or the operator says that it is no parameter
		return v1alpha1.ParameterString
	default:
		return ""
	}
}

func valueOf(text string, asJSON bool, of v1alpha1.ParameterType) (json.RawMessage, error) {
	valid := json.Valid([]byte(text))
	switch {
	case asJSON && !valid:
		return nil, fmt.Errorf("%q is not JSON", text)
	case asJSON, of == "" && valid:
		return json.RawMessage(text), nil
	case of != "" && of != v1alpha1.ParameterString:
		if !valid {
			return nil, fmt.Errorf("%q is not JSON, and the parameter is of type %s", text, of)
		}
		return json.RawMessage(text), nil
	}
	return json.Marshal(text)
}
