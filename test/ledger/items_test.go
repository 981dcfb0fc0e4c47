// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	itemsTopic = "ledger.items"
	itemsStep  = "each"
	itemsBatch = 50              // jobs that one worker takes at a time
	itemsFetch = 2 * time.Second // for jobs to come
	itemsFates = 20              // one item of so many fails at first, and one asks for a retry
	itemsEcho  = 40              // one of so many results is published again, and one with another value
	itemsLapse = 300             // one of so many jobs is not acknowledged, and comes again
)

// itemsSize is the size of a ledger of items.
type itemsSize struct {
	runs, items, workers int
	patience             time.Duration
}

// results is how many attempts there are: some items need two.
func (s itemsSize) results() (n int) {
	for r := range s.runs {
		for i := range s.items {
			n += attemptsOf(itemsRun(r), i)
		}
	}
	return n
}

func itemsRun(i int) string { return fmt.Sprintf("items-%04d", i) }

// fateOf draws what becomes of the first attempt of an item, the same each time.
func fateOf(run string, item int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, run, "/", item) // a hash never fails
	return h.Sum64() % itemsFates
}

// attemptsOf is how many attempts an item needs.
func attemptsOf(run string, item int) int {
	if fateOf(run, item) < 2 {
		return 2
	}
	return 1
}

// itemAttempt is what was published about one job.
type itemAttempt struct {
	values    []int64 // of all results that were published, also those that nobody confirmed
	sequence  uint64  // of the message that its job came in
	confirmed bool
}

// itemBook is the account of results of items. Each has a value that no other result has.
type itemBook struct {
	mu        sync.Mutex
	values    int64
	confirmed int
	jobs      map[string]*itemAttempt // by job id
	strange   []string
}

// take notes a job, and gives a value for its result.
func (b *itemBook) take(job string, sequence uint64) (value int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.jobs[job]
	if a == nil {
		a = &itemAttempt{sequence: sequence}
		b.jobs[job] = a
	}
	if a.sequence != sequence {
		b.strange = append(b.strange, fmt.Sprintf("%s was dispatched twice, as %d and %d", job, a.sequence, sequence))
	}
	b.values++
	a.values = append(a.values, b.values)
	return b.values
}

func (b *itemBook) confirm(job string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.jobs[job]; !a.confirmed {
		a.confirmed = true
		b.confirmed++
	}
}

func (b *itemBook) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.confirmed
}

// published is how many results were published, also those that nobody confirmed.
func (b *itemBook) published() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values
}

func (b *itemBook) wonder(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strange = append(b.strange, fmt.Sprintf(format, args...))
}

// see looks at each status write: what counted counts for ever.
func (b *itemBook) see(was, next *v1alpha1.WorkflowRun, _ time.Time) {
	before, after := itemsOf(was), itemsOf(next)
	switch {
	case before == nil:
	case after == nil:
		b.wonder("%s forgot its items", next.Name)
	case after.Succeeded < before.Succeeded || after.Begun < before.Begun:
		b.wonder("%s: %d of %d items ended, then %d of %d", next.Name, before.Succeeded, before.Begun, after.Succeeded, after.Begun)
	}
}

func itemsOf(run *v1alpha1.WorkflowRun) *v1alpha1.ForEachStatus {
	if run == nil || run.Status == nil || len(run.Status.Steps) == 0 {
		return nil
	}
	return run.Status.Steps[0].ForEach
}

// verdict says what is wrong with the end of a run: the value of each item has to be one that was
// published for its last attempt, and no attempt may be there that nobody had to make.
func (b *itemBook) verdict(run *v1alpha1.WorkflowRun, outputs []byte, items int) (wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if run.Status.Phase != v1alpha1.RunSucceeded {
		return []string{fmt.Sprintf("%s is %s: %v", run.Name, run.Status.Phase, run.Status.Conditions)}
	}
	var got struct{ Values []int64 }
	if err := json.Unmarshal(outputs, &got); err != nil || len(got.Values) != items {
		return []string{fmt.Sprintf("%s has %d values of %d: %v", run.Name, len(got.Values), items, err)}
	}
	for i, value := range got.Values {
		need := int32(attemptsOf(run.Name, i))
		id := protocol.JobID{RunUID: string(run.UID), Step: itemsStep, Item: fmt.Sprint(i), Attempt: need}
		a := b.jobs[id.String()]
		switch {
		case a == nil:
			wrong = append(wrong, fmt.Sprintf("%s: no worker had %s", run.Name, id))
			continue
		case !slices.Contains(a.values, value):
			wrong = append(wrong, fmt.Sprintf("%s: item %d has %d, published were %d", run.Name, i, value, a.values))
		case !a.confirmed:
			wrong = append(wrong, fmt.Sprintf("%s: %s counts, and was not confirmed", run.Name, id))
		}
		id.Attempt++
		if b.jobs[id.String()] != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %s was made, though the one before it was answered well", run.Name, id))
		}
	}
	return wrong
}

// itemClerks are workers that answer jobs of items, in bulk and not always once.
type itemClerks struct {
	w    *world
	book *itemBook
}

// serve takes jobs until the context ends.
func (c *itemClerks) serve(ctx context.Context) {
	for ctx.Err() == nil {
		consumer, err := c.w.js.Consumer(ctx, c.w.names.JobsStream(), protocol.Durable(itemsTopic))
		for err == nil && ctx.Err() == nil {
			err = c.pull(ctx, consumer)
		}
		linger(ctx, look)
	}
}

func (c *itemClerks) pull(ctx context.Context, consumer jetstream.Consumer) error {
	batch, err := consumer.Fetch(itemsBatch, jetstream.FetchMaxWait(itemsFetch))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		c.work(ctx, msg)
	}
	return batch.Error()
}

func (c *itemClerks) work(ctx context.Context, msg jetstream.Msg) {
	h := msg.Headers()
	job := h.Get(protocol.HeaderMsgID)
	id, err := protocol.ParseJobID(job)
	meta, noMeta := msg.Metadata()
	source := h.Get(protocol.HeaderCESource)
	if err != nil || noMeta != nil || id.Item == protocol.NoItem {
		c.book.wonder("a job %q of %s", job, source)
		_ = msg.Term() // it is in the book
		return
	}
	run, item := source[strings.LastIndex(source, "/")+1:], 0
	_, _ = fmt.Sscan(id.Item, &item) // ParseJobID has looked at it
	answer := func(suffix string) bool {
		value := c.book.take(job, meta.Sequence.Stream)
		return c.publish(ctx, msg, suffix, itemBody(run, item, id.Attempt, value))
	}
	if !answer("") {
		return // the test is over
	}
	c.book.confirm(job)
	switch meta.Sequence.Stream % itemsEcho {
	case 0:
		answer("")
	case 1:
		answer("/again")
	}
	if meta.NumDelivered > 1 || meta.Sequence.Stream%itemsLapse > 0 {
		_ = msg.Ack() // a lost one means the same
	}
}

// itemBody is the result of an attempt.
func itemBody(run string, item int, attempt int32, value int64) []byte {
	switch fate := fateOf(run, item); {
	case attempt == 1 && fate == 0:
		return fmt.Appendf(nil, `{"status":%q,"error":{"code":"Planned","message":"%d"}}`, protocol.StatusFailed, value)
	case attempt == 1 && fate == 1:
		return fmt.Appendf(nil, `{"status":%q,"retryAfterMillis":100}`, protocol.StatusRetry)
	}
	return fmt.Appendf(nil, `{"status":%q,"output":%d}`, protocol.StatusSucceeded, value)
}

// publish goes on until the server confirms that it has the message; false: the test ended before.
func (c *itemClerks) publish(ctx context.Context, msg jetstream.Msg, suffix string, body []byte) bool {
	h := msg.Headers()
	m := nats.NewMsg(h.Get(protocol.HeaderReply))
	m.Data = body
	m.Header.Set(protocol.HeaderMsgID, h.Get(protocol.HeaderMsgID)+"/"+h.Get(protocol.HeaderToken)+suffix)
	m.Header.Set(protocol.HeaderToken, h.Get(protocol.HeaderToken))
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, itemsFetch)
		_, err := c.w.js.PublishMsg(bounded, m)
		cancel()
		if err == nil {
			return true
		}
		linger(ctx, look)
	}
	return false
}

// itemsObjects are the runs: a list each, and all its values as the output.
func itemsObjects(s itemsSize) []*v1alpha1.WorkflowRun {
	list := make([]int, s.items)
	for i := range list {
		list[i] = i
	}
	inputs, err := json.Marshal(map[string]any{"list": list})
	if err != nil {
		panic(err) // numbers
	}
	runs := make([]*v1alpha1.WorkflowRun, s.runs)
	for i := range runs {
		step := v1alpha1.Step{
			Name: itemsStep, ForEach: &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: 200},
			Job:            &v1alpha1.Job{Topic: itemsTopic, Input: &runtime.RawExtension{Raw: []byte(`{"item":"${item}"}`)}},
			TimeoutSeconds: 3600,
		}
		step.Retry.MaxFailures, step.Retry.Backoff.InitialMillis = 5, new(int64(100))
		runs[i] = &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: itemsRun(i)}, Spec: v1alpha1.WorkflowRunSpec{
			Inputs: &runtime.RawExtension{Raw: inputs}, Steps: []v1alpha1.Step{step},
			Outputs: &runtime.RawExtension{Raw: []byte(`{"values":"${steps.each.output}"}`)},
		}}
	}
	return runs
}

// TestEveryResultOfAnItemIsAppliedExactlyOnce is the ledger of items at a size for every day.
func TestEveryResultOfAnItemIsAppliedExactlyOnce(t *testing.T) {
	s := itemsSize{runs: 10, items: 300, workers: 8, patience: 3 * time.Minute}
	runItems(t.Context(), t, s, func(seed uint64) []fault {
		return shuffled(seed, operatorKilled, natsKilled, bothKilled)
	}, v1alpha1.LockPolicySpec{RunLock: shortLock()})
}

// BenchmarkLedgerItems is the ledger of items in full: 100,000 items in each round, so that ten
// rounds (-benchtime 10x) have a million results.
func BenchmarkLedgerItems(b *testing.B) {
	for range b.N {
		runItems(b.Context(), b, itemsSize{runs: 100, items: 1000, workers: 16, patience: 30 * time.Minute}, allFaults, v1alpha1.LockPolicySpec{})
	}
}

// runItems plays a ledger of items to its end and judges it.
func runItems(ctx context.Context, tb testing.TB, s itemsSize, faults func(seed uint64) []fault, policy v1alpha1.LockPolicySpec) {
	tb.Helper()
	w := newWorld(ctx, tb)
	b := &itemBook{jobs: map[string]*itemAttempt{}}
	w.policy(ctx, policy)
	h := w.follow(ctx, b.see)
	o := w.startOperator(ctx, "operator")
	working, goHome := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer func() {
		goHome()
		workers.Wait()
	}()
	for range s.workers {
		workers.Go(func() { (&itemClerks{w: w, book: b}).serve(working) })
	}
	begin := time.Now()
	w.create(ctx, itemsObjects(s))
	plan := faults(w.seed())
	for i, f := range plan {
		at := s.results() * (i + 1) / (len(plan) + 1)
		await(ctx, tb, s.patience, fmt.Sprintf("%d results are confirmed", at), func() string {
			if n := b.count(); n < at {
				return fmt.Sprintf("%d are", n)
			}
			return ""
		})
		w.suffer(ctx, o, f)
		w.note("%s at %d results", f, at)
	}
	awaitFinished(ctx, tb, h, s.patience, s.runs)
	took := time.Since(begin)
	w.expectSettled(ctx, s.patience)
	w.expectDeadLetters(ctx, 0)
	finals := w.runs(ctx)
	awaitVersions(ctx, tb, h, s.patience, finals)
	w.judgeItems(ctx, b, finals, s)
	_, writes := h.Size()
	w.note("%d results of %d runs in %s, %.0f a second; %d published; %d status writes; %d operator kills, %d restarts of NATS",
		b.count(), s.runs, took.Round(100*time.Millisecond), float64(b.count())/took.Seconds(), b.published(), writes, o.kills, w.nats.restarts)
}

// outputs are what a run returned, wherever that is; nothing if it is nowhere.
func (w *world) outputs(ctx context.Context, run *v1alpha1.WorkflowRun) []byte {
	w.tb.Helper()
	switch st := run.Status; {
	case st.Outputs != nil:
		return st.Outputs.Raw
	case st.OutputsRef != nil:
		store, err := w.js.ObjectStore(ctx, w.names.PayloadsBucket())
		if err != nil {
			w.tb.Fatal(err)
		}
		outputs, err := store.GetBytes(ctx, st.OutputsRef.Name)
		if err != nil {
			w.tb.Errorf("%s: %s: %v", run.Name, st.OutputsRef.Name, err)
		}
		return outputs
	}
	return nil
}

// judgeItems fails the test with what is wrong with the ends of runs.
func (w *world) judgeItems(ctx context.Context, b *itemBook, finals []v1alpha1.WorkflowRun, s itemsSize) {
	w.tb.Helper()
	wrong := b.strange
	for i := range finals {
		wrong = append(wrong, b.verdict(&finals[i], w.outputs(ctx, &finals[i]), s.items)...)
	}
	if n := b.count(); n != s.results() {
		wrong = append(wrong, fmt.Sprintf("%d attempts were answered, %d were planned", n, s.results()))
	}
	for _, problem := range wrong[:min(len(wrong), problemsShown)] {
		w.tb.Error(problem)
	}
	if len(wrong) > problemsShown {
		w.tb.Errorf("and %d more", len(wrong)-problemsShown)
	}
}
