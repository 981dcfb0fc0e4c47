// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/natsdial"
	"github.com/syncopate-dev/syncopate/internal/secretdir"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// CallTimeout bounds one request to NATS.
const CallTimeout = 5 * time.Second

const (
	// maxResultBytes limits a result with its headers: outputs over 64 KiB do not belong in a
	// result. So the dead letter of a result always fits into the usual max_payload.
	maxResultBytes = 96 << 10

	resultsMaxAge     = 30 * 24 * time.Hour // only what no run ever collected gets that old
	deadLettersMaxAge = 14 * 24 * time.Hour
	controlMaxAge     = time.Hour
	deadLetterWindow  = 10 * time.Minute

	retryDelay   = time.Second            // before jitter
	noRoomDelay  = 5 * time.Second        // before jitter, where NATS is full: room does not come within a second
	relookDelay  = 250 * time.Millisecond // before jitter
	streamCheck  = 10 * time.Second       // for what no reconnect tells: streams made anew by others, other nodes of a cluster
	flushTimeout = 2 * time.Second
)

// Config is what a connection needs. Zero values of the optional fields mean the defaults given.
type Config struct {
	URL   string         // one or more NATS URLs, comma separated
	Names protocol.Names // prefix of streams and subjects; default "syncopate"

	CredentialsFile string // NATS credentials (JWT and seed); optional
	User, Password  string // optional
	// AuthDir is a mounted Secret with the entries user and password, each of which goes before
	// User and Password, and may be missing. It is read for each connection, as the files are.
	AuthDir  string
	CAFile   string // PEM of the authority that signed the server's certificate; optional
	CertFile string // PEM of the client's certificate; optional, with KeyFile
	KeyFile  string

	// Installation names all operators that share keys and runs; streams that belong to another one
	// are left alone, see ForeignError.
	// Empty: nobody's name, and whose the streams are does not matter.
	Installation string
	// Home is the namespace of the operators in their cluster. Those of two namespaces have keys of
	// their own, and would take each other's results for forged. Empty: it does not matter.
	Home string
	// HomeGone says for certain that a namespace is no more, and with it all operators in it: what
	// was theirs becomes this one's. Default: none is.
	HomeGone func(ctx context.Context, namespace string) bool
	TakeOver string // an installation, or a Home in this one, whose streams become this one's

	Replicas        int           // of the streams; default 1
	MemoryStorage   bool          // streams in memory: lost at a restart; for development only
	MaxBytes        MaxBytes      // size limits of the streams
	DuplicateWindow time.Duration // of Nats-Msg-Id in jobs and results; default 2 min

	Clock   clock.WithTicker // default: the real one
	Rand    func() float64   // uniform in [0,1), safe for concurrent use; default math/rand
	Log     logr.Logger
	Metrics *Metrics // default: unregistered ones
}

// MaxBytes limits the size of each stream in bytes; 0 means unlimited. Full jobs, results and
// payloads refuse new messages, full dead letters and controls drop the oldest. Dead letters of one
// subject have a limit that follows from theirs.
type MaxBytes struct{ Jobs, Results, DeadLetters, Control, Payloads int64 }

var prefixPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// CheckPrefix refuses a prefix that streams and subjects cannot have, with ErrConfig.
func CheckPrefix(prefix string) error {
	if prefixPattern.MatchString(prefix) {
		return nil
	}
	return fmt.Errorf("%w: prefix %q: need 1 to 32 of a-z, 0-9, -", ErrConfig, prefix)
}

func (c Config) withDefaults() (Config, error) {
	if c.Names.Prefix == "" {
		c.Names.Prefix = protocol.DefaultPrefix
	}
	if err := CheckPrefix(c.Names.Prefix); err != nil {
		return c, err
	}
	if strings.Contains(WithoutUser(c.URL), unreadable) { // what the library says of it quotes the password
		return c, fmt.Errorf("%w: an address of NATS cannot be read: is there a sign in user or password that must be written as %%XX?", ErrConfig)
	}
	if c.AuthDir != "" {
		if err := secretdir.Check(c.AuthDir); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	setDefault(&c.Replicas, 1)
	setDefault(&c.DuplicateWindow, 2*time.Minute)
	if c.HomeGone == nil {
		c.HomeGone = func(context.Context, string) bool { return false }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) connectOptions() []nats.Option {
	o := []nats.Option{
		nats.Name(c.Names.Prefix),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond),
		nats.IgnoreAuthErrorAbort(), // credentials rotate; giving up for good would need a restart
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(2 * time.Second),
		nats.FlusherTimeout(natsdial.WriteTimeout),
		// No buffer: what fails is known to have failed, and no job goes out after its
		// caller gave up.
		nats.ReconnectBufSize(-1),
	}
	if c.CredentialsFile != "" {
		o = append(o, nats.UserCredentials(c.CredentialsFile))
	}
	switch {
	case c.AuthDir != "":
		o = append(o, nats.UserInfoHandler(c.login))
	case c.User != "":
		o = append(o, nats.UserInfo(c.User, c.Password))
	}
	if c.CAFile != "" {
		o = append(o, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		o = append(o, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	return o
}

// login reads what the Secret says now. What cannot be read is logged, and NATS refuses the login.
func (c Config) login() (user, password string) {
	user, err := secretdir.Read(c.AuthDir, "user")
	if err == nil {
		password, err = secretdir.Read(c.AuthDir, "password")
	}
	if err != nil {
		c.Log.Error(err, "Login at NATS")
	}
	return cmp.Or(user, c.User), cmp.Or(password, c.Password)
}

// Dial connects once, without a second try, for people's tools: within CallTimeout, or what ctx has
// left. Of config it uses the address, the credentials and Names. Errors: ErrConfig,
// ErrUnreachable, unreadable files.
func Dial(ctx context.Context, config Config) (*nats.Conn, protocol.Names, error) {
	if err := ctx.Err(); err != nil {
		return nil, protocol.Names{}, fmt.Errorf("connect to NATS: %w", err)
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, protocol.Names{}, err
	}
	patience := CallTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = max(time.Millisecond, min(patience, deadline.Sub(config.Clock.Now()))) // 0 were no bound at all
	}
	silent := func(*nats.Conn, *nats.Subscription, error) {} // the library would print to stderr; nc.LastError has it
	nc, err := nats.Connect(config.URL, append(config.connectOptions(), nats.RetryOnFailedConnect(false), nats.NoReconnect(),
		nats.Timeout(patience), nats.ErrorHandler(silent), natsdial.EndOnFailedWrite)...)
	if err != nil {
		return nil, protocol.Names{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nc, config.Names, nil
}
