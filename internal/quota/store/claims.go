// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Claim is what a run says when it claims an idempotency key. None of it has spaces.
type Claim struct {
	// UID is the run's.
	UID string
	// Name is namespace/name of the run.
	Name string
	// SpecHash tells specs apart: a claim with another one is no repetition.
	SpecHash string
	// Reserved says of an owner that its run is about to be created, and has time left for that: it
	// may not exist yet. Answers only.
	Reserved bool
	// Lapsed says of an owner that this time is over, and that its run has not claimed the key
	// since: most likely it was never created. Answers only.
	Lapsed bool
}

// ClaimKey claims an idempotency key of a tenant for a run that exists. The first wins; owner is
// who that was: c, or what c's run claimed it with before, if it is ours. If the owner's run is
// found, by a live read, to be gone, release it and claim again.
//
// Errors: *UnavailableError, *RebuildingError (see BeginRebuildKeys), ErrInvalidRequest. After an
// error the key may be claimed.
func (g *Store) ClaimKey(ctx context.Context, tenant, key string, c Claim) (owner Claim, err error) {
	k := Key{Tenant: tenant}
	if err := errors.Join(k.check(), checkClaim(key, c)); err != nil {
		return Claim{}, err
	}
	return g.claimFor(ctx, k, key, c, 0)
}

// ReserveKey is ClaimKey for a run that is about to be created, for ttl by the clock of Redis, a
// minute at most: that long the claim stands though the run does not exist. ClaimKey of the same
// UID makes it one for good. A ttl of 0 only asks, for a dry run; the owner is then empty if there
// is none.
//
// Errors: as ClaimKey.
func (g *Store) ReserveKey(ctx context.Context, tenant, key string, c Claim, ttl time.Duration) (owner Claim, err error) {
	k := Key{Tenant: tenant}
	if err := errors.Join(k.check(), checkClaim(key, c)); err != nil {
		return Claim{}, err
	}
	if ttl <= 0 {
		return g.claimFor(ctx, k, key, c, onlyAsks)
	}
	return g.claimFor(ctx, k, key, c, ttl.Milliseconds())
}

// onlyAsks is the time of a claim that is not made.
const onlyAsks = -1

func (g *Store) claimFor(ctx context.Context, k Key, key string, c Claim, millis int64) (Claim, error) {
	got, err := g.askClaims(ctx, g.scripts.claim, k, field(key), c.value(), millis)
	if err != nil {
		return Claim{}, err
	}
	owner, until := parseClaim(got.text(1))
	owner.Reserved = got.number(2) == 1
	owner.Lapsed = until > 0 && !owner.Reserved
	return owner, nil
}

// ReleaseKey frees an idempotency key if the run of that UID owns it: the run is gone. Idempotent.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest. After one of the first two it
// must be repeated.
func (g *Store) ReleaseKey(ctx context.Context, tenant, key, uid string) error {
	return ReleaseClaim(ctx, g, tenant, key, Claim{UID: uid})
}

// ReleaseClaim is ReleaseKey for an owner as it was told. One that is Lapsed keeps the key if its
// run has claimed it since: who looked for that run may have done so before it was created.
//
// Errors: as ReleaseKey.
func ReleaseClaim(ctx context.Context, g *Store, tenant, key string, owner Claim) error {
	k := Key{Tenant: tenant}
	if err := errors.Join(k.check(), checkClaim(key, Claim{UID: owner.UID})); err != nil {
		return err
	}
	only := ""
	if owner.Lapsed {
		only = "lapsed"
	}
	_, err := g.askClaims(ctx, g.scripts.releaseKey, k, field(key), owner.UID, only)
	return err
}

// ReplaceKey gives an idempotency key from the run of a UID, or from nobody, to another run for
// good, in one step. It does nothing if somebody else owns it. Idempotent.
//
// Errors: as ClaimKey.
func (g *Store) ReplaceKey(ctx context.Context, tenant, key, uid string, c Claim) error {
	k := Key{Tenant: tenant}
	if err := errors.Join(k.check(), checkClaim(key, c)); err != nil {
		return err
	}
	_, err := g.askClaims(ctx, g.scripts.replaceKey, k, field(key), uid, c.value())
	return err
}

// Claims are all idempotency keys of a tenant with their owners, to compare with the run objects.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest.
func (g *Store) Claims(ctx context.Context, tenant string) (map[string]Claim, error) {
	k := Key{Tenant: tenant}
	if err := k.check(); err != nil {
		return nil, err
	}
	got, err := g.askClaims(ctx, g.scripts.claims, k)
	if err != nil {
		return nil, err
	}
	owners, now, last := map[string]Claim{}, int64(got.number(2)), int64(got.number(3))
	for fields := got.list(1); len(fields) > 1; fields = fields[2:] {
		if key, ok := strings.CutPrefix(fields.text(0), "="); ok {
			owner, until := parseClaim(fields.text(1))
			owner.Reserved = until > now && until <= last
			owner.Lapsed = until > 0 && !owner.Reserved
			owners[key] = owner
		}
	}
	return owners, nil
}

// BeginRebuildKeys is BeginRebuild for the idempotency keys of a tenant.
//
// Errors: as BeginRebuild.
func (g *Store) BeginRebuildKeys(ctx context.Context, tenant string) (token string, err error) {
	k := Key{Tenant: tenant}
	if err := k.check(); err != nil {
		return "", err
	}
	return g.begin(ctx, k, g.claimKeys(tenant))
}

// FinishRebuildKeys opens the idempotency keys of a tenant again. owners are those of all runs that
// exist. If somebody else opened them already the claims that were made since stand.
//
// Errors: as FinishRebuild.
func (g *Store) FinishRebuildKeys(ctx context.Context, tenant, token string, owners map[string]Claim) error {
	k := Key{Tenant: tenant}
	err := errors.Join(k.check(), checkToken(token))
	keys := slices.Sorted(maps.Keys(owners))
	for _, key := range keys {
		err = errors.Join(err, checkClaim(key, owners[key]))
	}
	if err != nil {
		return err
	}
	err = inPortions(keys, func(some []string, last bool) error {
		args := []any{token, moreComes(last)}
		for _, key := range some {
			args = append(args, field(key), owners[key].value())
		}
		_, err := g.askClaims(ctx, g.scripts.reclaim, k, args...)
		return err
	})
	if errors.Is(err, errLost) {
		return fmt.Errorf("%w (idempotency keys of tenant %s)", ErrRebuildLost, tenant)
	}
	return err
}

func (g *Store) claimKeys(tenant string) []string {
	return []string{"{" + g.opts.KeyPrefix + "admkeys:" + tenant + "}:keys"}
}

func (g *Store) askClaims(ctx context.Context, s *redis.Script, k Key, args ...any) (reply, error) {
	keys := g.claimKeys(k.Tenant)
	got, err := g.ask(ctx, s, k, keys, args...)
	if err == nil {
		g.learn(keys[0], got)
	}
	return got, err
}

// field is the name of an idempotency key in the hash: it cannot be that of the epoch.
func field(key string) string { return "=" + key }

func (c Claim) value() string { return c.UID + " " + c.Name + " " + c.SpecHash }

// parseClaim reads a claim, and until when its run may be created, in ms by the clock of Redis;
// 0: it exists.
func parseClaim(value string) (c Claim, until int64) {
	uid, rest, _ := strings.Cut(value, " ")
	name, rest, _ := strings.Cut(rest, " ")
	hash, end, _ := strings.Cut(rest, " ")
	until, _ = strconv.ParseInt(end, 10, 64)
	return Claim{UID: uid, Name: name, SpecHash: hash}, until
}

func checkClaim(key string, c Claim) error {
	if key == "" || len(key) > maxName {
		return fmt.Errorf("%w: idempotency key %.100q", ErrInvalidRequest, key)
	}
	if !plain(c.Name) || !plain(c.SpecHash) {
		return fmt.Errorf("%w: claim %.100q", ErrInvalidRequest, c.value())
	}
	return checkUIDs(c.UID)
}
