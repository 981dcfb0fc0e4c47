// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// callTimeout bounds each dial, write and read of the lock client.
	callTimeout = time.Second
	// clusterReload is how old the client's map of slots may be when it is used. A master that died
	// is in it until then: the library reads the map anew when a node says MOVED, not when none
	// answers, and its own interval is a minute.
	clusterReload = time.Second
	// idleTime is how long a connection may be idle before it is replaced. What lies between may
	// forget one after some minutes, as load balancers do, and tell nobody until it is used.
	idleTime = time.Minute
)

// ClientConfig says where the lock store is and how to log in.
type ClientConfig struct {
	// Addrs are host:port of the server, of the sentinels when MasterName is set, or of seed nodes
	// of a cluster (more than one, or Cluster is set). At least one.
	Addrs []string
	// MasterName is the name under which the sentinels know the master; empty without Sentinel.
	MasterName string
	// Cluster says that the one address is that of a Redis Cluster.
	Cluster bool
	// DB is the database; standalone and Sentinel only.
	DB int
	// Username and Password log in to Redis; an empty Username is the default user.
	Username, Password string
	// SentinelUsername and SentinelPassword log in to the sentinels.
	SentinelUsername, SentinelPassword string
	// Login gives Username and Password anew for each connection; nil or empty: they stay.
	Login func() (username, password string, err error)
	// TLS gives the configuration of each connection; nil means plain text.
	TLS func() (*tls.Config, error)
	// PoolSize bounds the connections per node; 0 means 64.
	PoolSize int
}

// NewClient makes a client for locks only; it connects when it is first used. The caller closes
// it, after Manager.Close.
//
// Locks need a client of their own, because what is good for a cache is wrong here: a call must
// end when its context does (by default go-redis ignores the context once it waits for a reply,
// so a 2 s context returns after 5 s when Redis hangs), and the client must not repeat calls in
// secret, since the deadline counts from the sending of the call that succeeded. (That of a
// cluster does so all the same; the deadline holds, because it counts from the first sending,
// and see store.Repeats.)
func NewClient(c ClientConfig) (redis.UniversalClient, error) {
	if len(c.Addrs) == 0 {
		return nil, errors.New("lock client: no address")
	}
	o := c.options()
	if c.MasterName != "" || !c.Cluster && len(c.Addrs) == 1 {
		return redis.NewUniversalClient(o), nil
	}
	cluster := o.Cluster()
	cluster.ClusterStateReloadInterval = clusterReload
	return redis.NewClusterClient(cluster), nil
}

func (c ClientConfig) options() *redis.UniversalOptions {
	size := c.PoolSize
	if size == 0 {
		size = renewalsAtOnce
	}
	o := &redis.UniversalOptions{
		Addrs:                 c.Addrs,
		MasterName:            c.MasterName,
		IsClusterMode:         c.Cluster,
		DB:                    c.DB,
		Username:              c.Username,
		Password:              c.Password,
		SentinelUsername:      c.SentinelUsername,
		SentinelPassword:      c.SentinelPassword,
		PoolSize:              size,
		PipelinePoolSize:      -1,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialTimeout:           callTimeout,
		DialerRetries:         1,
		ReadTimeout:           callTimeout,
		WriteTimeout:          callTimeout,
		PoolTimeout:           callTimeout,
		ConnMaxIdleTime:       idleTime,
		// Nothing is asked of the server at connect but to log in: fewer rights for the ACL user,
		// fewer round trips.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.TLS != nil {
		o.Dialer = c.dialTLS
	}
	if c.Login != nil {
		o.CredentialsProviderContext = c.credentials
	}
	return o
}
