// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	// expectAnnotation on a sample says the phase in which it is meant to end.
	expectAnnotation = "demo.syncopate.dev/expect"
	// cancelAnnotation on a sample asks the demo to cancel it once this step is with a worker.
	cancelAnnotation = "demo.syncopate.dev/cancel-during"
	// approveAnnotation on a sample asks the demo to approve this step once it asks.
	approveAnnotation = "demo.syncopate.dev/approve"
	refresh           = 200 * time.Millisecond
)

var errWrongEnd = errors.New("runs did not reach the phase that they are meant to reach")

// show applies the samples and draws their progress until all have ended.
func show(ctx context.Context, c client.Client, out *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	samples, err := applySamples(ctx, c, filepath.Join("config", "samples"))
	if err != nil {
		return err
	}
	table := &table{out: out, redraw: term.IsTerminal(int(out.Fd()))}
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		runs, err := look(ctx, c, samples)
		if err != nil {
			return err
		}
		table.draw(runs)
		if !slices.ContainsFunc(runs, unfinished) {
			return judge(runs)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("runs have not ended: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// applySamples creates every object of the samples; runs are returned, in order of their files.
func applySamples(ctx context.Context, c client.Client, dir string) ([]*v1alpha1.WorkflowRun, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list samples: %w", err)
	}
	var runs []*v1alpha1.WorkflowRun
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read sample: %w", err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			o, err := decode([]byte(doc))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if o == nil {
				continue
			}
			if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("apply %s: %w", file, err)
			}
			if run, ok := o.(*v1alpha1.WorkflowRun); ok {
				runs = append(runs, run)
			}
		}
	}
	return runs, nil
}

// decode reads one of our kinds; nil for others (the kustomization).
func decode(doc []byte) (client.Object, error) {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return nil, err
	}
	var o client.Object
	switch kind.Kind {
	case "WorkflowRun":
		o = &v1alpha1.WorkflowRun{}
	case "LockPolicy":
		o = &v1alpha1.LockPolicy{}
	case "Semaphore":
		o = &v1alpha1.Semaphore{}
	case "Workflow":
		o = &v1alpha1.Workflow{}
	default:
		return nil, nil //nolint:nilnil // not ours, no error
	}
	if err := yaml.UnmarshalStrict(doc, o); err != nil {
		return nil, err
	}
	if kind.Kind != "LockPolicy" && kind.Kind != "Semaphore" && o.GetNamespace() == "" { // those are the cluster's
		o.SetNamespace("default")
	}
	return o, nil
}

// look reads the runs, and cancels or approves those that ask for it.
func look(ctx context.Context, c client.Client, samples []*v1alpha1.WorkflowRun) ([]*v1alpha1.WorkflowRun, error) {
	runs := make([]*v1alpha1.WorkflowRun, 0, len(samples))
	for _, s := range samples {
		run := &v1alpha1.WorkflowRun{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), run); err != nil {
			return nil, fmt.Errorf("read run: %w", err)
		}
		if run.Spec.Shutdown == "" && inPhase(run, run.Annotations[cancelAnnotation], v1alpha1.StepRunning) {
			before := run.DeepCopy()
			run.Spec.Shutdown = v1alpha1.ShutdownCancel
			if err := c.Patch(ctx, run, client.MergeFrom(before)); err != nil {
				return nil, fmt.Errorf("cancel run: %w", err)
			}
		}
		if step := run.Annotations[approveAnnotation]; inPhase(run, step, v1alpha1.StepWaiting) {
			if err := approve(ctx, c, run, step); err != nil {
				return nil, err
			}
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// approve decides as `kubectl syncopate approve` does.
func approve(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, step string) error {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return fmt.Errorf("ask who we are: %w", err)
	}
	decision := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: run.Name + "-" + step},
		Spec: v1alpha1.StepApprovalSpec{
			Run: run.Name, RunUID: string(run.UID), Step: step, Decision: v1alpha1.Approve, Approver: review.Status.UserInfo.Username, Comment: "by the demo",
		},
	}
	if err := c.Create(ctx, decision); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("approve: %w", err)
	}
	return nil
}

func inPhase(run *v1alpha1.WorkflowRun, step string, phase v1alpha1.StepPhase) bool {
	return run.Status != nil && slices.ContainsFunc(run.Status.Steps, func(s v1alpha1.StepStatus) bool {
		return s.Name == step && s.Phase == phase
	})
}

func unfinished(run *v1alpha1.WorkflowRun) bool {
	return run.Status == nil || run.Status.CompletedAt == nil
}

// judge compares how the runs ended with how they were meant to.
func judge(runs []*v1alpha1.WorkflowRun) error {
	var wrong []error
	for _, run := range runs {
		if want := run.Annotations[expectAnnotation]; want != "" && string(run.Status.Phase) != want {
			wrong = append(wrong, fmt.Errorf("%w: %s is %s, not %s", errWrongEnd, run.Name, run.Status.Phase, want))
		}
	}
	return errors.Join(wrong...)
}

// table draws runs as lines; on a terminal it draws over what it drew before, elsewhere it
// prints what changed.
type table struct {
	out    io.Writer
	redraw bool
	last   []string
}

func (t *table) draw(runs []*v1alpha1.WorkflowRun) {
	lines := []string{fmt.Sprintf("%-12s %-10s %-6s %-18s %s", "RUN", "PHASE", "STEPS", "REASON", "STEPS IN DETAIL")}
	for _, run := range runs {
		lines = append(lines, line(run))
	}
	if t.redraw && len(t.last) > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA", len(t.last))
	}
	for i, l := range lines {
		switch {
		case t.redraw:
			fmt.Fprintf(t.out, "\x1b[2K%s\n", l)
		case i >= len(t.last) || t.last[i] != l:
			fmt.Fprintln(t.out, l)
		}
	}
	t.last = lines
}

func line(run *v1alpha1.WorkflowRun) string {
	status := run.Status
	if status == nil {
		return fmt.Sprintf("%-12s %-10s", run.Name, v1alpha1.RunPending)
	}
	var steps []string
	for _, s := range status.Steps {
		text := s.Name + " " + string(s.Phase)
		if s.Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", s.Attempt)
		}
		steps = append(steps, text)
	}
	reason := ""
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		reason = c.Reason
	}
	return fmt.Sprintf("%-12s %-10s %-6s %-18s %s", run.Name, status.Phase, status.Progress, reason, strings.Join(steps, ", "))
}
