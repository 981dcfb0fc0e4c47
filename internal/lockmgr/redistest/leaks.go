// SPDX-License-Identifier: Apache-2.0

package redistest

import "go.uber.org/goleak"

// Leaks are goroutines of go-redis that are not ours to end, for goleak: after failures to connect,
// a pool looks each second whether its server is there again, and a second longer than it is open.
func Leaks() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")}
}
