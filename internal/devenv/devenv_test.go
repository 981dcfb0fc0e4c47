// SPDX-License-Identifier: Apache-2.0

package devenv

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually polls until done, or fails the test.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// mutation: Restart with another StoreDir, or start on a random port again, makes this fail.
func TestNATSKeepsItsMessagesAndItsAddressAcrossARestart(t *testing.T) {
	n, err := StartNATS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	url := n.URL()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if n.URL() != url {
		t.Errorf("address %s, was %s", n.URL(), url)
	}
	var got string
	eventually(t, "the message is there", func() bool {
		s, err := js.Stream(t.Context(), "S")
		if err != nil {
			return false
		}
		m, err := s.GetMsg(t.Context(), 1)
		if err == nil {
			got = string(m.Data)
		}
		return err == nil
	})
	if got != "kept" {
		t.Errorf("message %q", got)
	}
}

// mutation: startMini without its ticker makes this hang until its patience ends: by itself
// miniredis has no time.
func TestTheStandInForRedisHasAClockThatRuns(t *testing.T) {
	r, err := startMini()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	expires(t, r)
	if r.Process() != nil {
		t.Error("the stand-in has no process")
	}
}

func TestARealRedisIsStartedAndStopped(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("REQUIRE_REDIS") != "1" {
		t.Skip("no redis-server")
	}
	r, err := StartRedis(t.Context(), t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	expires(t, r)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-r.Process().Done():
	default:
		t.Error("the process still runs after Stop")
	}
}

func TestARealRedisIsRequiredButThereIsNone(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := StartRedis(t.Context(), t.TempDir(), true); !errors.Is(err, errNoRedis) {
		t.Errorf("error %v", err)
	}
	r, err := StartRedis(t.Context(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop() }()
	if r.mini == nil {
		t.Errorf("started %s", r.Kind)
	}
}

// expires sees a key come and go by its time to live.
func expires(t *testing.T, r *Redis) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer func() { _ = c.Close() }()
	if err := c.Set(t.Context(), "k", "v", 100*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key expires", func() bool { return c.Exists(t.Context(), "k").Val() == 0 })
}

// mutation: Terminate that does not wait makes "has ended" fail.
func TestAProcessIsEnded(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep")
	}
	for name, end := range map[string]func(*Process) error{
		"by SIGKILL": (*Process).Kill,
		"by SIGTERM": func(p *Process) error {
			var exit *exec.ExitError
			if err := p.Terminate(t.Context()); !errors.As(err, &exit) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := startProcess(sleep, []string{"60"}, nil, t.TempDir()+"/log")
			if err != nil {
				t.Fatal(err)
			}
			if err := end(p); err != nil {
				t.Error(err)
			}
			select {
			case <-p.Done():
			default:
				t.Error("it has not ended")
			}
			if err := p.Kill(); err != nil {
				t.Errorf("a second kill: %v", err)
			}
		})
	}
}
