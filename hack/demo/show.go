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
	"github.com/syncopate-dev/syncopate/internal/cron"
)

const (
	// slotsWithin is a day and an hour: a daily schedule has a slot in it, on the days when clocks
	// are set, too.
	slotsWithin = 25 * time.Hour
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
	samples, schedules, err := applySamples(ctx, c, filepath.Join("config", "samples"))
	if err != nil {
		return err
	}
	for _, s := range schedules {
		if err := startLastSlot(ctx, c, s); err != nil {
			return err
		}
	}
	table := &table{out: out, redraw: term.IsTerminal(int(out.Fd()))}
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		runs, all, err := lookAll(ctx, c, samples, schedules)
		if err != nil {
			return err
		}
		table.draw(runs)
		if all && !slices.ContainsFunc(runs, unfinished) {
			return judge(runs)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("runs have not ended: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// lookAll reads the runs, and those of schedules; all: each schedule has one.
func lookAll(ctx context.Context, c client.Client, samples []*v1alpha1.WorkflowRun, schedules []*v1alpha1.Schedule) (runs []*v1alpha1.WorkflowRun, all bool, err error) {
	runs, err = look(ctx, c, samples)
	if err != nil {
		return nil, false, err
	}
	started, err := startedBy(ctx, c, schedules)
	if err != nil {
		return nil, false, err
	}
	return append(runs, started...), len(started) >= len(schedules), nil
}

// startLastSlot has a schedule make the run of its last slot, as a user does for a slot of the
// past: its next one may be a day away. Of a sample that was applied before, the run is there.
func startLastSlot(ctx context.Context, c client.Client, s *v1alpha1.Schedule) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	if s.Spec.Backfill != nil {
		return nil
	}
	slot, err := lastSlot(&s.Spec.ScheduleTiming, time.Now())
	if err != nil {
		return fmt.Errorf("find the last slot of schedule %s: %w", s.Name, err)
	}
	before := s.DeepCopy()
	s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(slot), To: metav1.NewTime(slot)}
	if err := c.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("start the last slot of schedule %s: %w", s.Name, err)
	}
	return nil
}

// lastSlot is the last slot until now. It is one, also in the hour in which slotsWithin has two of
// a daily schedule: the demo prints one row for a schedule, whatever the time of the day.
func lastSlot(timing *v1alpha1.ScheduleTiming, now time.Time) (slot time.Time, err error) {
	table, err := cron.New(timing.Cron, timing.TimeZone, cron.Rules{Gap: cron.Gap(timing.DST.Gap), Repeat: cron.Repeat(timing.DST.Repeat)})
	if err != nil {
		return time.Time{}, err
	}
	for next, ok := table.Next(now.Add(-slotsWithin)); ok && !next.After(now); next, ok = table.Next(next) {
		slot = next
	}
	if slot.IsZero() {
		return time.Time{}, fmt.Errorf("it has none in the last %s", slotsWithin)
	}
	return slot, nil
}

// startedBy are the runs of schedules; their runs are meant to succeed.
func startedBy(ctx context.Context, c client.Client, schedules []*v1alpha1.Schedule) ([]*v1alpha1.WorkflowRun, error) {
	var all []*v1alpha1.WorkflowRun
	for _, s := range schedules {
		var list v1alpha1.WorkflowRunList
		if err := c.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}); err != nil {
			return nil, fmt.Errorf("list runs of schedule %s: %w", s.Name, err)
		}
		for i := range list.Items {
			run := &list.Items[i]
			metav1.SetMetaDataAnnotation(&run.ObjectMeta, expectAnnotation, string(v1alpha1.RunSucceeded))
			all = append(all, run)
		}
	}
	return all, nil
}

// applySamples creates every object of the samples; runs are returned, in order of their files, and
// schedules.
func applySamples(ctx context.Context, c client.Client, dir string) (runs []*v1alpha1.WorkflowRun, schedules []*v1alpha1.Schedule, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, nil, fmt.Errorf("list samples: %w", err)
	}
	for _, file := range files {
		objects, err := applyFile(ctx, c, file)
		if err != nil {
			return nil, nil, fmt.Errorf("apply %s: %w", file, err)
		}
		for _, o := range objects {
			switch o := o.(type) {
			case *v1alpha1.WorkflowRun:
				runs = append(runs, o)
			case *v1alpha1.Schedule:
				schedules = append(schedules, o)
			}
		}
	}
	return runs, schedules, nil
}

// applyFile creates the objects of a file that are of our kinds.
func applyFile(ctx context.Context, c client.Client, file string) (all []client.Object, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		o, err := decode([]byte(doc))
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue
		}
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// kinds make an empty object of each of our kinds that samples have.
var kinds = map[string]func() client.Object{
	"WorkflowRun": func() client.Object { return &v1alpha1.WorkflowRun{} },
	"LockPolicy":  func() client.Object { return &v1alpha1.LockPolicy{} },
	"Semaphore":   func() client.Object { return &v1alpha1.Semaphore{} },
	"Workflow":    func() client.Object { return &v1alpha1.Workflow{} },
	"Schedule":    func() client.Object { return &v1alpha1.Schedule{} },
}

// decode reads one of our kinds; nil for others (the kustomization).
func decode(doc []byte) (client.Object, error) {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return nil, err
	}
	empty := kinds[kind.Kind]
	if empty == nil {
		return nil, nil //nolint:nilnil // not ours, no error
	}
	o := empty()
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
	lines := []string{fmt.Sprintf("%-17s %-10s %-6s %-18s %s", "RUN", "PHASE", "STEPS", "REASON", "STEPS IN DETAIL")}
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
		return fmt.Sprintf("%-17s %-10s", run.Name, v1alpha1.RunPending)
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
	return fmt.Sprintf("%-17s %-10s %-6s %-18s %s", run.Name, status.Phase, status.Progress, reason, strings.Join(steps, ", "))
}
