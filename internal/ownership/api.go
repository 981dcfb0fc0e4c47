// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// errConflict is returned by write where something else stands than what was to be replaced.
var errConflict = errors.New("the owners of partitions were written by somebody else")

// api reads and writes the one object. Each call is bounded in time.
type api struct {
	client    client.WithWatch
	namespace string
	scope     scope
	timeout   time.Duration
	// now reads whose cluster the API server is; nil: nobody can.
	now func(context.Context) (string, error)
}

// look reads the object. Where it is garbage it says why, and the Look has no Effective.
func (a *api) look(ctx context.Context, now func() rules.Time) (l rules.Look, why, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var object corev1.ConfigMap
	l.Sent = now()
	err = a.client.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: ObjectName}, &object)
	l.Received = now()
	if apierrors.IsNotFound(err) {
		return l, nil, nil
	}
	if err != nil {
		return l, nil, fmt.Errorf("read the owners of partitions: %w", err)
	}
	l.Version = object.ResourceVersion
	e, err := decode(&object, a.scope)
	switch {
	case errors.Is(err, errForeign):
		why, err = a.foreign(ctx, err)
		return l, why, err
	case errors.Is(err, ErrOtherInstallation) || errors.Is(err, errNewer):
		return l, nil, err
	case err != nil:
		return l, err, nil
	}
	l.Effective = &e
	return l, nil, nil
}

// foreign says what an object of another cluster is. Nobody of another cluster writes to this API
// server, so it was copied, as a restore of the namespace does: it is garbage, and why is the
// cause. Or the API server has become that of another cluster under this process, which has
// to end then.
func (a *api) foreign(ctx context.Context, theirs error) (why, err error) {
	if a.now == nil {
		return nil, theirs
	}
	is, err := a.now(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("whose are the owners of partitions: %w", err)
	case is != a.scope.installation:
		return nil, fmt.Errorf("%w; this cluster is %q now", theirs, is)
	}
	return fmt.Errorf("they were copied here: %w", theirs), nil
}

// write replaces the version base, or creates the object where base is empty. The answer is as good
// as a look.
func (a *api) write(ctx context.Context, e rules.Effective, base string, now func() rules.Time) (l rules.Look, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	object, err := encode(a.namespace, a.scope, e)
	if err != nil {
		return l, err
	}
	l.Sent = now()
	if base == "" {
		err = a.client.Create(ctx, object)
	} else {
		object.ResourceVersion = base
		err = a.client.Update(ctx, object)
	}
	l.Received = now()
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return l, errConflict
	case err != nil:
		return l, fmt.Errorf("write the owners of partitions: %w", err)
	}
	l.Version, l.Effective = object.ResourceVersion, &e
	return l, nil
}

// list lists the members, and what they say of Redis.
func (a *api) list(ctx context.Context, now func() rules.Time) (l rules.List, say []saying, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	l.Sent = now()
	l.Leases, say, err = listLeases(ctx, a.client, a.namespace)
	l.Received = now()
	return l, say, err
}

// bury deletes the Lease of a member that is gone, unless it was renewed meanwhile.
func (a *api) bury(ctx context.Context, dead rules.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	uid, version, _ := strings.Cut(dead.Version, versionSeparator)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: LeasePrefix + dead.Name}}
	err := a.client.Delete(ctx, lease, client.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &version})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the Lease of %s, which is gone: %w", dead.Name, err)
	}
	return nil
}
