// SPDX-License-Identifier: Apache-2.0

// Package timeline notices an API server that is behind what an installation saw: etcd was restored
// from a backup, or one of two clusters is a copy of the other. The UID of a cluster tells neither
// (ADR 64). Redis has the highest revision that was seen, see quota/store.Revision.
package timeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// answers is how many have to be below what was seen.
	answers = 5
	// pause is the time between two of them. A server of k3s with its data in SQL may lag that much
	// behind the others.
	pause = time.Second
	// timeout bounds one question.
	timeout = 5 * time.Second
	// patience is how long an API server that was behind may answer with errors.
	patience = 30 * time.Second
)

// ErrOpaque is told of an API server whose revisions are no numbers: they cannot be compared.
var ErrOpaque = errors.New("revisions of the API server are no numbers")

// ErrUnsure is told of an API server that was below what was seen, and then could not be asked.
var ErrUnsure = errors.New("the API server was below what this installation has seen, and that could not be confirmed")

// BackError says that the API server is at a lower revision than it was.
type BackError struct {
	Now  uint64 // the API server's
	Seen uint64 // by the installation
}

// Error implements error.
func (e *BackError) Error() string {
	return fmt.Sprintf("the API server is at revision %d, and this installation has seen %d: etcd was restored from a backup, or this cluster is a copy of "+
		"another one. A copy: cut it off from NATS and Redis. A restore: remove the streams of jobs and results and empty Redis, see docs/production.md, Backups",
		e.Now, e.Seen)
}

// Reach is the revision of the API server, which has to be at least what was seen. What was seen
// has to be read before: whoever saw it had asked the API server before this does. The other way
// round others could see more in between, beyond what this one was told.
//
// An API server that is behind is asked again: it may lag behind another one. From then on an error
// is neither yes nor no, since an API server flaps while etcd is restored.
//
// Errors: *BackError where enough answers were below, ErrUnsure where one was and the others did
// not come, ErrOpaque, and those of the API server, which say nothing about its history.
func Reach(ctx context.Context, api client.Reader, c clock.Clock, seen uint64) (uint64, error) {
	began := c.Now()
	for below := 0; ; {
		now, err := revision(ctx, api)
		switch {
		case err == nil && now >= seen:
			return now, nil
		case err == nil:
			below++
		case below == 0:
			return 0, err
		case c.Since(began) >= patience:
			return 0, fmt.Errorf("%w: %w", ErrUnsure, err)
		}
		if below == answers {
			return 0, &BackError{Now: now, Seen: seen}
		}
		if err := wait(ctx, c); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnsure, err)
		}
	}
}

// wait ends after the pause, or with ctx.
func wait(ctx context.Context, c clock.Clock) error {
	timer := c.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("ask the API server again: %w", ctx.Err())
	case <-timer.C():
		return nil
	}
}

// revision asks for namespaces: there are always some. For a list of nothing k3s with its data in
// SQL answers what the server that was asked remembers.
func revision(ctx context.Context, api client.Reader) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := api.List(ctx, list, client.Limit(1)); err != nil { // that names no version: the API server asks etcd
		return 0, fmt.Errorf("ask the API server for its revision: %w", err)
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil || revision == 0 {
		return 0, fmt.Errorf("%w: %q", ErrOpaque, list.ResourceVersion)
	}
	return revision, nil
}
