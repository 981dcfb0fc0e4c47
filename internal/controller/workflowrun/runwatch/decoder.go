// SPDX-License-Identifier: Apache-2.0

package runwatch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubejson "sigs.k8s.io/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// What runs are, in their JSON.
const (
	runVersion = "syncopate.dev/v1alpha1"
	runKind    = "WorkflowRun"
)

const (
	// maxLine bounds an event: more than the API server stores of an object.
	maxLine = 16 << 20
	// lineBuffer is read at a time.
	lineBuffer = 64 << 10
)

var (
	errLongLine = errors.New("an event of the watch of runs is longer than any object")
	errEvent    = errors.New("the watch of runs has something that is no event")
)

// Heads of events, as the API server writes them.
var (
	ownHead   = []byte(`{"type":"MODIFIED","object":{"apiVersion":"` + runVersion + `","kind":"` + runKind + `","metadata":`)
	runHead   = []byte(`{"apiVersion":"` + runVersion + `","kind":"` + runKind + `",`)
	eventHead = []byte(`{"type":"`)
	eventBody = []byte(`","object":`)
	eventTail = []byte("}\n")
)

// decoder reads events of runs. It implements watch.Decoder.
type decoder struct {
	body   io.ReadCloser
	lines  *bufio.Reader
	long   []byte          // of lines longer than the buffer
	codec  runtime.Decoder // of objects
	writes *Writes
	count  func(own bool)
}

func newDecoder(body io.ReadCloser, codec runtime.Decoder, writes *Writes, count func(own bool)) *decoder {
	return &decoder{body: body, lines: bufio.NewReaderSize(body, lineBuffer), codec: codec, writes: writes, count: count}
}

// Close implements watch.Decoder.
func (d *decoder) Close() { _ = d.body.Close() } // what was read stands

// Decode implements watch.Decoder.
func (d *decoder) Decode() (watch.EventType, runtime.Object, error) {
	line, err := d.line()
	if err != nil {
		return "", nil, err
	}
	if run := d.own(line); run != nil {
		d.count(true)
		return watch.Modified, run, nil
	}
	kind, raw, err := cut(line)
	if err != nil {
		return "", nil, err
	}
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return "", nil, fmt.Errorf("%w: type %q", errEvent, kind)
	}
	o, err := d.object(raw)
	if err != nil {
		return "", nil, fmt.Errorf("decode an event of the watch of runs: %w", err)
	}
	d.count(false)
	return kind, o, nil
}

// object decodes the object of an event. What is a run by its first bytes is read once; the codec
// reads it twice, first to find out what it is.
func (d *decoder) object(raw []byte) (runtime.Object, error) {
	if !bytes.HasPrefix(raw, runHead) {
		return runtime.Decode(d.codec, raw)
	}
	run := &v1alpha1.WorkflowRun{}
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(raw, run); err != nil {
		return nil, err
	}
	if run.Kind != runKind || run.APIVersion != runVersion { // of keys that are there twice the last one counts
		return runtime.Decode(d.codec, raw)
	}
	run.TypeMeta = metav1.TypeMeta{}
	return run, nil
}

// line reads the next line, with its end. It is valid until the next call.
func (d *decoder) line() ([]byte, error) {
	line, err := d.lines.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	d.long = append(d.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(d.long) > maxLine {
			return nil, errLongLine
		}
		line, err = d.lines.ReadSlice('\n')
		d.long = append(d.long, line...)
	}
	if errors.Is(err, io.EOF) && len(d.long) > 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return d.long, err
}

// own is the run of an event that tells of a write of this process; nil: it does not.
func (d *decoder) own(line []byte) runtime.Object {
	rest, ok := bytes.CutPrefix(line, ownHead)
	if !ok || !bytes.HasSuffix(line, eventTail) {
		return nil
	}
	var meta struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	}
	if json.NewDecoder(bytes.NewReader(rest)).Decode(&meta) != nil || meta.UID == "" {
		return nil // decoded as a whole, it says what is wrong
	}
	run := d.writes.take(meta.UID, meta.ResourceVersion)
	if run == nil && d.writes.await(meta.UID) {
		run = d.writes.take(meta.UID, meta.ResourceVersion)
	}
	if run == nil {
		return nil // not a nil *WorkflowRun in the interface
	}
	return run
}

// cut takes an event apart.
func cut(line []byte) (watch.EventType, []byte, error) {
	if rest, ok := bytes.CutPrefix(line, eventHead); ok {
		kind, raw, found := bytes.Cut(rest, eventBody)
		if raw, ends := bytes.CutSuffix(raw, eventTail); found && ends && len(kind) <= len(watch.Bookmark) {
			return watch.EventType(kind), raw, nil // if it is no event after all, it does not decode
		}
	}
	var e metav1.WatchEvent // in another form
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errEvent, err)
	}
	return watch.EventType(e.Type), e.Object.Raw, nil
}
