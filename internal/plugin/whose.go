// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/timeline"
)

// errOtherCluster is told of a NATS or Redis that serves the operators of another cluster than the
// one of the kubeconfig: all that is in it would be of runs that are gone.
var errOtherCluster = errors.New("another cluster than your kubeconfig's: look at port-forwards and --context")

// ours makes sure that what is to be changed is this cluster's. Streams that name no cluster are
// anybody's.
func ours(ctx context.Context, c client.Reader, nats *bus.Conn) error {
	theirs, err := nats.Installation(ctx)
	if err == nil {
		err = same(ctx, c, theirs, "its streams say")
	}
	return whose("NATS", err)
}

// oursIsRedis is ours for Redis. One that names no cluster is anybody's. One that names this
// cluster may be that of the cluster of which this one is a copy.
func oursIsRedis(ctx context.Context, c client.Reader, r *store.Store, timers clock.Clock) error {
	theirs, err := store.Installation(ctx, r)
	if err == nil {
		err = same(ctx, c, theirs, "it says")
	}
	if err == nil && theirs != "" {
		err = abreast(ctx, c, r, theirs, timers)
	}
	return whose("Redis", err)
}

// abreast is *timeline.BackError if Redis saw more of the history of that installation than the API
// server has.
func abreast(ctx context.Context, c client.Reader, r *store.Store, installation string, timers clock.Clock) error {
	seen, err := store.RevisionOf(ctx, r, installation)
	if err != nil || seen == 0 {
		return err
	}
	if _, err = timeline.Reach(ctx, c, timers, seen); errors.Is(err, timeline.ErrOpaque) && !errors.Is(err, timeline.ErrUnsure) {
		return nil
	}
	return err
}

// lettersOfOurs connects to the dead letters of which some are to be redriven. They may be another
// cluster's as far as nobody tells: who redrives needs no rights in the cluster. A note says so.
func lettersOfOurs(ctx context.Context, a *app) (*deadletters.Store, error) {
	d, err := a.letters(ctx)
	if err != nil {
		return nil, err
	}
	switch err := whoseLetters(ctx, a, d); {
	case errors.Is(err, errOtherCluster):
		d.Close()
		return nil, whose("NATS", err)
	case err != nil:
		a.note("warning: whether NATS is your kubeconfig's cluster's is not known: %s", OneLine(err))
	}
	return d, nil
}

// whoseLetters is errOtherCluster if the dead letters name another cluster than the kubeconfig's.
func whoseLetters(ctx context.Context, a *app, d *deadletters.Store) error {
	theirs, err := d.Installation(ctx)
	if err != nil {
		return err
	}
	c, _, err := a.Cluster()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	return same(ctx, c, theirs, "its streams say")
}

// foreign is a warning where dead letters that are only to be read are another cluster's for
// certain; "": nobody tells.
func foreign(ctx context.Context, a *app, d *deadletters.Store) string {
	if err := whoseLetters(ctx, a, d); errors.Is(err, errOtherCluster) {
		return OneLine(whose("NATS", err))
	}
	return ""
}

// lettersToRead connects to dead letters that are to be shown, and warns if they are another
// cluster's: their runs are not found here.
func lettersToRead(ctx context.Context, a *app) (*deadletters.Store, error) {
	d, err := a.letters(ctx)
	if err != nil {
		return nil, err
	}
	if warning := foreign(ctx, a, d); warning != "" {
		a.note("warning: %s", warning)
	}
	return d, nil
}

// same says whether a name is that of the cluster of the kubeconfig.
func same(ctx context.Context, c client.Reader, theirs, said string) error {
	if theirs == "" {
		return nil
	}
	var ns corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: bus.ClusterNamespace}, &ns); err != nil {
		return err
	}
	if string(ns.UID) != theirs {
		return fmt.Errorf("%w (%s %s, and namespace %s has the UID %s)", errOtherCluster, said, theirs, bus.ClusterNamespace, ns.UID)
	}
	return nil
}

func whose(store string, err error) error {
	_, back := errors.AsType[*timeline.BackError](err)
	switch {
	case back: // it says all
		return err
	case errors.Is(err, errOtherCluster):
		return fmt.Errorf("%s is that of %w", store, err)
	case err != nil:
		return fmt.Errorf("find out whether %s is this cluster's: %w", store, err)
	}
	return nil
}
