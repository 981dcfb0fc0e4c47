// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// RecordName is the name of the Lease that says which Redis was used last. Nobody holds it.
	RecordName = "syncopate-redis"
	// RedisSinceAnnotation is on it beside RedisAnnotation: since when that Redis is used without
	// another one in between, in ms of its clock.
	RedisSinceAnnotation = "syncopate.dev/redis-since"
	// recordTimeout bounds one call of the API server.
	recordTimeout = time.Second
)

// Record is what outlives all replicas and all Redis: which Redis was used last. It refuses nobody.
// Whoever finds another one there knows that the data of its own is of before a move.
type Record struct {
	// Reader must not read from a cache.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	Log       logr.Logger
}

// Since is since when the Redis of that name is the one in use, in ms of its clock. Where another
// one is noted, or none, this one is from now on. It is called before that Redis is used, and once
// nobody uses another one.
//
// Errors: those of the API server, and that others wrote it again and again. Nothing may be used in
// that Redis then.
func (r *Record) Since(ctx context.Context, name string, now int64) (since int64, err error) {
	for range mostWrites {
		since, err = r.try(ctx, name, now)
		if !errors.Is(err, errConflict) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("note in Lease %s/%s which Redis is used: %w", r.Namespace, RecordName, err)
	}
	return since, nil
}

// noted is since when the Redis is used that a Lease notes; 0: it does not say so.
func noted(l *coordinationv1.Lease) int64 {
	since, err := strconv.ParseInt(l.Annotations[RedisSinceAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return since
}

// try is Since once. It returns errConflict where somebody else was faster.
func (r *Record) try(ctx context.Context, name string, now int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: RecordName}}
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(l), l)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return 0, fmt.Errorf("read: %w", err)
	}
	last := l.Annotations[RedisAnnotation]
	if since := noted(l); since > 0 && last == name {
		return since, nil
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, RedisAnnotation, name)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, RedisSinceAnnotation, strconv.FormatInt(now, 10))
	if missing {
		metav1.SetMetaDataLabel(&l.ObjectMeta, "app.kubernetes.io/part-of", "syncopate")
		err = r.Writer.Create(ctx, l)
	} else {
		err = r.Writer.Update(ctx, l)
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return 0, errConflict
	case err != nil:
		return 0, fmt.Errorf("write: %w", err)
	}
	r.Log.Info("This Redis is used from now on: slots and locks in it are counted again from runs", "redis", name, "before", last)
	return now, nil
}
