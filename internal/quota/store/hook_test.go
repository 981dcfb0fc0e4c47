// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

var errLostReply = errors.New("the reply was lost")

// hook stands between a client and Redis. It is called before and after each command; an error from
// after replaces the reply.
type hook struct {
	mu     sync.Mutex
	before func(command string)
	after  func(command string) error
}

// DialHook implements redis.Hook.
func (*hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		before, after := h.before, h.after
		h.mu.Unlock()
		if before != nil {
			before(cmd.Name())
		}
		err := next(ctx, cmd)
		if after != nil && (err == nil || errors.Is(err, redis.Nil)) {
			if lost := after(cmd.Name()); lost != nil {
				cmd.SetErr(lost)
				return lost
			}
		}
		return err
	}
}

func (h *hook) set(before func(string), after func(string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

// hooked puts a hook before the scene's quota; all scripts are loaded already.
func (s *scene) hooked() *hook {
	s.t.Helper()
	h := &hook{}
	client := testClient(s.t, s.client.Options().Addr)
	client.AddHook(h)
	s.quota = testQuota(client, s.quota.opts)
	load(s.t, s.quota)
	return h
}

// load makes Redis know all scripts, so that each call is one command.
func load(t testing.TB, g *Store) {
	t.Helper()
	c, all := g.client, g.scripts
	for _, script := range []*redis.Script{
		all.admit, all.reserve, all.free, all.restore, all.begin, all.snapshot, all.unlock, all.claim, all.releaseKey, all.replaceKey, all.claims, all.reclaim,
		all.poolAdmit, all.poolReserve, all.poolFree, all.poolRestore, all.poolLimits, all.poolSnapshot,
	} {
		must(t, script.Load(t.Context(), c).Err(), "load a script")
	}
}

func isScript(command string) bool { return strings.HasPrefix(command, "eval") }
