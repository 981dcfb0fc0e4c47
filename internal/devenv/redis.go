// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

const (
	redisStartTimeout = 10 * time.Second
	redisPollInterval = 20 * time.Millisecond
	// miniTick is how often the clock of the embedded stand-in is moved on: by itself it
	// does not run.
	miniTick = 50 * time.Millisecond
)

// Errors of StartRedis. Not worth a retry.
var (
	errNoRedis    = errors.New("redis-server is not on the PATH")
	errRedisStart = errors.New("redis-server does not answer")
)

// Redis is a redis-server of its own, or the embedded stand-in.
type Redis struct {
	Addr string
	Kind string // what runs, for people

	process *Process
	mini    *miniredis.Miniredis
	stop    chan struct{}
	done    sync.WaitGroup
}

// StartRedis starts the redis-server on the PATH; without one the embedded miniredis, unless a real
// one is required.
func StartRedis(ctx context.Context, dir string, requireReal bool) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return startServer(ctx, path, dir)
	}
	if requireReal {
		return nil, errNoRedis
	}
	return startMini()
}

func startServer(ctx context.Context, path, dir string) (*Redis, error) {
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(path, []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", dir,
	}, nil, filepath.Join(dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Kind: "redis-server " + path, process: p}
	return r, r.await(ctx)
}

// await polls until the server answers.
func (r *Redis) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisStartTimeout)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer func() { _ = c.Close() }() // nothing is lost with it
	tick := time.NewTicker(redisPollInterval)
	defer tick.Stop()
	for c.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			return errRedisStart
		case <-tick.C:
		}
	}
	return nil
}

func startMini() (*Redis, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("start embedded miniredis: %w", err)
	}
	r := &Redis{Addr: m.Addr(), Kind: "embedded miniredis (stand-in)", mini: m, stop: make(chan struct{})}
	r.done.Go(func() {
		tick := time.NewTicker(miniTick)
		defer tick.Stop()
		for {
			select {
			case <-r.stop:
				return
			case <-tick.C:
				m.FastForward(miniTick)
			}
		}
	})
	return r, nil
}

// Process is the redis-server's process; nil for the stand-in.
func (r *Redis) Process() *Process { return r.process }

// Stop ends Redis.
func (r *Redis) Stop() error {
	if r.mini != nil {
		close(r.stop)
		r.done.Wait()
		r.mini.Close()
		return nil
	}
	return r.process.Kill()
}
