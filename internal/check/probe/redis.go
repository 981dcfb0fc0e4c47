// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

const (
	// samples of the script, in samplesLimit at most.
	samples      = 200
	minSamples   = 20
	samplesLimit = 2 * time.Second
	// harmlessScript touches no key and asks for nothing.
	harmlessScript = "return 1"
)

// lookRedis asks the servers that take writes.
func lookRedis(ctx context.Context, o Options, operator check.Operator) check.Redis {
	fail := func(err error) check.Redis {
		return check.Redis{Unread: check.Unread{
			Why:  "Redis at " + strings.Join(o.Redis.Addrs, ",") + " does not answer: " + strings.Join(strings.Fields(err.Error()), " "),
			Hint: forward(operator.Settings.RedisAddrs, "redis.redis.svc:6379", "redis-addrs"),
		}}
	}
	c, err := lockmgr.NewClient(o.Redis)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = c.Close() }()
	var r check.Redis
	if r.Nodes, err = nodes(ctx, c); err != nil {
		return fail(err)
	}
	sent := o.Clock.Now()
	said, err := c.Time(ctx).Result()
	if err != nil {
		r.Clock.Unread = check.Unread{Why: err.Error()}
	} else {
		r.Clock = clockOf(said, 0, sent, o.Clock.Now())
	}
	r.Latency = latency(ctx, c, o)
	return r
}

// nodes are the servers that take writes: one, or the masters of a cluster.
func nodes(ctx context.Context, c goredis.UniversalClient) ([]check.RedisNode, error) {
	cluster, ok := c.(*goredis.ClusterClient)
	if !ok {
		n, err := node(ctx, c, "Redis")
		return []check.RedisNode{n}, err
	}
	var mu sync.Mutex
	var all []check.RedisNode
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		n, err := node(ctx, c, c.Options().Addr)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, n)
		return err
	})
	slices.SortFunc(all, func(a, b check.RedisNode) int { return strings.Compare(a.Addr, b.Addr) })
	return all, err
}

func node(ctx context.Context, c goredis.Cmdable, addr string) (check.RedisNode, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return check.RedisNode{}, fmt.Errorf("ask %s for INFO: %w", addr, err)
	}
	return nodeOf(addr, text), nil
}

// nodeOf reads the lines of INFO.
func nodeOf(addr, info string) check.RedisNode {
	values := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":"); ok {
			values[name] = value
		}
	}
	n := check.RedisNode{
		Addr: addr, Version: values["redis_version"], Eviction: values["maxmemory_policy"], Replica: values["role"] == "slave", AOF: values["aof_enabled"] == "1",
	}
	n.Replicas, _ = strconv.Atoi(values["connected_slaves"]) // absent: none
	for _, last := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		if values[last] == "err" {
			n.Broken = last + ": err"
		}
	}
	return n
}

// latency runs the script again and again.
func latency(ctx context.Context, c goredis.Cmdable, o Options) check.Latency {
	ctx, cancel := context.WithTimeout(ctx, samplesLimit)
	defer cancel()
	var took []time.Duration
	for range samples {
		begin := o.Clock.Now()
		if err := c.Eval(ctx, harmlessScript, nil).Err(); err != nil {
			if ctx.Err() != nil && len(took) >= minSamples {
				break
			}
			return check.Latency{Unread: check.Unread{Why: "run a script: " + err.Error(), Hint: "it takes the right +eval, which the operator has too"}}
		}
		took = append(took, o.Clock.Since(begin))
	}
	slices.Sort(took)
	const percentile = 99
	return check.Latency{P99: took[len(took)*percentile/100], Samples: len(took)}
}
