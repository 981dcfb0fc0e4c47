package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

var errNoCertificate = errors.New("no PEM certificate in it")

// newRedis makes the client for locks; it does not need Redis to be there.
func newRedis(o redisOptions) (redis.UniversalClient, error) {
	config := lockmgr.ClientConfig{
		Addrs: strings.Split(strings.ReplaceAll(o.addrs, " ", ""), ","), MasterName: o.masterName,
		Username: o.username, Password: o.password,
	}
	if o.tls {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("read --redis-ca: %w", err)
		}
		config.TLS.RootCAs = x509.NewCertPool()
		if !config.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read --redis-ca %s: %w", o.caFile, errNoCertificate)
		}
	}
	client, err := lockmgr.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("configure Redis: %w", err)
	}
	return client, nil
}
