// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// redisReply is an error as Redis answers with.
type redisReply string

func (e redisReply) Error() string { return string(e) }

func (redisReply) RedisError() {}

var _ redis.Error = redisReply("")

// The replies are those of Redis 6.2 to 8.
//
// mutation: a symptom taken out, or the network's symptoms put before those of Redis,
// makes this fail.
func TestErrorsOfTheStoreSayWhatToDo(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	tests := map[string]struct {
		err  error
		want string // the beginning of the text
	}{
		"a wrong password":                {redisReply("WRONGPASS invalid username-password pair or user is disabled."), "Redis refuses the login"},
		"no password":                     {redisReply("NOAUTH Authentication required."), "Redis refuses the login"},
		"no password, a long command":     {redisReply("ERR Protocol error: unauthenticated multibulk length"), "Redis refuses the login"},
		"a password that is not expected": {redisReply("ERR AUTH <password> called without any password configured for the default user."), "Redis refuses the login"},
		"a command that is not allowed":   {redisReply("NOPERM User locks has no permissions to run the 'evalsha' command"), "the ACL of the Redis user lacks a right"},
		"a command in a script":           {redisReply("ERR The user executing the script can't run this command or subcommand script: 43, on @user_script:75."), "the ACL of the Redis user lacks a right"},
		"a command in an older script":    {redisReply("NOPERM ACL failure in script: User locks has no permissions to run the 'get' command"), "the ACL of the Redis user lacks a right"},
		"loading":                         {redisReply("LOADING Redis is loading the dataset in memory"), "Redis is still loading"},
		"no disk":                         {redisReply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), "Redis refuses writes because it cannot save"},
		"no memory":                       {redisReply("OOM command not allowed when used memory > 'maxmemory'. script: 43, on @user_script:3."), "Redis is out of memory"},
		"too few replicas":                {redisReply("NOREPLICAS Not enough good replicas to write."), "Redis refuses writes because too few"},
		"too many clients":                {redisReply("ERR max number of clients reached"), "Redis has too many clients"},
		"a replica":                       {redisReply("READONLY You can't write against a read only replica."), "the addresses point at a replica"},
		"a replica, from an older script": {redisReply("ERR Error running script (call to f_1a): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica."), "the addresses point at a replica"},
		"a replica without its master":    {redisReply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), "the addresses point at a replica"},
		"a single server as a cluster":    {redisReply("ERR This instance has cluster support disabled"), "the addresses are of a single Redis"},
		"a cluster that is down":          {redisReply("CLUSTERDOWN Hash slot not served"), "the Redis Cluster does not serve all slots"},
		"a cluster as a single server":    {redisReply("MOVED 3999 127.0.0.1:6381"), "the address is of a Redis Cluster"},
		"a slot on its way":               {redisReply("ASK 3999 127.0.0.1:6381"), "the address is of a Redis Cluster"},
		"sentinels that say no":           {fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", dial(syscall.ECONNREFUSED)), "no sentinel names the master"},
		"sentinels that want a password":  {fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", redisReply("NOAUTH Authentication required.")), "Redis refuses the login"},
		"a certificate of another CA":     {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "the certificate of Redis cannot be verified"},
		"a certificate of another host":   {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "redis"}, "the certificate of Redis cannot be verified"},
		"plain text where TLS is on":      {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "Redis answers without TLS"},
		"a client certificate is missing": {&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, "Redis refuses the TLS connection"},
		"TLS where plain text is on":      {io.EOF, "Redis closed the connection"},
		"a connection that was reset":     {&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "Redis closed the connection"},
		"a refused connection":            {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "nothing listens at the address of Redis"},
		"an unknown host":                 {dial(&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}), "the host name of Redis cannot be resolved"},
		"a name server that hangs":        {dial(&net.DNSError{Err: "i/o timeout", Name: "redis", IsTimeout: true}), "the host name of Redis cannot be resolved"},
		"no way to the host":              {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "the network of Redis cannot be reached"},
		"the call's own time is over":     {context.DeadlineExceeded, "Redis does not answer in time"},
		"a read that timed out":           {&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, "Redis does not answer in time"},
		"no connection of the pool":       {redis.ErrPoolTimeout, "Redis does not answer in time"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wrapped := fmt.Errorf("acquire run lock: %w", test.err)
			got := Explain(wrapped)
			if text := got.Error(); !strings.HasPrefix(text, test.want) || !strings.HasSuffix(text, ": "+wrapped.Error()) {
				t.Errorf("the text is %q; want it to begin with %q and to end with the error's own", text, test.want)
			}
			if !errors.Is(got, wrapped) || Explain(got).Error() != got.Error() {
				t.Error("the error is not what it was, or is explained twice")
			}
		})
	}
}

// mutation: explain that takes every error of a context for a timeout makes this fail.
func TestErrorsThatSayAllThereIsToSay(t *testing.T) {
	for name, err := range map[string]error{
		"none":                      nil,
		"the caller gave up":        fmt.Errorf("acquire run lock: %w", context.Canceled),
		"a reply that came late":    errLate,
		"an error of a script":      redisReply("ERR user_script:12: attempt to index a nil value"),
		"words within other words":  redisReply("ERR unknown command 'MASK 1', NOOOM "),
		"an error of something new": errors.New("out of order"),
	} {
		t.Run(name, func(t *testing.T) {
			if got := Explain(err); fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("explained as %q", got)
			}
		})
	}
}
