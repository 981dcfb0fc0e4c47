// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// redisLogger puts what go-redis says into the operator's log: it says each failed connection,
// which is much during an outage.
type redisLogger struct{ log logr.Logger }

// Printf implements go-redis' logger.
func (l redisLogger) Printf(_ context.Context, format string, v ...any) {
	l.log.V(1).Info("Redis client", "text", fmt.Sprintf(format, v...))
}

// newRedis makes the client for locks; it does not need Redis to be there.
func newRedis(o redisOptions, log logr.Logger) (redis.UniversalClient, error) {
	redis.SetLogger(redisLogger{log})
	config := lockmgr.ClientConfig{
		Addrs: strings.Split(strings.ReplaceAll(o.addrs, " ", ""), ","), MasterName: o.masterName,
		Username: o.username, Password: o.password,
	}
	var err error
	if config.TLS, err = lockmgr.TLSConfig(o.tls, o.caFile); err != nil {
		return nil, fmt.Errorf("--redis-ca: %w", err)
	}
	client, err := lockmgr.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("configure Redis: %w", err)
	}
	return client, nil
}
