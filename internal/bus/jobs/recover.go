package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// RecoverOutcome says where Recover found a job.
type RecoverOutcome int

// The outcomes of Recover.
const (
	Queued    RecoverOutcome = iota + 1 // it waits, or a worker has it
	Answered                            // its result waits in the stream of results
	Published                           // it was in neither place, and is queued now
)

// String gives the name of the outcome.
func (o RecoverOutcome) String() string {
	switch o {
	case Queued:
		return "Queued"
	case Answered:
		return "Answered"
	case Published:
		return "Published"
	default:
		return "Unknown"
	}
}

// Recover makes sure that a job whose dispatch is in the run's status is under way, whatever happened since, without giving it
// to a second worker. It is idempotent. Errors are those of Publish.
//
// What was published before, and is still on its way, must not be stored after the looks: they come after a Fence. Where Job.Epoch is
// of one that was made for this call, it is not made again.
func (b *Bus) Recover(ctx context.Context, j Job) (RecoverOutcome, error) {
	if err := checkNames(j.Topic, j.ID); err != nil {
		return 0, err
	}
	if err := b.usable(ctx); err != nil {
		return 0, b.retryable("recover job", err)
	}
	if err := b.topics.ensure(ctx, j.Topic); err != nil { // a queued job is of no use if no worker can bind
		return 0, err
	}
	if j.Epoch == 0 {
		var err error
		if j.Epoch, err = b.Fence(ctx, j); err != nil {
			return 0, err
		}
	}
	if found, err := b.find(ctx, j); err != nil || found != 0 {
		return found, err
	}
	return b.publishAbsent(ctx, j)
}

// publishAbsent publishes what was found nowhere.
func (b *Bus) publishAbsent(ctx context.Context, j Job) (RecoverOutcome, error) {
	s, err := b.publish(ctx, j)
	if err != nil {
		return 0, err
	}
	switch s {
	case storedNow:
		return Published, nil
	case storedBefore:
		return Queued, nil
	default:
		return b.afterDuplicate(ctx, j)
	}
}

// find looks for the job in JOBS and then for its result in RESULTS. The order matters: a worker publishes its result before
// it acknowledges the job, so a job that is gone from JOBS has its result in RESULTS already. The other way round, a job that
// is finished between the two looks would be seen in neither.
func (b *Bus) find(ctx context.Context, j Job) (RecoverOutcome, error) {
	queued, err := b.stillQueued(ctx, j)
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		return 0, err
	}
	if err != nil {
		return 0, b.retryable("look for job", err)
	}
	if queued {
		return Queued, nil
	}
	answered, err := b.jobAnswered(ctx, j)
	if err != nil {
		return 0, b.retryable("look for result", err)
	}
	if answered {
		return Answered, nil
	}
	return 0, nil
}

// afterDuplicate tells the two cases apart in which the stream drops a job that find did not see: somebody else published it
// meanwhile, or it was there and is gone without a result (withdrawn, or acknowledged by a worker that broke the protocol).
func (b *Bus) afterDuplicate(ctx context.Context, j Job) (RecoverOutcome, error) {
	found, err := b.find(ctx, j)
	if err != nil || found != 0 {
		return found, err
	}
	return 0, b.retryable("recover job", ErrRecentlyGone)
}

func (b *Bus) jobQueued(ctx context.Context, j Job) (bool, error) {
	before := b.losses.before(b.names.JobsStream())
	m, err := b.leaderGet(ctx, b.names.JobsStream(), getRequest{LastFor: b.names.Job(j.Topic, j.ID)})
	if m != nil {
		b.losses.present(before, m.Seq)
	}
	return m != nil, err
}

// stillQueued says whether the job is in JOBS, by the word of a server that has the fence message of the job's epoch: one that lags, and
// still takes itself for the leader, is not believed. All jobs that were stored before that message are in front of it.
func (b *Bus) stillQueued(ctx context.Context, j Job) (bool, error) {
	before := b.losses.before(b.names.JobsStream())
	next := uint64(1)
	for range maxFencesRead {
		m, err := b.leaderGet(ctx, b.names.JobsStream(), getRequest{Seq: next, NextFor: b.names.Dispatch(j.Topic, j.ID)})
		switch {
		case err != nil:
			return false, err
		case m == nil:
			return false, errFenceGone
		}
		b.losses.present(before, m.Seq)
		if m.Subject == b.names.Job(j.Topic, j.ID) {
			return true, nil
		}
		switch by := m.fence(); {
		case m.Seq == j.Epoch:
			return false, nil
		case m.Seq > j.Epoch && by > j.Fence:
			return false, &FencedError{ID: j.ID, Fence: j.Fence, By: by}
		}
		next = m.Seq + 1
	}
	return false, errFenceGone
}

// maxFencesRead bounds the fence messages of an attempt that are looked through. There is one, and for a moment two.
const maxFencesRead = 16

// jobAnswered looks for a final answer with a valid token on the job's result subject. Started does not count: a job that a worker has
// is in JOBS until it is answered, so where it is not, the worker has nothing in its hands that anybody would get again. A message without
// a valid token does not count, or anybody could keep a job from being dispatched.
func (b *Bus) jobAnswered(ctx context.Context, j Job) (bool, error) {
	s := b.scanResults(b.names.Result(j.ID), 1)
	for range maxAnswersRead {
		switch m, err := s.next(ctx); {
		case err != nil || m == nil:
			return false, err
		case m.authentic && !isStarted(m.Data):
			return true, nil
		}
	}
	return true, nil // a flood of forgeries: when in doubt, nothing is dispatched twice
}

// isStarted says whether a message is the news that a worker began. What cannot be read is an answer: its attempt fails by it.
func isStarted(body []byte) bool {
	r, err := protocol.DecodeResult(body)
	return err == nil && r.Status == protocol.StatusStarted
}

type getRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *storedMessage      `json:"message"`
}

type storedMessage struct {
	Seq     uint64    `json:"seq"`
	Subject string    `json:"subject"`
	Time    time.Time `json:"time"` // when the stream stored it
	Headers []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	header  nats.Header
}

// fence is that of the writer who stored the message; 0 where no operator did: it has no say.
func (m *storedMessage) fence() int64 {
	fence, err := strconv.ParseInt(m.header.Get(protocol.HeaderFence), 10, 64)
	if err != nil {
		return 0
	}
	return fence
}

// leaderGet reads a message by the API call that only the stream's leader answers. The client library would use a direct get,
// which any replica answers, on a stream that somebody switched to it. nil means that there is none.
func (b *Bus) leaderGet(ctx context.Context, stream string, req getRequest) (*storedMessage, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	reply, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var r getResponse
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	if r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return nil, b.repairStreams(ctx) // a stream that vanished took its messages along
	}
	return r.message()
}

// message is nil if there is none.
func (r getResponse) message() (*storedMessage, error) {
	switch {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case r.Error != nil:
		return nil, r.Error
	case r.Message == nil:
		return nil, errors.New("answer has no message")
	case len(r.Message.Headers) == 0:
		return r.Message, nil
	}
	header, err := nats.DecodeHeadersMsg(r.Message.Headers)
	if err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	r.Message.header = header
	return r.Message, nil
}
