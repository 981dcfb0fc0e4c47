// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

const (
	maxComment = 1024
	// markBytes have a name in 63 characters, with the 51 that actions.Again begins it with.
	markBytes = 6
)

// act does what a form of a run asks for, as a write of its user, and leads back to the run.
func (s *Server) act(ctx context.Context, v visit) (answer, error) {
	namespace, name, verb := v.PathValue("namespace"), v.PathValue("name"), v.PathValue("action")
	if v.PostFormValue("uid") == "" {
		return answer{}, fmt.Errorf("%w: the form does not say which run is meant", errForged)
	}
	var err error
	switch verb {
	case "cancel", "terminate", "suspend", "resume":
		err = change(ctx, v, verb)
	case "approve":
		err = s.decide(ctx, v, v1alpha1.Approve)
	case "reject":
		err = s.decide(ctx, v, v1alpha1.Reject)
	case "rerun":
		name, err = s.rerun(ctx, v)
	default:
		err = fmt.Errorf("%w: %q is no action", errSenseless, verb)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{elsew: "runs/" + namespace + "/" + name + "?done=" + verb}, nil
}

// meant reads the run that a form is about; not a later one of its name.
func (v visit) meant(ctx context.Context) (*v1alpha1.WorkflowRun, error) {
	run, err := v.view.Stored(ctx, v.PathValue("namespace"), v.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if string(run.UID) != v.PostFormValue("uid") {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, run.Name,
			errors.New("it is another run than the one that you saw"))
	}
	return run, nil
}

// change has a run end early, pause or go on, if it has not ended.
func change(ctx context.Context, v visit, verb string) error {
	run, err := v.meant(ctx)
	if err != nil {
		return err
	}
	switch verb {
	case "cancel":
		return actions.End(ctx, v.view.Client, run, v1alpha1.ShutdownCancel)
	case "terminate":
		return actions.End(ctx, v.view.Client, run, v1alpha1.ShutdownTerminate)
	default:
		return actions.Suspend(ctx, v.view.Client, run, verb == "suspend")
	}
}

func (s *Server) decide(ctx context.Context, v visit, what v1alpha1.ApprovalDecision) error {
	run, err := v.meant(ctx)
	if err != nil {
		return err
	}
	if run, err = reads.WithSteps(ctx, v.view.Client, run); err != nil && !errors.Is(err, reads.ErrHidden) {
		return err
	}
	comment := strings.TrimSpace(v.PostFormValue("comment"))
	if len([]rune(comment)) > maxComment {
		return fmt.Errorf("%w: the comment has more than %d characters", errSenseless, maxComment)
	}
	_, err = actions.Decide(ctx, v.view.Client, run, actions.Decision{What: what, Step: v.PostFormValue("step"), Comment: comment}, v.now)
	return err
}

// rerun creates a run that does the same again, and gives its name. A form that is sent twice, as
// by a double click or a reload, creates one: what it said of its page is in the name.
func (s *Server) rerun(ctx context.Context, v visit) (string, error) {
	was, err := v.meant(ctx)
	if err != nil {
		return "", err
	}
	nonce := v.PostFormValue("nonce")
	if nonce == "" {
		return "", fmt.Errorf("%w: the form does not say of which page it is", errForged)
	}
	next, err := actions.Again(was, v.now)
	if err != nil {
		return "", err
	}
	next.Name, next.GenerateName = next.GenerateName+mark(v.view.User, string(was.UID), nonce), ""
	if err = actions.Create(ctx, v.view.Client, was, next); err == nil {
		return next.Name, nil
	}
	if _, missing := v.view.Stored(ctx, next.Namespace, next.Name); missing == nil { // this form made it, and the quota may be used up since
		return next.Name, nil
	}
	return "", err
}

// mark is the end of the name of a run that a form made.
func mark(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:markBytes])
}
