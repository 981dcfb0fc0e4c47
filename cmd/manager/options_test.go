// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// parse reads flags and completes them in an environment.
func parse(t *testing.T, env map[string]string, args ...string) (options, error) {
	t.Helper()
	var o options
	f := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return o, o.complete(func(name string) string { return env[name] })
}

// mutation: each check taken out of complete makes its row fail.
func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string // words of the error; none: accepted
	}{
		"the defaults work":                       {nil, nil},
		"five replicas work":                      {[]string{"--nats-replicas=5"}, nil},
		"two replicas have no majority to lose":   {[]string{"--nats-replicas=2"}, []string{"--nats-replicas 2: need 1, 3 or 5"}},
		"no replica":                              {[]string{"--nats-replicas=0"}, []string{"--nats-replicas 0"}},
		"an empty prefix":                         {[]string{"--nats-prefix="}, []string{`--nats-prefix ""`}},
		"a prefix with a dot would be two tokens": {[]string{"--nats-prefix=a.b"}, []string{`--nats-prefix "a.b"`}},
		"a prefix in capitals":                    {[]string{"--nats-prefix=ABC"}, []string{`--nats-prefix "ABC"`}},
		"a prefix of 33":                          {[]string{"--nats-prefix=" + strings.Repeat("a", 33)}, []string{"--nats-prefix"}},
		"no Redis address":                        {[]string{"--redis-addrs= "}, []string{"--redis-addrs"}},
		"commas without addresses":                {[]string{"--redis-addrs=,"}, []string{"--redis-addrs"}},
		"an address missing between commas":       {[]string{"--redis-addrs=a:1,,b:2"}, []string{"--redis-addrs"}},
		"several Redis addresses work":            {[]string{"--redis-addrs=a:1, b:2"}, nil},
		"nobody works":                            {[]string{"--max-concurrent-runs=0"}, []string{"--max-concurrent-runs 0: need at least 1"}},
		"no bytes for results":                    {[]string{"--inbox-bytes=1000"}, []string{"--inbox-bytes 1000: need at least 1048576"}},
		"no room for results":                     {[]string{"--inbox-limit=-1"}, []string{"--inbox-limit -1: need at least 1"}},
		"room for all streams works":              {[]string{"--nats-storage=16Gi"}, nil},
		"no limits work":                          {[]string{"--nats-storage=0"}, nil},
		"room for hardly a message":               {[]string{"--nats-storage=1Mi"}, []string{"--nats-storage 1Mi: need at least 256Mi"}},
		"less than no room":                       {[]string{"--nats-storage=-1Gi"}, []string{"--nats-storage -1Gi: need"}},
		"no jobs with workers":                    {[]string{"--nats-max-ack-pending=0"}, []string{"--nats-max-ack-pending 0: need at least 1"}},
		"profiles for this machine only work":     {[]string{"--pprof-bind-address=127.0.0.1:6060"}, nil},
		"profiles by a loopback name work":        {[]string{"--pprof-bind-address=localhost:6060"}, nil},
		"profiles for everybody":                  {[]string{"--pprof-bind-address=:6060"}, []string{`--pprof-bind-address ":6060"`}},
		"profiles on another address":             {[]string{"--pprof-bind-address=10.0.0.1:6060"}, []string{"--pprof-bind-address"}},
		"a Lease of 15 s works":                   {[]string{"--ownership-lease=15s"}, nil},
		"a Lease that is over at once":            {[]string{"--ownership-lease=1s"}, []string{"--ownership-lease 1s: need whole seconds, 3s to 1m0s"}},
		"a Lease that nobody waits for":           {[]string{"--ownership-lease=1h"}, []string{"--ownership-lease 1h0m0s"}},
		"a Lease that its object cannot say":      {[]string{"--ownership-lease=3500ms"}, []string{"--ownership-lease 3.5s"}},
		"a leader's Lease of 30 s works":          {[]string{"--leader-lease=30s"}, nil},
		"a leader's Lease that is over at once":   {[]string{"--leader-lease=5s"}, []string{"--leader-lease 5s: need whole seconds, 6s to 1m0s"}},
		"a limit of requests works":               {[]string{"--kube-api-qps=0.5"}, nil},
		"no request at all":                       {[]string{"--kube-api-qps=0"}, []string{"--kube-api-qps 0: need more than 0, or less for no limit"}},
		"hardly a request in the universe":        {[]string{"--kube-api-qps=1e-60"}, []string{"--kube-api-qps 1e-60"}},
		"a limit that is no number":               {[]string{"--kube-api-qps=NaN"}, []string{"--kube-api-qps NaN"}},
		"a name with a letter works":              {[]string{"--holder=_a_"}, nil},
		"a name of which no Lease can have much":  {[]string{"--holder=__"}, []string{`--holder "__": need a letter or a digit`}},
		"which one leader does not need":          {[]string{"--holder=__", "--ownership=leader"}, nil},
		"no address of metrics":                   {[]string{"--metrics-bind-address="}, []string{`--metrics-bind-address "": need an address, or 0`}},
		"no metrics work":                         {[]string{"--metrics-bind-address=0"}, nil},
		"no address of probes":                    {[]string{"--health-probe-bind-address="}, []string{`--health-probe-bind-address "": need an address`}},
		"a key without its certificate":           {[]string{"--nats-key=k"}, []string{"--nats-cert and --nats-key: need both, or none"}},
		"a certificate without its key":           {[]string{"--nats-cert=c"}, []string{"--nats-cert and --nats-key: need both, or none"}},
		"a certificate with its key works":        {[]string{"--nats-cert=c", "--nats-key=k"}, nil},
		"all mistakes are told at once":           {[]string{"--nats-replicas=2", "--inbox-limit=0"}, []string{"--nats-replicas", "--inbox-limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, nil, c.args...)
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("error: %v, want words %q", err, c.want)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

// The library of flags stops at the first word that is none, and drops all flags behind it.
//
// mutation: start without its look at words goes on to what else is wrong.
func TestAWordBetweenFlagsIsRefused(t *testing.T) {
	var o options
	f := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse([]string{"--nats-replicas=2", "--step-events", "true", "--require-allow-lists"}); err != nil {
		t.Fatal(err)
	}
	err := start(t.Context(), o, f.Args())
	if err == nil || !strings.Contains(err.Error(), `"true" is no flag; switches are --name=true`) {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreCompletedFromTheEnvironment(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env               map[string]string
		args              []string
		namespace, holder string
	}{
		"nothing is set: a default, and host with process": {nil, nil, "syncopate-system", fmt.Sprintf("%s-%d", host, os.Getpid())},
		"in a pod: its own names":                          {map[string]string{"POD_NAMESPACE": "ns", "POD_NAME": "pod-1"}, nil, "ns", "pod-1"},
		"flags win": {
			map[string]string{"POD_NAMESPACE": "ns", "POD_NAME": "pod-1"},
			[]string{"--namespace=flag", "--holder=me"},
			"flag", "me",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, c.env, c.args...)
			if err != nil || o.namespace != c.namespace || o.holder != c.holder {
				t.Errorf("namespace %q, holder %q, error %v; want %q, %q", o.namespace, o.holder, err, c.namespace, c.holder)
			}
		})
	}
}

func TestCredentialsComeFromTheEnvironment(t *testing.T) {
	o, err := parse(t, map[string]string{"NATS_USER": "nu", "NATS_PASSWORD": "np", "REDIS_USERNAME": "ru", "REDIS_PASSWORD": "rp"}, "--redis-ca=/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	if o.nats.user != "nu" || o.nats.password != "np" || o.redis.username != "ru" || o.redis.password != "rp" {
		t.Errorf("credentials: %+v, %+v", o.nats, o.redis)
	}
	for name, args := range map[string][]string{"sentinels of a Cluster": {"--redis-cluster", "--redis-master=m"}, "no address": {"--redis-addrs=a:1,"}} {
		if _, err := parse(t, nil, args...); err == nil {
			t.Errorf("%s are accepted", name)
		}
	}
}

func TestRedisCertificatesMustBeReadable(t *testing.T) {
	empty := t.TempDir() + "/ca.pem"
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options redisOptions
		ok      bool
	}{
		"plain text":                 {redisOptions{addrs: "a:1"}, true},
		"TLS with the system's CAs":  {redisOptions{addrs: "a:1", files: lockmgr.Files{TLS: true}}, true},
		"a file that is not there":   {redisOptions{addrs: "a:1", files: lockmgr.Files{CA: empty + "x"}}, false},
		"a file with no certificate": {redisOptions{addrs: "a:1", files: lockmgr.Files{CA: empty}}, false},
		"sentinels":                  {redisOptions{addrs: "a:1,b:2", masterName: "m"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newRedis(c.options, logr.Discard())
			if (err == nil) != c.ok {
				t.Fatalf("error: %v", err)
			}
			if err == nil {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// mutation: limitRequests without Burst makes this fail: client-go would let 10 go at once.
func TestALimitOfRequestsHasRoomForABurst(t *testing.T) {
	for qps, want := range map[float64]int{-1: 30, 0.4: 1, 200: 400, 1e300: 1 << 30} {
		config := &rest.Config{Burst: 30}
		if limitRequests(config, qps); config.QPS != float32(qps) || config.Burst != want {
			t.Errorf("%v: %v a second and %d at once, want %d", qps, config.QPS, config.Burst, want)
		}
	}
}

// mutation: spread that ignores the flag makes this fail.
func TestDelaysAreExactWhereThatIsWanted(t *testing.T) {
	for _, c := range []struct {
		args  []string
		exact bool
	}{{nil, false}, {[]string{"--exact-delays"}, true}} {
		o, err := parse(t, nil, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		draw, others := o.spread(), 0
		for range 100 {
			if draw() != 0.5 {
				others++
			}
		}
		if (others == 0) != c.exact {
			t.Errorf("%v: %d of 100 draws are not the middle", c.args, others)
		}
	}
}

// mutation: busConfig without MaxBytes, or a part of another size, makes this fail.
func TestTheRoomOfAllStreamsIsDivided(t *testing.T) {
	o, err := parse(t, nil, "--nats-storage=64Gi")
	if err != nil {
		t.Fatal(err)
	}
	got := o.nats.busConfig(identity{}, logr.Discard(), nil).MaxBytes
	want := bus.MaxBytes{Jobs: 16 << 30, Results: 16 << 30, DeadLetters: 4 << 30, Control: 1 << 30, Payloads: 27 << 30}
	if got != want || got.Jobs+got.Results+got.DeadLetters+got.Control+got.Payloads != 64<<30 {
		t.Errorf("got %+v", got)
	}
	if o, err = parse(t, nil); err != nil || o.nats.busConfig(identity{}, logr.Discard(), nil).MaxBytes != (bus.MaxBytes{}) {
		t.Errorf("without the flag there are limits (%v)", err)
	}
	var size byteSize
	if err := size.Set("much"); err == nil {
		t.Error("words are taken for room")
	}
}

// Who raises the bound of topics has all of them watched.
// mutation: livenessOptions without MaxTopics makes this fail: no run of a topic beyond 1,000 would
// say that its workers are away.
func TestAsManyTopicsAreWatchedAsHaveAConsumer(t *testing.T) {
	o, err := parse(t, nil, "--nats-max-topics=1200")
	if err != nil {
		t.Fatal(err)
	}
	if got := livenessOptions(o, clock.RealClock{}, logr.Discard()).MaxTopics; got != 1200 {
		t.Errorf("%d topics are watched", got)
	}
}
