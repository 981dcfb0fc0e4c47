// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// maxRevisions is how many ControllerRevisions of a policy are kept: those in status and
// in its history.
const maxRevisions = maxHistory + 2

// keepPatience is how long a status waits for revisions that the API server does not take now.
const keepPatience = 10 * time.Second

// keepTimeout bounds one try to store a revision: a webhook may answer late, or never, and the
// statuses of all policies wait for it.
const keepTimeout = 3 * time.Second

// keepRevisions stores what status is about to name, so that history has the content of what is
// long out of status. A refusal is no error: status has the content, and is written all the same.
// Nor is an outage, once one was refused or after a short while: the rollout goes on without it. A
// webhook that is down is an outage as well, and may be one for long.
func (r *Reconciler) keepRevisions(ctx context.Context, p *v1alpha1.LockPolicy, status *v1alpha1.LockPolicyStatus) (refusal, err error) {
	if status.Rollout == nil || r.Namespace == "" {
		delete(r.unkeptSince, p.Name)
		return nil, nil
	}
	made := false
	for _, rev := range r.toKeep(p, status.Rollout) {
		err := r.keepRevision(ctx, p, rev)
		if err == nil || apierrors.IsAlreadyExists(err) {
			made = made || err == nil
			delete(r.lost, nameOf(p, rev))
			continue
		}
		err = fmt.Errorf("keep revision %s of lock policy %s: %w", rev.Name, p.Name, err)
		if r.waitsToKeep(p, err) {
			return nil, err
		}
		refusal = err
	}
	if refusal == nil {
		delete(r.unkeptSince, p.Name)
	}
	if made {
		return refusal, r.pruneRevisions(ctx, p, status)
	}
	return refusal, nil
}

// waitsToKeep says whether the status of a policy is to wait for a revision that was not stored.
func (r *Reconciler) waitsToKeep(p *v1alpha1.LockPolicy, cause error) bool {
	if refused(cause) || (p.Status != nil && unkept(p.Status)) {
		return false
	}
	now := r.Clock.Now()
	since, known := r.unkeptSince[p.Name]
	if !known {
		if r.unkeptSince == nil {
			r.unkeptSince = map[string]time.Time{}
		}
		r.unkeptSince[p.Name], since = now, now
	}
	return now.Sub(since) < keepPatience
}

// refused says whether the API server refuses a revision. A webhook may deny one as a conflict,
// which is none of the policy's.
func refused(err error) bool { return revisions.Refused(err) || apierrors.IsConflict(err) }

// toKeep are the revisions that the next status names and the last does not. If that says that one
// was refused, all are tried again, and so are those that are lost.
func (r *Reconciler) toKeep(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyRolloutStatus) []*v1alpha1.RolloutRevision {
	return slices.DeleteFunc([]*v1alpha1.RolloutRevision{&next.Baseline, next.Candidate}, func(rev *v1alpha1.RolloutRevision) bool {
		return rev == nil || p.Status != nil && !unkept(p.Status) && names(p.Status.Rollout, rev.Name) && !r.lost[nameOf(p, rev)]
	})
}

// findLost looks once which of the revisions that statuses name are there.
func (r *Reconciler) findLost(ctx context.Context, policies []v1alpha1.LockPolicy) error {
	if r.lost != nil || r.Namespace == "" {
		return nil
	}
	var there appsv1.ControllerRevisionList
	if err := r.Live.List(ctx, &there, client.InNamespace(r.Namespace), client.HasLabels{policy.LabelRevisions}); err != nil {
		return fmt.Errorf("list revisions of all lock policies: %w", err)
	}
	r.lost = map[string]bool{}
	for i := range policies {
		p := &policies[i]
		if p.Status == nil || p.Status.Rollout == nil {
			continue
		}
		for _, rev := range []*v1alpha1.RolloutRevision{&p.Status.Rollout.Baseline, p.Status.Rollout.Candidate} {
			if rev != nil && !slices.ContainsFunc(there.Items, func(o appsv1.ControllerRevision) bool { return o.Name == nameOf(p, rev) }) {
				r.lost[nameOf(p, rev)] = true
			}
		}
	}
	return nil
}

// nameOf is the name of the ControllerRevision of a revision.
func nameOf(p *v1alpha1.LockPolicy, rev *v1alpha1.RolloutRevision) string {
	return policy.RevisionsLabel(p.Name) + "-" + rev.Name
}

func names(st *v1alpha1.LockPolicyRolloutStatus, revision string) bool {
	return st != nil && (st.Baseline.Name == revision || st.Candidate != nil && st.Candidate.Name == revision)
}

// unkept says that the API server refused a revision that a status names.
func unkept(status *v1alpha1.LockPolicyStatus) bool {
	return meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRevisionsKept) != nil
}

// mostRefusal bounds what is said of a refusal, in bytes: an event has 1024, with its other words.
const mostRefusal = 700

// mostReason bounds the reason in it, which a webhook words, too.
const mostReason = 64

// sayUnkept says in the next status of a policy whether a revision is refused. It returns the
// event, if the last status does not say so of this generation. A refusal for the same reason is
// not said anew: a webhook may word each one in another way, and each would be a write.
func sayUnkept(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus, refusal error, now time.Time) []rollout.Event {
	if refusal == nil {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionRevisionsKept)
		return nil
	}
	reason := bounds.Printable(string(cmp.Or(apierrors.ReasonForError(refusal), "None")), mostReason) // a webhook need not give one
	why := fmt.Sprintf("Not kept for the history (%s): ", reason)
	c := metav1.Condition{
		Type: v1alpha1.ConditionRevisionsKept, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRevisionNotKept,
		Message:            why + printable(refusal.Error()),
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	last := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionRevisionsKept)
	told := last != nil && last.ObservedGeneration == p.Generation
	if told && strings.HasPrefix(last.Message, why) {
		c.Message = last.Message
	}
	meta.SetStatusCondition(&next.Conditions, c)
	if told {
		return nil
	}
	return []rollout.Event{{Warning: true, Reason: v1alpha1.ReasonRevisionNotKept, Message: c.Message}}
}

// printable bounds the text of a refusal.
func printable(text string) string {
	text = bounds.Printable(text, mostRefusal)
	return strings.ToValidUTF8(text[:min(len(text), mostRefusal)], "")
}

// keepRevision makes a revision. It is the same write however often it is made, so a crash after
// it costs nothing. A full quota refuses one that is there, too: that says that it exists.
func (r *Reconciler) keepRevision(ctx context.Context, p *v1alpha1.LockPolicy, rev *v1alpha1.RolloutRevision) error {
	raw, err := json.Marshal(contentOf(rev))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: nameOf(p, rev), Labels: map[string]string{policy.LabelRevisions: policy.RevisionsLabel(p.Name)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "LockPolicy", Name: p.Name, UID: p.UID,
			}},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: rev.Generation,
	}
	bounded, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	err = r.Client.Create(bounded, made)
	if !refused(err) {
		return err
	}
	list, listErr := r.revisionsOf(ctx, p)
	if listErr == nil && slices.ContainsFunc(list, func(o appsv1.ControllerRevision) bool { return o.Name == made.Name }) {
		return apierrors.NewAlreadyExists(appsv1.Resource("controllerrevisions"), made.Name)
	}
	return err
}

// contentOf is what a ControllerRevision has.
func contentOf(rev *v1alpha1.RolloutRevision) map[string]any {
	content := map[string]any{"runLock": rev.RunLock}
	if rev.Admission != nil {
		content["admission"] = rev.Admission
	}
	return content
}

// revisionsOf are the revisions that are kept of policies of this name. They are owned by one: the
// label is also on the ControllerRevisions of a DaemonSet whose pods have it.
func (r *Reconciler) revisionsOf(ctx context.Context, p *v1alpha1.LockPolicy) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := r.Live.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingLabels{policy.LabelRevisions: policy.RevisionsLabel(p.Name)}); err != nil {
		return nil, fmt.Errorf("list revisions: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(rev appsv1.ControllerRevision) bool {
		return !slices.ContainsFunc(rev.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "LockPolicy" && o.Name == p.Name })
	}), nil
}

// pruneRevisions deletes the oldest revisions that are too many, but none that the status names, or
// is about to name. Those of another policy of this name, which is gone, go first: their
// generations say nothing here.
func (r *Reconciler) pruneRevisions(ctx context.Context, p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus) error {
	list, err := r.revisionsOf(ctx, p)
	if err != nil {
		return err
	}
	own := func(rev *appsv1.ControllerRevision) int {
		if slices.ContainsFunc(rev.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == p.UID }) {
			return 1
		}
		return 0
	}
	slices.SortFunc(list, func(a, b appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(own(&a), own(&b)), cmp.Compare(a.Revision, b.Revision))
	})
	for i := range max(0, len(list)-maxRevisions) {
		rev := &list[i]
		name := strings.TrimPrefix(rev.Name, policy.RevisionsLabel(p.Name)+"-")
		if names(next.Rollout, name) || p.Status != nil && names(p.Status.Rollout, name) {
			continue
		}
		if err := r.Client.Delete(ctx, rev); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete revision %s: %w", rev.Name, err)
		}
	}
	return nil
}
