// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: a connection that keeps its password, or a right left out of rights.Operator that
// EnsureStreams or Ready needs, makes this fail. So do servers that are not told to read the
// authorities before the first certificate of the new one.
func TestAClusterWithTLSAndAccountsIsUsedAndRotationsAreFollowed(t *testing.T) {
	old, next := certs.NewAuthority(t), certs.NewAuthority(t)
	servers, mine := old.Issue(time.Hour), old.Issue(time.Hour)
	names := protocol.Names{Prefix: "team-a"}
	nodes := natstest.StartNodes(t, 3, servers, rights.User{Name: "operator", Password: "first", May: rights.Operator(names)})
	secret := t.TempDir()
	put := func(entry, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(secret, entry), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("user", "operator")
	put("password", "first")
	c, err := Connect(t.Context(), Config{
		URL: nodes.URL(), Names: names, Replicas: 3, AuthDir: secret, CAFile: mine.CA, CertFile: mine.Cert, KeyFile: mine.Key,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	works := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for err := c.RepairStreams(ctx); err != nil || c.Ready(ctx) != nil; err = c.RepairStreams(ctx) {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			case <-tick.C:
			}
		}
	}
	works("at first")
	reconnects := c.NATS.Statistics.Reconnects
	put("password", "second")
	nodes.SetPassword("operator", "second")
	works("with another password")
	// A new authority, by docs/production.md: all trust both, also servers that are
	// not started again.
	old.Trust(mine, next)
	old.Trust(servers, next)
	nodes.ReloadAndWait()
	next.Renew(mine, time.Hour, old)
	made := c.NATS.Stats().Reconnects
	if err := c.NATS.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	works("with a certificate of another authority, at servers with the old one")
	if c.NATS.Stats().Reconnects == made {
		t.Error("the connection is the one of before, so the new certificate was not tried")
	}
	next.Renew(servers, time.Hour, old)
	nodes.Kill(0)
	nodes.Start(0)
	nodes.AwaitReady() // with the new certificate, among servers that have the old one
	nodes.ReloadAndWait()
	for i := range nodes.Len() {
		nodes.Kill(i)
	}
	for i := range nodes.Len() {
		nodes.Start(i)
	}
	works("with certificates of another authority")
	next.Trust(mine)
	next.Trust(servers)
	nodes.ReloadAndWait()
	for i := range nodes.Len() {
		nodes.Kill(i)
		nodes.Start(i)
	}
	works("without the old authority")
	if c.NATS.Statistics.Reconnects == reconnects {
		t.Error("the connection was never made anew, so nothing was tried")
	}
	if refused := nodes.Refusals(); len(refused) > 0 {
		t.Errorf("the operator was refused: %q", refused)
	}
}

func TestASecretThatIsNoneIsRefused(t *testing.T) {
	if _, err := Connect(t.Context(), Config{URL: "nats://127.0.0.1:1", AuthDir: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("a missing directory is accepted")
	}
}
