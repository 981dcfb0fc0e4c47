// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// MaxOutputBytes bounds the output that a decision gives its step.
const MaxOutputBytes = 4 << 10

// Decision is what somebody decides about a step.
type Decision struct {
	What    v1alpha1.ApprovalDecision
	Step    string
	Comment string
	Output  string // a JSON object; "": none
}

// Decide makes a decision about a step of a run. run has its steps, also if it follows a Workflow.
func Decide(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, d Decision, now time.Time) (*v1alpha1.StepApproval, error) {
	if err := decidable(run, d.Step, now); err != nil {
		return nil, err
	}
	if err := undecided(ctx, c, run, d.Step, now); err != nil {
		return nil, err
	}
	return create(ctx, c, run, d)
}

// create stores the decision in the caller's name.
func create(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, d Decision) (*v1alpha1.StepApproval, error) {
	who := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, who); err != nil {
		return nil, fmt.Errorf("ask the API server who you are: %w", err)
	}
	user := who.Status.UserInfo.Username
	made := &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: run.Namespace, GenerateName: run.Name + "-" + d.Step + "-", // the API server cuts it
			OwnerReferences: []metav1.OwnerReference{v1alpha1.OwnerReference(run)},
		},
		Spec: v1alpha1.StepApprovalSpec{
			Run: run.Name, RunUID: string(run.UID), Step: d.Step, Decision: d.What, Approver: user, Comment: d.Comment,
		},
	}
	if d.Output != "" {
		made.Spec.Output = &runtime.RawExtension{Raw: []byte(d.Output)}
	}
	if err := c.Create(ctx, made); err != nil {
		return nil, refused(err, user, run.Namespace)
	}
	return made, nil
}

// refused says what to do about a refusal, where that is known.
func refused(err error, user, namespace string) error {
	// Admission refuses with the same status as RBAC, and names its policy.
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "denied request") {
		return fmt.Errorf("%s may not decide in namespace %s; the cluster role syncopate-approve gives that right: %w",
			runview.Printable(user, maxNameChars), namespace, err)
	}
	return fmt.Errorf("create the decision: %w", err)
}

// Status is a decision as status will tell of it.
func Status(d *v1alpha1.StepApproval) *v1alpha1.ApprovalStatus {
	return &v1alpha1.ApprovalStatus{
		Decision: d.Spec.Decision, Approver: d.Spec.Approver, Name: d.Name, Comment: d.Spec.Comment,
		DecidedAt: metav1.NewMicroTime(d.CreationTimestamp.Time),
	}
}
