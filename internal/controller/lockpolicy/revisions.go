// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// maxRevisions is how many ControllerRevisions of a policy are kept: those in status and
// in its history.
const maxRevisions = maxHistory + 2

// maxLabel is the length of a label's value.
const maxLabel = 63

// LabelPolicy on a ControllerRevision names the LockPolicy whose it is; a name that is too long for
// a label is cut, with a hash of it.
const LabelPolicy = "syncopate.dev/lock-policy"

// keepRevision stores a revision. It is the same write however often it is made, so a crash after
// it costs nothing.
func (r *Reconciler) keepRevision(ctx context.Context, p *v1alpha1.LockPolicy, rev *v1alpha1.RolloutRevision) error {
	raw, err := json.Marshal(contentOf(rev))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	err = r.Client.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: labelOf(p) + "-" + rev.Name, Labels: map[string]string{LabelPolicy: labelOf(p)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "LockPolicy", Name: p.Name, UID: p.UID,
			}},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: rev.Generation,
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.pruneRevisions(ctx, p)
}

// contentOf is what a ControllerRevision has.
func contentOf(rev *v1alpha1.RolloutRevision) map[string]any {
	content := map[string]any{"runLock": rev.RunLock}
	if rev.Admission != nil {
		content["admission"] = rev.Admission
	}
	return content
}

// labelOf names a policy in a label.
func labelOf(p *v1alpha1.LockPolicy) string {
	if len(p.Name) <= maxLabel {
		return p.Name
	}
	sum := sha256.Sum256([]byte(p.Name))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	return strings.TrimRight(p.Name[:maxLabel-1-hashLength], ".-") + "-" + hash
}

// pruneRevisions deletes the oldest revisions that are too many.
func (r *Reconciler) pruneRevisions(ctx context.Context, p *v1alpha1.LockPolicy) error {
	var list appsv1.ControllerRevisionList
	if err := r.Live.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingLabels{LabelPolicy: labelOf(p)}); err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	for i := range max(0, len(list.Items)-maxRevisions) {
		rev := &list.Items[i]
		if p.Status != nil && names(p.Status.Rollout, strings.TrimPrefix(rev.Name, labelOf(p)+"-")) {
			continue
		}
		if err := r.Client.Delete(ctx, rev); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete revision %s: %w", rev.Name, err)
		}
	}
	return nil
}
