// SPDX-License-Identifier: Apache-2.0

package check

import "time"

func judgeRedis(f Facts) []Finding {
	r := f.Redis
	if r.Why != "" {
		return unreadAll(r.Unread, RedisVersion, RedisEviction, RedisPersistence, RedisReplicas, RedisLatency)
	}
	var found []Finding
	for _, n := range r.Nodes {
		found = append(found, RedisVersion.version("Redis at "+n.Addr, n.Version, minRedis)...)
		found = append(found, n.eviction(), n.persistence(), n.replicas(len(r.Nodes)))
	}
	return append(found, r.latency(shortestTimeout(f))...)
}

func (n RedisNode) eviction() Finding {
	switch n.Eviction {
	case "noeviction":
		return RedisEviction.find(OK, "", "%s evicts nothing", n.Addr)
	case "":
		return RedisEviction.find(Unknown, "INFO needs the right +info", "cannot tell: %s does not say its maxmemory-policy", n.Addr)
	}
	return RedisEviction.find(Failed, "set maxmemory-policy noeviction", "%s has maxmemory-policy %s: short of memory it drops locks and slots that are held", n.Addr, n.Eviction)
}

func (n RedisNode) persistence() Finding {
	switch {
	case n.Broken != "":
		return RedisPersistence.find(Failed, "look at the disk of Redis and at its log", "%s cannot write to disk (%s), so it may refuse writes", n.Addr, n.Broken)
	case !n.AOF && n.Replicas > 0: // as docs/production.md has it: a disk that is full must not stop locks
		return RedisPersistence.find(OK, "", "%s has no append-only file, and %d replicas; what is lost with them is rebuilt", n.Addr, n.Replicas)
	case !n.AOF:
		return RedisPersistence.find(Warning, "replicas (docs/production.md), or appendonly yes and a disk with room: no lock is doubled without them, but runs wait while slots are rebuilt",
			"%s has neither an append-only file nor a replica: a restart may forget locks and slots", n.Addr)
	}
	return RedisPersistence.find(OK, "", "%s has an append-only file", n.Addr)
}

func (n RedisNode) replicas(nodes int) Finding {
	switch {
	case n.Replica:
		return RedisReplicas.find(Failed, "name the master, or sentinels with --redis-master", "%s is a replica: it takes no writes", n.Addr)
	case n.Replicas == 0:
		return RedisReplicas.find(Warning, "Sentinel or Cluster with replicas (docs/locks.md)", "%s, one of %d, has no replica: while it is away, no lock can be taken", n.Addr, nodes)
	}
	return RedisReplicas.find(OK, "", "%s has %d replicas", n.Addr, n.Replicas)
}

func (r Redis) latency(timeout time.Duration) []Finding {
	const hint = "through a port-forward this is slower than for the operator; redis-cli --latency in the cluster says what it sees"
	l := r.Latency
	const near = 4 // below a quarter of the time-out there is room for a slow moment
	switch {
	case l.Why != "":
		return RedisLatency.unread(l.Unread)
	case l.P99 >= timeout:
		return []Finding{RedisLatency.find(Failed, hint, "a script takes %s at p99 of %d, and the shortest time-out of a renewal is %s: locks are lost", l.P99, l.Samples, timeout)}
	case l.P99 >= timeout/near:
		return []Finding{RedisLatency.find(Warning, hint, "a script takes %s at p99 of %d, near the shortest time-out of a renewal, %s", l.P99, l.Samples, timeout)}
	}
	return RedisLatency.ok("a script takes %s at p99 of %d; the shortest time-out of a renewal is %s", l.P99, l.Samples, timeout)
}
