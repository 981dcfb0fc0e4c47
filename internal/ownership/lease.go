// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

const (
	// LeaderLeaseName is the name of the Lease of --ownership=leader.
	LeaderLeaseName = "syncopate-manager"
	// LeasePrefix is before the name of a member in the name of its Lease.
	LeasePrefix = "syncopate-member-"
	// LeaseLabel is on the Leases of members. Its value is MemberLease.
	LeaseLabel = "syncopate.dev/lease"
	// MemberLease is the value of LeaseLabel.
	MemberLease = "member"
	// LeavingAnnotation is on the Lease of a member that hands its partitions on, to end.
	LeavingAnnotation = "syncopate.dev/leaving"
	// UnfitAnnotation is on the Lease of a member that others should take the partitions of. Its
	// value says why. It was "true" before, for all causes.
	UnfitAnnotation = "syncopate.dev/unfit"
	// UnfitDependency is its value where the member does not reach Redis or NATS.
	UnfitDependency = "dependency"
	// UnfitProbation is its value where the member has lost its Lease too often.
	UnfitProbation = "probation"
	// UnfitStarting is its value where the member has not begun yet, or begins again.
	UnfitStarting = "starting"
	// UnfitBlocked is its value where the member does nothing while somebody holds LeaderLeaseName,
	// or as long as it cannot read whether somebody does.
	UnfitBlocked = "leader"
	// UnfitRedis is its value where the member's Redis is not the one that the others use, or where
	// that is not known yet.
	UnfitRedis = "redis"
	// RedisAnnotation is on the Lease of a member that uses a Redis. Its value is the name that is
	// in that Redis.
	RedisAnnotation = "syncopate.dev/redis"
	// RedisWantedAnnotation is in its place until the member knows that no other one uses another
	// Redis.
	RedisWantedAnnotation = "syncopate.dev/redis-wanted"
)

var memberPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$`)

// errLeaseGone is what a renewal finds where the Lease was deleted or replaced.
var errLeaseGone = errors.New("the Lease of this member was deleted or replaced")

// ownLease is the Lease of this member. It is used by one goroutine at a time.
type ownLease struct {
	client            client.Client
	namespace, member string
	lease             time.Duration
	object            *coordinationv1.Lease // as last written; nil: it is to be created
	says              saying                // of Redis
}

// renew writes the Lease once more, or creates it. errLeaseGone: it was not there any more; the
// next renewal creates another.
func (o *ownLease) renew(ctx context.Context, mark rules.Mark, now time.Time) error {
	if o.object == nil {
		return o.create(ctx, mark, now)
	}
	err := o.update(ctx, mark, now)
	if !apierrors.IsConflict(err) {
		return o.gone(err)
	}
	// Somebody edited it, or an answer was lost.
	var stands coordinationv1.Lease
	if err := o.get(ctx, client.ObjectKeyFromObject(o.object), &stands); err != nil {
		return o.gone(err)
	}
	if stands.UID != o.object.UID {
		o.object = nil
		return errLeaseGone
	}
	o.object = &stands
	return o.gone(o.update(ctx, mark, now))
}

// gone forgets a Lease that is not there.
func (o *ownLease) gone(err error) error {
	if apierrors.IsNotFound(err) {
		o.object = nil
		return errLeaseGone
	}
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}

func (o *ownLease) create(ctx context.Context, mark rules.Mark, now time.Time) error {
	made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: LeasePrefix + o.member}}
	o.fill(made, mark, now)
	err := o.bounded(ctx, func(ctx context.Context) error { return o.client.Create(ctx, made) })
	if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
		return o.adopt(ctx, made, mark, now)
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	o.object = made
	return nil
}

// adopt renews the Lease that an earlier try to create it has left. Others count from that one, so
// to find it is no renewal.
func (o *ownLease) adopt(ctx context.Context, stands *coordinationv1.Lease, mark rules.Mark, now time.Time) error {
	if err := o.get(ctx, client.ObjectKeyFromObject(stands), stands); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if stands.Spec.HolderIdentity == nil || *stands.Spec.HolderIdentity != o.member {
		return fmt.Errorf("create: Lease %s is of %v", stands.Name, stands.Spec.HolderIdentity)
	}
	o.object = stands
	return o.gone(o.update(ctx, mark, now))
}

func (o *ownLease) update(ctx context.Context, mark rules.Mark, now time.Time) error {
	next := o.object.DeepCopy()
	o.fill(next, mark, now)
	if err := o.bounded(ctx, func(ctx context.Context) error { return o.client.Update(ctx, next) }); err != nil {
		return err
	}
	o.object = next
	return nil
}

func (o *ownLease) get(ctx context.Context, key client.ObjectKey, into *coordinationv1.Lease) error {
	return o.bounded(ctx, func(ctx context.Context) error { return o.client.Get(ctx, key, into) })
}

// bounded gives each call a time of its own: after an answer that was lost, a renewal takes three,
// and a slow API server would never get to the last of them. All together take less than a session.
func (o *ownLease) bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.lease/4)
	defer cancel()
	return call(ctx)
}

func (o *ownLease) fill(l *coordinationv1.Lease, mark rules.Mark, now time.Time) {
	seconds := int32(max(1, o.lease/time.Second))
	l.Labels = map[string]string{LeaseLabel: MemberLease, "app.kubernetes.io/part-of": "syncopate"}
	l.Annotations = map[string]string{}
	if mark.Leaving {
		l.Annotations[LeavingAnnotation] = "true"
	}
	if mark.Unfit {
		l.Annotations[UnfitAnnotation] = cmp.Or(mark.Cause, UnfitDependency)
	}
	switch {
	case o.says.settled:
		l.Annotations[RedisAnnotation] = o.says.name
	case o.says.name != "":
		l.Annotations[RedisWantedAnnotation] = o.says.name
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &o.member, &seconds
	l.Spec.RenewTime = &metav1.MicroTime{Time: now} // for people: no member compares it
	if l.Spec.AcquireTime == nil {
		l.Spec.AcquireTime = l.Spec.RenewTime
	}
}

// remove deletes the Lease, at the end.
func (o *ownLease) remove(ctx context.Context) error {
	if o.object == nil {
		return nil
	}
	uid := o.object.UID
	err := o.client.Delete(ctx, o.object, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete own Lease: %w", err)
	}
	return nil
}

// listLeases are the Leases of all members, and what each says of its Redis.
func listLeases(ctx context.Context, c client.Reader, namespace string) (all []rules.Lease, say []saying, err error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{LeaseLabel: MemberLease}); err != nil {
		return nil, nil, fmt.Errorf("list the members: %w", err)
	}
	for _, l := range list.Items {
		name, ok := strings.CutPrefix(l.Name, LeasePrefix)
		if !ok || l.DeletionTimestamp != nil {
			continue
		}
		all = append(all, rules.Lease{
			Name: name, Version: string(l.UID) + versionSeparator + l.ResourceVersion,
			Leaving: l.Annotations[LeavingAnnotation] != "", Unfit: l.Annotations[UnfitAnnotation] != "", Lasts: lasts(&l, 0),
		})
		uses := l.Annotations[RedisAnnotation]
		say = append(say, saying{
			member: name, name: cmp.Or(uses, l.Annotations[RedisWantedAnnotation]), settled: uses != "", created: l.CreationTimestamp.Time,
		})
	}
	return all, say, nil
}

// versionSeparator is between the uid and the resourceVersion of a Lease.
const versionSeparator = "/"

// mostSeconds bounds what a Lease may say of its duration.
const mostSeconds = 60

// lasts is how long a Lease counts, as it says.
func lasts(l *coordinationv1.Lease, otherwise time.Duration) time.Duration {
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(min(max(1, *s), mostSeconds)) * time.Second
	}
	return otherwise
}
