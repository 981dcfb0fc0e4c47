// SPDX-License-Identifier: Apache-2.0

package rights

import "strings"

// Redis is what the operator's user may do, in the words of an ACL: for run locks, for admission,
// locks across runs and idempotency keys, and for word between replicas.
func Redis(cluster bool) []string {
	words := strings.Fields(`resetchannels -@all ~{run:*}:* ~{adm* &syncopate:locks:*
		+@connection +eval +evalsha +info +scan +time +publish +subscribe
		+get +set +incr +del +exists +persist +pexpire +pexpireat +pttl
		+hget +hset +hsetnx +hdel +hlen +hexists +hgetall +hincrby +hkeys +hscan
		+lindex +llen +lrem +rpush
		+zadd +zrem +zcard +zscore +zrange +zrangebyscore +zrangebylex +zrevrangebylex +zlexcount +zremrangebyscore`)
	if cluster {
		words = append(words, "+cluster|slots")
	}
	return words
}
