// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

const (
	// keyLookPause is when the keys are read at the latest, whatever the watch says: it may
	// not be allowed.
	keyLookPause = time.Minute
	// keyRetryPause is the wait after the keys could not be read.
	keyRetryPause = 2 * time.Second
)

// keyWatch has the keys read again when their Secret changed. All replicas do so: one that stands
// by signs as soon as it leads.
type keyWatch struct {
	reload  func(context.Context) error
	clock   clock.WithTicker
	changed chan struct{} // has one place: several changes are one
}

func newKeyWatch(c clock.WithTicker, reload func(context.Context) error) *keyWatch {
	return &keyWatch{reload: reload, clock: c, changed: make(chan struct{}, 1)}
}

// followKeys watches the key Secret, its metadata only, and adds what reloads the keys then. The
// watch has a cache of its own: where it is not allowed, nothing else waits for it.
func followKeys(ctx context.Context, mgr manager.Manager, config *rest.Config, namespace string, reload func(context.Context) error) error {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	// RBAC allows to list and watch a single object by name if the request has it as
	// field selector.
	byName := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", keySecret)}
	secrets, err := cache.New(config, cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{secret: {Namespaces: map[string]cache.Config{namespace: byName}}},
	})
	if err != nil {
		return fmt.Errorf("make cache for keys: %w", err)
	}
	informer, err := secrets.GetInformer(ctx, secret, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch keys: %w", err)
	}
	w := newKeyWatch(clock.RealClock{}, reload)
	if _, err := informer.AddEventHandler(w.handler()); err != nil {
		return fmt.Errorf("watch keys: %w", err)
	}
	return errors.Join(mgr.Add(secrets), mgr.Add(w))
}

func (w *keyWatch) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.notice() },
		UpdateFunc: func(any, any) { w.notice() },
		DeleteFunc: func(any) { w.notice() },
	}
}

func (w *keyWatch) notice() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Start reads the keys at once, since they may have changed before the watch began, and after each
// change, until ctx ends.
func (w *keyWatch) Start(ctx context.Context) error {
	for {
		pause := keyLookPause
		if err := w.reload(ctx); err != nil && !errors.Is(err, bus.ErrConfig) { // unusable keys do not mend by themselves
			pause = keyRetryPause
		}
		timer := w.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *keyWatch) NeedLeaderElection() bool { return false }
