// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// maxClaimTries bounds the owners that are found to be gone, one after the other, in one call.
const maxClaimTries = 4

// errClaimContended is returned when the owners of an idempotency key changed all the
// time. Try again.
var errClaimContended = errors.New("the owner of the idempotency key keeps changing")

// errBeingCreated is returned to a run that exists while another one has its key, which is about to
// be created and has time left for that. Try again: it is there in a moment, or its time is over.
var errBeingCreated = errors.New("a run is being created that has the idempotency key")

// Owner is the run that has an idempotency key.
type Owner struct {
	// Name is namespace/name.
	Name string
	// Same says whether its spec is the same, but for what does not change the work: suspend,
	// shutdown, ttlSecondsAfterFinished, priority, tenant and idempotencyKey.
	Same bool
}

// Claim claims spec.idempotencyKey for a run that exists; without a key there is nothing to claim.
// owner nil: it is ours, or nobody else's. The first run that claims has the key for as long as it
// exists, unless it was itself refused for the key. A claim whose run is gone by a live read, and
// by the cache, is taken over. Claim again before each try to admit the run: a claim may get lost
// with Redis' data, and then another run may have the key.
//
// Errors: *store.UnavailableError, *store.RebuildingError, store.ErrInvalidRequest, those of
// reading a run, resyncs.ErrDoubted among them. After an error the run must not be admitted; the
// key may be claimed.
func (k *Controller) Claim(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string) (owner *Owner, err error) {
	if run.Spec.IdempotencyKey == "" {
		return nil, nil //nolint:nilnil // nobody else's
	}
	ours, err := claimOf(run)
	if err != nil {
		return nil, err
	}
	for range maxClaimTries {
		first, err := k.claim(ctx, tenant, run.Spec.IdempotencyKey, ours)
		if err != nil {
			return nil, fmt.Errorf("claim the idempotency key: %w", err)
		}
		if first.UID == ours.UID {
			return nil, nil //nolint:nilnil // ours
		}
		owner, err := k.rival(ctx, first, ours, false)
		if err != nil || owner != nil {
			return owner, err
		}
		if first.Reserved {
			return nil, fmt.Errorf("%w: run %s", errBeingCreated, first.Name)
		}
		if err := store.ReleaseClaim(ctx, k.quota.Store, tenant, run.Spec.IdempotencyKey, first); err != nil {
			return nil, fmt.Errorf("take over an idempotency key: %w", err)
		}
	}
	return nil, errClaimContended
}

// ReserveKey claims spec.idempotencyKey for a run that is about to be created, for ttl; Claim of
// the same UID makes it one for good. run is as in the admission request. A ttl of 0 only asks.
// owner nil: it is ours, or nobody's. A run that is about to be created counts as owner while it
// has time left, whether it exists or not; of equal creations at the same moment one has the key.
//
// Errors: as Claim.
func (k *Controller) ReserveKey(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, ttl time.Duration) (owner *Owner, err error) {
	ours, err := claimOf(run)
	if err != nil {
		return nil, err
	}
	for range maxClaimTries {
		first, err := k.reserveKey(ctx, tenant, run.Spec.IdempotencyKey, ours, ttl)
		if err != nil {
			return nil, fmt.Errorf("reserve the idempotency key: %w", err)
		}
		if first.UID == "" || first.UID == ours.UID {
			return nil, nil //nolint:nilnil // nobody else's
		}
		owner, err := k.rival(ctx, first, ours, true)
		if err != nil || owner != nil || ttl <= 0 {
			return owner, err
		}
		if err := store.ReleaseClaim(ctx, k.quota.Store, tenant, run.Spec.IdempotencyKey, first); err != nil {
			return nil, fmt.Errorf("take over an idempotency key: %w", err)
		}
	}
	return nil, errClaimContended
}

// rival is who has the key by a claim that is not ours; nil: nobody any more. unborn counts runs
// that are about to be created, too.
func (k *Controller) rival(ctx context.Context, first, ours store.Claim, unborn bool) (*Owner, error) {
	theirs, err := k.claimant(ctx, first)
	if err == nil && theirs.UID == "" && unborn && first.Reserved {
		theirs = first
	}
	if err != nil || theirs.UID == "" {
		return nil, err
	}
	return &Owner{Name: theirs.Name, Same: theirs.SpecHash == ours.SpecHash}, nil
}

func (k *Controller) reserveKey(ctx context.Context, tenant, key string, c store.Claim, ttl time.Duration) (first store.Claim, err error) {
	err = k.opened(ctx, store.Key{Tenant: tenant}, func() (err error) {
		first, err = k.quota.ReserveKey(ctx, tenant, key, c, ttl)
		return err
	})
	return first, err
}

// ReleaseKey gives an idempotency key up if it is that of the run: the run is gone. Idempotent.
// While the data is being rebuilt there is nothing to wait for: who claims the key looks
// whether its run exists.
//
// Errors: *store.UnavailableError. The next resync of the leader does what was not done.
func (k *Controller) ReleaseKey(ctx context.Context, uid types.UID, tenant, key string) error {
	if key == "" {
		return nil
	}
	err := ifUsed(ctx, k, store.Key{Tenant: tenant}, func() error { return k.quota.ReleaseKey(ctx, tenant, key, string(uid)) })
	if err != nil && !isClosed(err) {
		return fmt.Errorf("give up the idempotency key: %w", err)
	}
	return nil
}

func (k *Controller) claim(ctx context.Context, tenant, key string, c store.Claim) (first store.Claim, err error) {
	err = k.opened(ctx, store.Key{Tenant: tenant}, func() (err error) {
		first, err = k.quota.ClaimKey(ctx, tenant, key, c)
		return err
	})
	return first, err
}

// claimant is a claim with its run's spec as it is now, read live: a hash of an older version of
// the operator may not compare. It is empty if the run is gone, or was itself refused.
func (k *Controller) claimant(ctx context.Context, c store.Claim) (store.Claim, error) {
	run, err := resyncs.Read(ctx, k.live, k.client, nameOf(c.Name), types.UID(c.UID))
	if err != nil || run == nil || string(run.UID) != c.UID || factOf(run).refused {
		return store.Claim{}, err
	}
	return claimOf(run)
}

func claimOf(run *v1alpha1.WorkflowRun) (store.Claim, error) {
	hash, err := specHash(run.Spec)
	if err != nil {
		return store.Claim{}, fmt.Errorf("hash the spec of run %s/%s: %w", run.Namespace, run.Name, err)
	}
	return store.Claim{UID: string(run.UID), Name: run.Namespace + "/" + run.Name, SpecHash: hash}, nil
}

// specHash tells the work of specs apart. The order of fields in inputs does not matter; how
// numbers are written does.
func specHash(spec v1alpha1.WorkflowRunSpec) (string, error) {
	spec.Suspend, spec.Shutdown, spec.TTLSecondsAfterFinished, spec.Priority = false, "", nil, 0
	spec.Tenant, spec.IdempotencyKey = "", ""
	spec.Steps, spec.Finally, spec.Locks = withDefaults(spec.Steps), withDefaults(spec.Finally), withPermits(spec.Locks)
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	var canonical any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber() // large ones stay what they are
	if err := d.Decode(&canonical); err != nil {
		return "", err
	}
	if raw, err = json.Marshal(canonical); err != nil { // with the fields of objects in order
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16]), nil
}
