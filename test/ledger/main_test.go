// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const (
	root = "../.."
	// startTimeout bounds the build of the operator and the start of the control plane, on a
	// machine that does other things too.
	startTimeout = 4 * time.Minute
)

// site is what all tests of this process share: a control plane, Redis, and the operator's binary.
// Each test has a nats-server, a namespace and operators of its own.
var site struct {
	once   sync.Once
	err    error
	env    *devenv.Env
	k8s    client.WithWatch
	binary string
	dir    string
}

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(serverEnv); ok {
		os.Exit(serveNATS(config))
	}
	code := m.Run()
	closeSite()
	os.Exit(code)
}

// needSite opens the site for the first test that needs it.
func needSite(ctx context.Context, tb testing.TB) {
	tb.Helper()
	site.once.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		site.err = openSite(ctx)
	})
	if site.err != nil {
		tb.Fatal(site.err)
	}
}

func openSite(ctx context.Context) error {
	ctrllog.SetLogger(logr.Discard())
	var err error
	if site.dir, err = os.MkdirTemp("", "ledger"); err != nil {
		return err
	}
	if site.binary, err = testenv.Operator(ctx, site.dir); err != nil {
		return err
	}
	if err := testenv.Lazily(func() (err error) {
		site.env, err = devenv.Start(ctx, devenv.Options{
			Root: root, Dir: site.dir, RequireReal: os.Getenv("REQUIRE_REDIS") == "1",
		})
		return err
	}); err != nil {
		return err
	}
	site.k8s, err = devenv.Client(site.env.Config)
	return err
}

func closeSite() {
	if site.env != nil {
		if err := site.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if site.dir != "" {
		_ = os.RemoveAll(site.dir)
	}
}
