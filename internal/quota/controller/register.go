// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// registerTenant is where the register is among the idempotency keys. No tenant has this name.
	registerTenant = "-"
	// selfEntry keeps the register from being empty: what is empty ends after some days.
	selfEntry = "-"
	// wishEntry is in the register while somebody who found a key lost waits for a resync.
	wishEntry = "?"
	// wishOwner stands for all who do.
	wishOwner = "-"
)

// A key is slots of a policy and tenant or, without a policy, the idempotency keys of a tenant; as
// in package admission.

// entryOf is the name of a key in the register. A policy's name has no slash.
func entryOf(at store.Key) string { return at.Policy + "/" + at.Tenant }

func keyOfEntry(entry string) (at store.Key, ok bool) {
	at.Policy, at.Tenant, ok = strings.Cut(entry, "/")
	return at, ok
}

// opened makes a call about a key, and opens the key first if it was never used. If its data was
// lost the leader is asked for a rebuild, and the answer is the call's *store.RebuildingError.
func (k *Controller) opened(ctx context.Context, at store.Key, call func() error) error {
	return toldOf(ctx, k, at, k.openedIfNew(ctx, at, call))
}

// ifUsed makes a call that takes something from a key. Of one that was never used there is nothing
// to take, and it stays so: a run may end that named any tenant, and its namespace none of them. If
// its data was lost that is as with opened.
func ifUsed(ctx context.Context, k *Controller, at store.Key, call func() error) error {
	err := call()
	if !isClosed(err) {
		return err
	}
	entry, e := k.quota.ReserveKey(ctx, registerTenant, entryOf(at), store.Claim{UID: wishOwner}, 0)
	switch {
	case e == nil && entry.UID == "" && !at.Pool(): // the leader enters pools, as soon as it knows of them
		return nil
	case e != nil && !isClosed(e):
		return e
	}
	return toldOf(ctx, k, at, err)
}

// toldOf has the leader look if an error says that data of a key was lost. Data that is older than
// what this process has seen is open to one that has not seen that: so it is closed for all.
func toldOf(ctx context.Context, k *Controller, at store.Key, err error) error {
	if !isClosed(err) {
		return err
	}
	if isOlder(err) {
		_, _ = k.begin(ctx, at) // else whoever asks next does
	}
	k.quota.wish(ctx) // the leader may be another process
	k.kicks.Kick()
	return err
}

// isOlder says whether data is older than what this process has seen.
func isOlder(err error) bool {
	why, is := errors.AsType[*store.RebuildingError](err)
	return is && why.Why == store.RebuildOlder
}

// wish has the leader make a resync, whichever process it is. If the register is lost, too, there
// is no place for a wish, and the leader sees that by itself; of one that is older it does so once
// it is closed for all.
func (c counts) wish(ctx context.Context) {
	_, err := c.ClaimKey(ctx, registerTenant, wishEntry, store.Claim{UID: wishOwner}) // the resync comes in any case, some seconds later
	if isOlder(err) {
		_, _ = c.BeginRebuildKeys(ctx, registerTenant) // else whoever wishes next does
	}
}

// wishOnce is one wish for a run that waits until a reservation ends, however often it asks: no new
// reservation comes before it, and the resync sees to those that there are.
func wishOnce(ctx context.Context, k *Controller, uid types.UID) {
	k.mu.Lock()
	wished := k.wished[uid]
	k.wished[uid] = true
	k.mu.Unlock()
	if !wished {
		k.quota.wish(ctx) // the leader may be another process
	}
}

// wanted says whether a resync is wanted: the register is lost, or somebody wishes one. A wish is
// taken away before the resync, so what is wished during it is wished for the next.
func (c counts) wanted(ctx context.Context) bool {
	owner, err := c.ReserveKey(ctx, registerTenant, wishEntry, store.Claim{UID: wishOwner}, 0)
	if owner.UID != "" {
		_ = c.ReleaseKey(ctx, registerTenant, wishEntry, wishOwner) // if it stays, there is one resync more
	}
	return isClosed(err) || owner.UID != ""
}

func (k *Controller) openedIfNew(ctx context.Context, at store.Key, call func() error) error {
	err := call()
	if !isClosed(err) {
		return err
	}
	if e := k.open(ctx, at); e != nil && !isClosed(e) {
		return e
	}
	return call()
}

// open opens a key that was never used since Redis has its data: nobody has anything there. That is
// known from the register, which has each key that was opened with the token of its opening; and
// all who try at the same time have the same token. The order is what makes it safe: a key whose
// data is lost after begin cannot be finished, and one whose data was lost before is in the
// register, or the register itself is closed. It is no error if the key turns out to be open, or in
// use and lost.
func (k *Controller) open(ctx context.Context, at store.Key) error {
	if at.Pool() {
		return nil // only the leader does: runs may have been counted by tenant before
	}
	token, err := k.begin(ctx, at)
	if err != nil {
		return err
	}
	first, err := k.quota.ClaimKey(ctx, registerTenant, entryOf(at), store.Claim{UID: token})
	if err != nil || first.UID != token {
		return err
	}
	if pooled, err := k.inPool(ctx, at); err != nil || pooled {
		return err // the leader counts the tenants of this policy together
	}
	if err := k.finish(ctx, at, token, contents{}); !errors.Is(err, store.ErrRebuildLost) {
		return err
	}
	return nil
}

// contents are what a key has: UIDs of admitted runs, or owners of idempotency keys.
type contents struct {
	slots  []store.Member
	owners map[string]store.Claim
}

func (k *Controller) begin(ctx context.Context, at store.Key) (string, error) {
	if at.Policy == "" {
		return k.quota.BeginRebuildKeys(ctx, at.Tenant)
	}
	return k.quota.BeginRebuild(ctx, at)
}

func (k *Controller) finish(ctx context.Context, at store.Key, token string, c contents) error {
	if at.Policy == "" {
		return k.quota.FinishRebuildKeys(ctx, at.Tenant, token, c.owners)
	}
	return k.quota.FinishRebuild(ctx, at, token, c.slots)
}

// register is all keys in use, with the tokens of their openings; nil and no error when
// it is closed.
func (k *Controller) register(ctx context.Context) (map[store.Key]string, error) {
	entries, err := k.quota.Claims(ctx, registerTenant)
	if isClosed(err) {
		return nil, nil //nolint:nilnil // closed is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read the register of gates: %w", err)
	}
	keys := make(map[store.Key]string, len(entries))
	for entry, c := range entries {
		if at, ok := keyOfEntry(entry); ok {
			keys[at] = c.UID
		}
	}
	return keys, nil
}

// enter puts keys into the closed register and opens it.
func (k *Controller) enter(ctx context.Context, token string, keys map[store.Key]string) error {
	entries := map[string]store.Claim{selfEntry: {UID: token}}
	for at, t := range keys {
		entries[entryOf(at)] = store.Claim{UID: t}
	}
	return k.quota.FinishRebuildKeys(ctx, registerTenant, token, entries)
}

// strike takes a key out of the register, if it still has that token.
func (k *Controller) strike(ctx context.Context, at store.Key, token string) error {
	return k.quota.ReleaseKey(ctx, registerTenant, entryOf(at), token)
}

// unusedTime is how long a key is found empty at each look before it leaves the register. It would
// end by itself after some days, and then be taken for one that was lost.
const unusedTime = time.Hour

// retire has keys that hold nothing for a while leave the register: whoever comes opens them, as
// those that were never used. The data ends first, so nobody is in when the entry goes. One whose
// entry stays, as the process died in between, is taken for lost. One that is opened in between has
// another token, which is not struck.
func retire(ctx context.Context, k *Controller, v *view, h holdings) error {
	return each(ctx, unused(k, v, h), func(ctx context.Context, at store.Key) error {
		ended, err := store.Retire(ctx, k.quota.Store, at)
		if err == nil && ended {
			err = k.strike(ctx, at, h.tokens[at])
		}
		if err != nil && !isClosed(err) {
			return fmt.Errorf("retire what is not used: %w", err)
		}
		return nil
	})
}

// unused notes which keys hold nothing, and since when, and returns those that do for long enough.
// A pool is in use for as long as its policy is there, as only the leader could open it again.
func unused(k *Controller, v *view, h holdings) (due []store.Key) {
	now, empty := k.clock.Now(), map[store.Key]time.Time{}
	for at := range h.tokens {
		_, there := v.policies[at.Policy]
		if at.Pool() && there || h.lacks(at) || !h.empty(at) {
			continue
		}
		if resyncs.Lasts(k.unused, empty, at, now) >= unusedTime {
			due = append(due, at)
		}
	}
	k.unused = empty
	return due
}
