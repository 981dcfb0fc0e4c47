package bus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// MaxInputBytes limits the input of a job.
const MaxInputBytes = 256 << 10

const (
	// maxResultBytes limits a result with its headers: outputs over 64 KiB do not belong in a result. So the dead letter of a result
	// always fits into the usual max_payload.
	maxResultBytes = 96 << 10

	resultsMaxAge     = 30 * 24 * time.Hour // only what no run ever collected gets that old
	deadLettersMaxAge = 14 * 24 * time.Hour
	controlMaxAge     = time.Hour

	jobAckWait        = 30 * time.Second
	deadLetterWindow  = 10 * time.Minute
	topicRecheck      = time.Minute
	callTimeout       = 5 * time.Second        // one request to NATS
	publishRetryDelay = time.Second            // before jitter
	defaultNakDelay   = 2 * time.Second        // before jitter
	rebuildDelay      = 250 * time.Millisecond // before jitter
	stallAfter        = 10 * time.Second
	streamCheck       = 10 * time.Second // for what no reconnect tells: streams made anew by others, other nodes of a cluster
	stallCheck        = 3 * time.Second  // no multiple of pullExpiry, or check after check could meet the moment between two pulls
	drainTimeout      = 2 * time.Second

	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
	pullBatch     = 256
	// pullBytes bounds one pull: of each group, two pulls may wait in the client's buffer. A larger message would never come.
	pullBytes = 1 << 20
	// pullSlack is what the server counts of a message beside its body and headers: subjects.
	pullSlack = 8 << 10

	workQueue = 64 // results of a group that wait for the handler

	groups             = 8
	partitionsPerGroup = protocol.Partitions / groups
)

// Config is what a Bus needs to know. Zero values of the optional fields mean the defaults given.
type Config struct {
	URL   string         // one or more NATS URLs, comma separated
	Names protocol.Names // prefix of streams and subjects; default "syncopate"

	CredentialsFile string // NATS credentials (JWT and seed); optional
	User, Password  string // optional
	CAFile          string // PEM of the authority that signed the server's certificate; optional
	CertFile        string // PEM of the client's certificate; optional, with KeyFile
	KeyFile         string

	// Installation names all operators that share keys and runs; streams that belong to another one are left alone, see ForeignError.
	// Empty: nobody's name, and whose the streams are does not matter.
	Installation string
	TakeOver     string // an installation whose streams become this one's

	Replicas        int           // of the streams; default 1
	MemoryStorage   bool          // streams in memory: lost at a restart; for development only
	MaxBytes        MaxBytes      // size limits of the streams
	DuplicateWindow time.Duration // of Nats-Msg-Id in jobs and results; default 2 min

	MaxAckPending   int           // jobs of one topic in the hands of workers; default 10,000
	MaxTopics       int           // topics with a consumer; jobs of another one wait; default 1,000
	TopicInactivity time.Duration // a topic's consumer vanishes after this time without workers; default 7 days

	ResultAckWait    time.Duration // default 10 s
	ResultAckPending int           // unsettled results that NATS keeps account of, each group an eighth; default 8,000,000

	Keys Keyring // Current is required
	// LoadKeys reads the keys as they are now; nil: Keys for ever. It is called one call at a time, by ReloadKeys and before a
	// token is refused, each time with at most 5 s. ErrConfig in its error means that there are none that can be used, any other
	// error that they could not be read.
	LoadKeys func(context.Context) (Keyring, error)

	Clock   clock.WithTicker // default: the real one
	Rand    func() float64   // uniform in [0,1), safe for concurrent use; default math/rand
	Log     logr.Logger
	Metrics *Metrics // default: unregistered ones
}

// MaxBytes limits the size of each stream in bytes; 0 means unlimited. Full jobs, results and payloads refuse new messages,
// full dead letters and controls drop the oldest.
type MaxBytes struct{ Jobs, Results, DeadLetters, Control, Payloads int64 }

func (c Config) withDefaults() (Config, error) {
	if c.Names.Prefix == "" {
		c.Names.Prefix = protocol.DefaultPrefix
	}
	if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(c.Names.Prefix) {
		return c, fmt.Errorf("%w: prefix %q", ErrConfig, c.Names.Prefix)
	}
	if err := c.Keys.Check(); err != nil {
		return c, err
	}
	setDefault(&c.Replicas, 1)
	setDefault(&c.DuplicateWindow, 2*time.Minute)
	setDefault(&c.MaxAckPending, 10_000)
	setDefault(&c.MaxTopics, 1_000)
	setDefault(&c.TopicInactivity, 7*24*time.Hour)
	setDefault(&c.ResultAckWait, 10*time.Second)
	setDefault(&c.ResultAckPending, 8_000_000)
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

// groupShare is how many unsettled results one group may have. What was given back with a delay is among them, so this is no bound
// of what the operator holds: it is as large as the server's bookkeeping may get, some 100 bytes for each.
func (c Config) groupShare() int { return max(1, c.ResultAckPending/groups) }

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
		// No buffer: what fails is known to have failed, and no job goes out after its caller gave up.
		nats.ReconnectBufSize(-1),
	}
	if c.CredentialsFile != "" {
		o = append(o, nats.UserCredentials(c.CredentialsFile))
	}
	if c.User != "" {
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
