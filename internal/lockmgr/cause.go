// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Explain puts before an error of the lock store what it means and what to do about it, for the
// condition and the event that a user sees. The error stays what it is to errors.Is and errors.As,
// and its text is kept at the end. An error that says all there is to say (a cancelled context, a
// late reply) is returned as it is.
func Explain(err error) error {
	if _, done := errors.AsType[*explainedError](err); err == nil || done {
		return err
	}
	for _, s := range symptoms() {
		if s.fits(err) {
			return &explainedError{meaning: s.meaning, err: err}
		}
	}
	return err
}

// concernsOneRun says that Redis answered with an error that is none of the known ones: the keys of
// the run are not what they should be, and nothing is said about other runs.
func concernsOneRun(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	_, known := errors.AsType[*explainedError](Explain(err))
	return answered && !known
}

// explainedError is an error with its meaning.
type explainedError struct {
	meaning string
	err     error
}

// Error implements error.
func (e *explainedError) Error() string { return e.meaning + ": " + e.err.Error() }

// Unwrap returns the error that was explained.
func (e *explainedError) Unwrap() error { return e.err }

// symptom is how an error is recognised, and what it means.
type symptom struct {
	meaning string
	fits    func(error) bool
}

// symptoms are in the order in which they are tried: replies of Redis, then what TLS says, then
// what the network says, since a network error may be wrapped into each of those before, and not
// the other way round.
func symptoms() []symptom {
	return append(append(replySymptoms(), topologySymptoms()...), networkSymptoms()...)
}

// replySymptoms are what a Redis says that is the right one, but does not do as it is asked.
func replySymptoms() []symptom {
	return []symptom{
		{"Redis refuses the login: check user and password", says("WRONGPASS ", "NOAUTH ", "ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH", "unauthenticated ")},
		{"the ACL of the Redis user lacks a right that run locks need", says("NOPERM ", "ACL failure in script", "The user executing the script can't run")},
		{"Redis is still loading its data; it will be tried again", says("LOADING ")},
		{"Redis refuses writes because it cannot save its data to disk", says("MISCONF ")},
		{"Redis is out of memory: raise maxmemory, or give run locks a Redis of their own", says("OOM ")},
		{"Redis refuses writes because too few of its replicas are connected (min-replicas-to-write)", says("NOREPLICAS ")},
		{"Redis has too many clients: raise maxclients", says("max number of clients reached")},
	}
}

// topologySymptoms are what a Redis says that is another kind of server than the client was
// set up for.
func topologySymptoms() []symptom {
	return []symptom{
		{"the addresses point at a replica: run locks need the master; where it may move, use the sentinels", says("READONLY ", "MASTERDOWN ")},
		{"the addresses are of a single Redis, but the client is set up for Redis Cluster: give one address", says("cluster support disabled")},
		{"the Redis Cluster does not serve all slots: look at CLUSTER INFO", says("CLUSTERDOWN ")},
		{"the address is of a Redis Cluster, but the client is set up for a single Redis: give more than one node", says("MOVED ", "ASK ")},
		{"no sentinel names the master: check the addresses of the sentinels and the master's name", says("all sentinels specified in configuration are unreachable")},
	}
}

// networkSymptoms are what is said where no Redis was reached.
func networkSymptoms() []symptom {
	return []symptom{
		{"the certificate of Redis cannot be verified: check the CA, and that the certificate names the host in the address", badCertificate},
		{"Redis answers without TLS: use its TLS port, or switch TLS off", isA[tls.RecordHeaderError]},
		{"Redis refuses the TLS connection; it may want a client certificate", says("remote error: tls: ")},
		{"nothing listens at the address of Redis: is it running, and is the port right?", isOneOf(syscall.ECONNREFUSED)},
		{"the host name of Redis cannot be resolved", isA[*net.DNSError]},
		{"the network of Redis cannot be reached", isOneOf(syscall.EHOSTUNREACH, syscall.ENETUNREACH)},
		{"Redis does not answer in time: it hangs, the network drops packets, or its port is one without TLS while TLS is on", timedOut},
		{
			"Redis closed the connection: it was stopped, has too many clients, or its port expects TLS while TLS is off",
			isOneOf(io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE),
		},
	}
}

// says looks for words of Redis or its client, wherever they begin: a script's error wraps the one
// of its command, as "... -READONLY You can't".
func says(words ...string) func(error) bool {
	return func(err error) bool {
		text := " " + strings.ReplaceAll(err.Error(), "-", " ")
		for _, w := range words {
			if strings.Contains(text, " "+w) {
				return true
			}
		}
		return false
	}
}

func isOneOf(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func badCertificate(err error) bool {
	return isA[*tls.CertificateVerificationError](err) || isA[x509.UnknownAuthorityError](err) ||
		isA[x509.HostnameError](err) || isA[x509.CertificateInvalidError](err)
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || isOneOf(context.DeadlineExceeded, redis.ErrPoolTimeout)(err)
}
