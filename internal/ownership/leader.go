// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// leader watches the Lease of --ownership=leader.
type leader struct {
	name    string
	version string
	since   rules.Time
	// left is the Lease of a holder that is gone; nil: there is none.
	left *coordinationv1.Lease
}

// holds says whether somebody holds leader election: there is a holder, and the Lease changed
// within its duration, as observed here.
func (l *leader) holds(ctx context.Context, c client.Reader, namespace string, now rules.Time) (bool, error) {
	var lease coordinationv1.Lease
	l.left = nil
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: l.name}, &lease)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the Lease of leader election: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return false, nil
	}
	if version := string(lease.UID) + versionSeparator + lease.ResourceVersion; version != l.version {
		l.version, l.since = version, now
	}
	if now-l.since < lasts(&lease, 15*time.Second) {
		return true, nil
	}
	l.left = &lease
	return false, nil
}

// free gives up the lead of a holder that is gone, as it does itself when it ends in good order.
// Else each member that starts takes it for one that lives, until it has seen the Lease unchanged
// for as long. One that came back meanwhile has written the Lease, and keeps it.
func (l *leader) free(ctx context.Context, c client.Client, owner bool) error {
	if l.left == nil || !owner {
		return nil
	}
	next := l.left.DeepCopy()
	next.Spec.HolderIdentity = new("")
	err := c.Update(ctx, next) // names the version that was seen
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("give up the lead of %s, which is gone: %w", *l.left.Spec.HolderIdentity, err)
	}
	return nil
}
