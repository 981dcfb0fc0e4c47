// SPDX-License-Identifier: Apache-2.0

package runwatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func runOf(uid, version string) *v1alpha1.WorkflowRun {
	fence := int64(3)
	return &v1alpha1.WorkflowRun{
		TypeMeta: metav1.TypeMeta{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "x", UID: types.UID(uid), ResourceVersion: version, Annotations: map[string]string{"said": `"uid":"other"} and {`},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "syncopate"}},
		},
		Spec:   v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "s"}}},
		Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Fence: &fence},
	}
}

// event is one as the API server writes it.
func event(t *testing.T, kind watch.EventType, o any) string {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var loose any // the API server has runs as maps, so that keys are sorted
	if err := json.Unmarshal(raw, &loose); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(loose); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, raw)
}

type bodyOf struct {
	io.Reader
	closed bool
}

func (b *bodyOf) Close() error {
	b.closed = true
	return nil
}

// codecOfRuns decodes as the cache of controller-runtime does.
func codecOfRuns(tb testing.TB) (runtime.Decoder, runtime.SerializerInfo) {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		tb.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	media, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return codecs.WithoutConversion().DecoderToVersion(media.Serializer, v1alpha1.GroupVersion), media
}

func decoderOf(t *testing.T, writes *Writes, text string) (d *decoder, own *int) {
	t.Helper()
	codec, _ := codecOfRuns(t)
	own = new(int)
	return newDecoder(&bodyOf{Reader: strings.NewReader(text)}, codec, writes, func(is bool) {
		if is {
			*own++
		}
	}), own
}

// Mutations that make this fail: own that looks at the UID alone, or at the version alone, or at
// events of other types; a find that keeps what it found; a take that shares the object with its
// writer, or leaves managedFields.
func TestOnlyTheEventOfAnOwnWriteIsNotDecoded(t *testing.T) {
	noted := runOf("u-1", "7")
	noted.Spec.Steps[0].Name = "from memory" // tells who was asked
	for name, c := range map[string]struct {
		kind watch.EventType
		run  *v1alpha1.WorkflowRun
		own  bool
	}{
		"an own write":                              {watch.Modified, runOf("u-1", "7"), true},
		"another version of the run":                {watch.Modified, runOf("u-1", "8"), false},
		"another run, with a version that is alike": {watch.Modified, runOf("u-2", "7"), false},
		"a run that is there, after a new watch":    {watch.Added, runOf("u-1", "7"), false},
		"a run that was deleted":                    {watch.Deleted, runOf("u-1", "7"), false},
		"no version":                                {watch.Modified, runOf("u-1", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			writes := NewWrites(clock.RealClock{})
			writes.Note(noted, 100)
			line := event(t, c.kind, c.run)
			d, own := decoderOf(t, writes, line+line)
			kind, o, err := d.Decode()
			if err != nil {
				t.Fatal(err)
			}
			want := c.run.DeepCopy()
			want.TypeMeta = metav1.TypeMeta{}
			if c.own {
				want.ManagedFields, want.Spec.Steps[0].Name = nil, "from memory"
			}
			if diff := cmp.Diff(want, o); diff != "" || kind != c.kind || (*own == 1) != c.own {
				t.Errorf("%s, %d own; run (-want +got):\n%s", kind, *own, diff)
			}
			if run, _ := o.(*v1alpha1.WorkflowRun); run.Status == noted.Status {
				t.Error("the cache has the object of the writer")
			}
			if _, _, err := d.Decode(); err != nil || *own > 1 {
				t.Errorf("the same event again: %v, %d own", err, *own)
			}
		})
	}
}

// Mutations that make this fail: object that does not look at what it has decoded, or that
// keeps the type.
func TestARunIsDecodedAsTheCodecDoes(t *testing.T) {
	codec, _ := codecOfRuns(t)
	for name, text := range map[string]string{
		"a run":                  `{"apiVersion":"syncopate.dev/v1alpha1","kind":"WorkflowRun","metadata":{"name":"a","labels":{"A":"1","a":"2"}},"spec":{"steps":[{"name":"s","Name":"t","job":{"topic":"t","input":{"n":1.0}}}]}}`,
		"another kind in it":     `{"apiVersion":"syncopate.dev/v1alpha1","kind":"WorkflowRun","metadata":{"name":"a"},"kind":"LockPolicy"}`,
		"a kind that is unknown": `{"apiVersion":"syncopate.dev/v1alpha1","kind":"WorkflowRun","metadata":{"name":"a"},"kind":"X"}`,
		"keys in another order":  `{"kind":"WorkflowRun","apiVersion":"syncopate.dev/v1alpha1","metadata":{"name":"a"}}`,
		"no run":                 `{"apiVersion":"syncopate.dev/v1alpha1","kind":"WorkflowRun","metadata":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			want, wantErr := runtime.Decode(codec, []byte(text))
			d, _ := decoderOf(t, NewWrites(clock.RealClock{}), `{"type":"ADDED","object":`+text+"}\n")
			_, got, err := d.Decode()
			if (err == nil) != (wantErr == nil) || err == nil && !cmp.Equal(want, got) {
				t.Errorf("%v, want %v; %v, want %v", got, want, err, wantErr)
			}
		})
	}
}

// Mutations that make this fail: an event that does not wait for the answer of its write, or waits
// for ever, or for writes of other runs.
func TestAnEventThatComesBeforeTheAnswerOfItsWriteWaitsForIt(t *testing.T) {
	for name, c := range map[string]struct {
		asked types.UID
		noted *v1alpha1.WorkflowRun // with the answer; nil: there is none
		after time.Duration         // answered
		own   bool
		took  time.Duration
	}{
		"answered":                  {"u-1", runOf("u-1", "7"), 3 * time.Millisecond, true, 3 * time.Millisecond},
		"refused":                   {"u-1", nil, 3 * time.Millisecond, false, 3 * time.Millisecond},
		"answered much later":       {"u-1", runOf("u-1", "7"), time.Minute, false, answerPatience},
		"a write of another run":    {"u-2", runOf("u-2", "7"), time.Minute, false, 0},
		"the next write of the run": {"u-1", runOf("u-1", "8"), 3 * time.Millisecond, false, 3 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes := NewWrites(clock.RealClock{})
				end := writes.Begin(c.asked)
				go func() {
					time.Sleep(c.after)
					if c.noted != nil {
						writes.Note(c.noted, 1)
					}
					end()
				}()
				d, own := decoderOf(t, writes, event(t, watch.Modified, runOf("u-1", "7")))
				begin := time.Now()
				if _, _, err := d.Decode(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != c.took || (*own == 1) != c.own {
					t.Errorf("%d own, after %s; want %v, after %s", *own, took, c.own, c.took)
				}
				time.Sleep(2 * time.Minute)
				writes.mu.Lock()
				defer writes.mu.Unlock()
				if len(writes.asked) != 0 {
					t.Errorf("%d writes are still waited for", len(writes.asked))
				}
			})
		})
	}
}

// Mutations that make this fail: await that waits again after one wait in vain, or never again.
func TestEventsOfOthersDoNotWaitForOneSlowWriteAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := NewWrites(clock.RealClock{})
		var lines string
		for i := range 20 {
			uid := fmt.Sprintf("u-%d", i)
			defer writes.Begin(types.UID(uid))()
			lines += event(t, watch.Modified, runOf(uid, "7"))
		}
		d, own := decoderOf(t, writes, lines)
		begin := time.Now()
		next := func(want time.Duration) {
			t.Helper()
			if _, _, err := d.Decode(); err != nil || time.Since(begin) != want {
				t.Fatalf("read after %s, want %s (%v)", time.Since(begin), want, err)
			}
		}
		for range 18 {
			next(answerPatience)
		}
		time.Sleep(patienceAgain)
		next(answerPatience + patienceAgain + answerPatience)
		if *own != 0 {
			t.Errorf("%d are own", *own)
		}
	})
}

// Mutations that make this fail: a line that is not copied when it is longer than the buffer; an
// end in the middle of a line that counts as the end; no bound of a line; a cut that does not look
// at the end of the line.
func TestEventsAreReadLineByLine(t *testing.T) {
	long := runOf("u-1", "7")
	long.Annotations["long"] = strings.Repeat("x", 3*lineBuffer)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 410}
	all := event(t, watch.Added, long) + event(t, watch.Modified, runOf("u-1", "8")) + event(t, watch.Bookmark, runOf("", "9")) + event(t, watch.Error, status) +
		"{ \"object\": {\"kind\":\"WorkflowRun\",\"apiVersion\":\"syncopate.dev/v1alpha1\"}, \"type\": \"ADDED\" }\n"
	d, _ := decoderOf(t, NewWrites(clock.RealClock{}), all)
	var kinds []watch.EventType
	for range 5 {
		kind, o, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, kind)
		if run, is := o.(*v1alpha1.WorkflowRun); is && len(kinds) == 1 && run.Annotations["long"] != long.Annotations["long"] {
			t.Error("a long event is another")
		}
		if s, is := o.(*metav1.Status); is && s.Code != 410 {
			t.Errorf("error %v", s)
		}
	}
	if diff := cmp.Diff([]watch.EventType{watch.Added, watch.Modified, watch.Bookmark, watch.Error, watch.Added}, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	d.Close()
	if b, _ := d.body.(*bodyOf); !b.closed {
		t.Error("the body is open")
	}
}

func TestWhatIsNoEventEndsTheWatch(t *testing.T) {
	whole := event(t, watch.Modified, runOf("u-1", "7"))
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"half an event":         {whole[:len(whole)/2], io.ErrUnexpectedEOF},
		"an event without end":  {whole[:len(whole)-1], io.ErrUnexpectedEOF},
		"an event on two lines": {strings.Replace(whole, `,"spec"`, ",\n\"spec\"", 1), errEvent},
		"another type":          {event(t, "RENAMED", runOf("u-1", "7")), errEvent},
		"no JSON":               {"hello\n", errEvent},
		"longer than an object": {strings.Repeat("x", maxLine+2*lineBuffer), errLongLine},
		"JSON that is cut":      {strings.Replace(whole, `"spec":{`, `"spec":`, 1), nil},
		"a type with more":      {`{"type":"ADDED","x":"","object":{}}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := decoderOf(t, NewWrites(clock.RealClock{}), c.text)
			_, o, err := d.Decode()
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("error %v, want %v; object %v", err, c.want, o)
			}
		})
	}
}

// Mutations that make this fail: no bound of the number, or of the bytes; bytes that are not given
// back; older writes of a run that stay.
func TestWritesAreBounded(t *testing.T) {
	w := NewWrites(clock.RealClock{})
	for i := range 2 * maxWrites {
		w.Note(runOf(fmt.Sprint("u-", i), "1"), 10)
	}
	if len(w.last) != maxWrites || w.bytes != 10*maxWrites {
		t.Errorf("%d writes and %d bytes are kept", len(w.last), w.bytes)
	}
	if w.take("u-0", "1") != nil || w.take(types.UID(fmt.Sprint("u-", 2*maxWrites-1)), "1") == nil {
		t.Error("not the oldest went")
	}
	w.Note(runOf("large", "1"), maxBytes-5)
	if len(w.last) != 1 || w.bytes != maxBytes-5 {
		t.Errorf("beside a large one %d writes, %d bytes", len(w.last), w.bytes)
	}
	w.Note(runOf("larger", "1"), maxBytes+1)
	if w.take("larger", "1") != nil || w.take("large", "1") == nil || w.bytes != 0 {
		t.Errorf("what is larger than all of the room is kept, or %d bytes are not given back", w.bytes)
	}
	for version := range 4 {
		w.Note(runOf("u", fmt.Sprint(version)), 1)
	}
	if w.take("u", "2") == nil || w.take("u", "1") != nil || len(w.last) != 1 || w.bytes != 1 {
		t.Errorf("%d writes, %d bytes are kept after one that is newer", len(w.last), w.bytes)
	}
}

// No input makes the decoder panic, or take for an own write what is not on a line of its own.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"MODIFIED","object":{"apiVersion":"syncopate.dev/v1alpha1","kind":"WorkflowRun","metadata":{"uid":"u-1","resourceVersion":"7"}}}` + "\n"))
	f.Add([]byte(`{"type":"ADDED","object":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		writes := NewWrites(clock.RealClock{})
		writes.Note(runOf("u-1", "7"), 1)
		d, own := decoderOf(&testing.T{}, writes, string(text))
		for range 4 {
			if _, _, err := d.Decode(); err != nil {
				break
			}
		}
		if *own > 0 && !bytes.Contains(text, []byte(`u-1`)) {
			t.Error("an own write that nobody names")
		}
	})
}
