// SPDX-License-Identifier: Apache-2.0

package faults

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

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const (
	startTimeout = 5 * time.Minute
	look         = 50 * time.Millisecond // between two looks at what does not tell of itself
)

// site is what all tests of this process share: a control plane with two API servers, and the
// operator's binary.
var site struct {
	once   sync.Once
	err    error
	env    *devenv.Env
	api    *devenv.APIServer // of the operators; it may die, and the judge has the first
	k8s    client.WithWatch
	binary string
	dir    string
	clocks bool // processes have clocks that can be made wrong
}

func TestMain(m *testing.M) {
	if natstest.Main() {
		return
	}
	code := m.Run()
	if site.api != nil {
		_ = site.api.Kill()
	}
	if site.env != nil {
		if err := site.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if site.dir != "" {
		_ = os.RemoveAll(site.dir)
	}
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
	if site.dir, err = os.MkdirTemp("", "faults"); err != nil {
		return err
	}
	if err := findOperator(ctx); err != nil {
		return err
	}
	if err := testenv.Lazily(func() (err error) {
		if site.env, err = devenv.Start(ctx, devenv.Options{Root: testenv.Root(), Dir: site.dir}); err != nil {
			return err
		}
		site.api, err = site.env.StartSecondAPIServer(ctx)
		return err
	}); err != nil {
		return err
	}
	site.k8s, err = devenv.Client(site.env.Config)
	return err
}

// findOperator takes the usual operator, unless FAULTS_OPERATOR names one that was
// built with clocks.
func findOperator(ctx context.Context) (err error) {
	if site.binary = os.Getenv("FAULTS_OPERATOR"); site.binary != "" {
		site.clocks = true
		return nil
	}
	site.binary, err = testenv.Operator(ctx, site.dir)
	return err
}

// await looks until a condition holds, that is until what is missing is "".
func await(ctx context.Context, tb testing.TB, patience time.Duration, what string, missing func() string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		is := missing()
		if is == "" {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("not within %s: %s: %s", patience, what, is)
		case <-tick.C:
		}
	}
}

// hold is the time that a fault lasts.
func hold(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
