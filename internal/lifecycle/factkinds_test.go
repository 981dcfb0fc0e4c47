// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// factKind is what a fact may say, and what it does.
type factKind struct {
	words string // those that it may have; "*": one, and any
	keys  string // those that it may have; one with "!" it must have
	play  func(*player, *fact) error
}

// factKinds are the facts that stories need so far: of what a decision depends on (Input), and of
// what a user changes in the spec.
var factKinds = map[string]factKind{
	"advance": {words: "*", play: (*player).advanceClock},
	"lock": {
		words: "held busy unavailable scopeRun renewed",
		keys:  "fence failures cause unlocked lost message", play: (*player).seeLock,
	},

	"started":   {keys: "step! item attempt", play: says(protocol.StatusStarted)},
	"succeeded": {keys: "step! item attempt output", play: says(protocol.StatusSucceeded)},
	"failed":    {words: "final", keys: "step! item attempt code message", play: says(protocol.StatusFailed)},
	"retry":     {keys: "step! item attempt after!", play: says(protocol.StatusRetry)},
	"unusable":  {keys: "step! item attempt cause!", play: says("")},

	"deadletter": {keys: "step! item attempt failures! cause!", play: (*player).putAside},
	"approve":    {keys: "step! by! comment output", play: decision(v1alpha1.Approve)},
	"reject":     {keys: "step! by! comment output", play: decision(v1alpha1.Reject)},
	"child": {
		words: "there postponed taken refused gone",
		keys:  "step! uid cause phase reason message output", play: (*player).seeChild,
	},
	"parent": {words: "unnamed named suspended cancelled terminated", play: (*player).seeParent},

	"suspend":   {play: editing(func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true })},
	"resume":    {play: editing(func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = false })},
	"cancel":    {play: editing(func(s *v1alpha1.WorkflowRunSpec) { s.Shutdown = v1alpha1.ShutdownCancel })},
	"terminate": {play: editing(func(s *v1alpha1.WorkflowRunSpec) { s.Shutdown = v1alpha1.ShutdownTerminate })},
}

func factNames() string { return strings.Join(slices.Sorted(maps.Keys(factKinds)), ", ") }

// check finds words and keys that the kind has not, and those that are missing.
func (k *factKind) check(f *fact) error {
	words, keys := strings.Fields(k.words), strings.Fields(k.keys)
	if k.words == "*" {
		words = f.words
	}
	for _, w := range f.words {
		if !slices.Contains(words, w) {
			return fmt.Errorf("unknown word %q, want one of: %s", w, k.words)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(keys, key) && !slices.Contains(keys, key+"!") {
			return fmt.Errorf("unknown key %q, want of: %s", key, strings.ReplaceAll(k.keys, "!", ""))
		}
	}
	for _, key := range keys {
		if name, must := strings.CutSuffix(key, "!"); must && f.text(name) == "" {
			return fmt.Errorf("%s= is missing", name)
		}
	}
	return nil
}

func (p *player) advanceClock(f *fact) error {
	if len(f.words) != 1 {
		return errors.New("want one duration, as 30s")
	}
	d, err := time.ParseDuration(f.words[0])
	p.now = p.now.Add(d)
	return err
}

// seeLock is about all of the lock: what a line does not say is not so.
func (p *player) seeLock(f *fact) error {
	fence, err := f.number("fence", 1)
	if err != nil {
		return err
	}
	failures, err := f.number("failures", 0)
	if err != nil {
		return err
	}
	states := map[string]Lock{"held": held(fence), "busy": busy(), "unavailable": unavailable()}
	if len(f.words) == 0 || states[f.words[0]].Holder == "" {
		return errors.New("want held, busy or unavailable first")
	}
	p.lock = states[f.words[0]]
	l := &p.lock
	l.ForRun, l.Renewed = f.has("scopeRun"), f.has("renewed")
	l.RenewalFailures, l.RenewalCause, l.Lost = int32(failures), f.text("cause"), f.text("lost")
	if text := f.text("message"); text != "" {
		l.Message = text
	}
	if since := f.text("unlocked"); since != "" {
		l.UnlockedSince, err = time.Parse(time.DateTime, epoch.Format(time.DateOnly)+" "+since)
	}
	return err
}

// says makes a message of a worker; one without status is unusable.
func says(status protocol.ResultStatus) func(*player, *fact) error {
	return func(p *player, f *fact) error {
		id, err := f.job()
		if err != nil {
			return err
		}
		r := Result{ID: id, PublishedAt: p.now, Rejected: f.text("cause")}
		r.Result.Status, r.Result.Final = status, f.has("final")
		if r.Result.Output, err = f.output(); err != nil {
			return err
		}
		if status == protocol.StatusFailed {
			r.Result.Error = &protocol.ResultError{Code: f.text("code"), Message: f.text("message")}
		}
		if after := f.text("after"); after != "" {
			var d time.Duration
			d, err = time.ParseDuration(after)
			r.Result.RetryAfterMillis = d.Milliseconds()
		}
		p.results = append(p.results, r)
		return err
	}
}

func (p *player) putAside(f *fact) error {
	id, err := f.job()
	if err != nil {
		return err
	}
	failures, err := f.number("failures", 0)
	p.dead = append(p.dead, DeadLetter{ID: id, Failures: int(failures), Cause: f.text("cause")})
	return err
}

func decision(which v1alpha1.ApprovalDecision) func(*player, *fact) error {
	return func(p *player, f *fact) error {
		output, err := f.output()
		p.said = append(p.said, Signal{
			Name: fmt.Sprintf("approval-%d", len(p.said)+1), Step: f.text("step"), Decision: which,
			Approver: f.text("by"), Comment: f.text("comment"), Output: output, At: p.now,
		})
		return err
	}
}

var childStates = map[string]ChildState{
	"there": ChildThere, "postponed": ChildPostponed, "taken": ChildTaken, "refused": ChildRefused, "gone": ChildGone,
}

// seeChild is about the child run of a step. With phase= it ended.
func (p *player) seeChild(f *fact) error {
	if len(f.words) != 1 {
		return errors.New("want one of there, postponed, taken, refused, gone")
	}
	for _, s := range Children(p.run) {
		if s.Name != f.text("step") {
			continue
		}
		output, err := f.output()
		if p.kids == nil {
			p.kids = map[string]Child{}
		}
		phase := v1alpha1.RunPhase(f.text("phase"))
		p.kids[s.ChildRun.Name] = Child{
			State: childStates[f.words[0]], UID: f.text("uid"), Finished: phase != "", Phase: phase,
			Reason: f.text("reason"), Message: f.text("message"), Output: output, Cause: f.text("cause"),
		}
		return err
	}
	return fmt.Errorf("step %s has no child run under way", f.text("step"))
}

// seeParent is about all of the parent of a child run: what a line does not say is not so.
func (p *player) seeParent(f *fact) error {
	if p.parent == nil {
		return errors.New("the run is no child, as one of the command \"run child\" is")
	}
	parent := aParent()
	for _, word := range f.words {
		switch word {
		case "unnamed":
			parent.Status.Steps[0].ChildRun.UID = ""
		case "suspended":
			parent.Status.Phase = v1alpha1.RunSuspended
		case "cancelled":
			parent.Status.Steps[0].Phase = v1alpha1.StepCancelled
		case "terminated":
			parent.Spec.Shutdown = v1alpha1.ShutdownTerminate
		}
	}
	p.seeing(parent)
	return nil
}

func editing(edit func(*v1alpha1.WorkflowRunSpec)) func(*player, *fact) error {
	return func(p *player, _ *fact) error {
		edit(&p.run.Spec)
		p.run.Generation++
		return nil
	}
}
