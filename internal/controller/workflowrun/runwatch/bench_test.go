// SPDX-License-Identifier: Apache-2.0

package runwatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// again gives a text over and over.
type again struct {
	text []byte
	at   int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.text[a.at:])
	a.at = (a.at + n) % len(a.text)
	return n, nil
}

// largeRun is a chain of n steps that are over.
func largeRun(n int) *v1alpha1.WorkflowRun {
	run := runOf("u-1", "7")
	now := metav1.NowMicro()
	run.Spec.Steps, run.Annotations = nil, nil
	for i := range n {
		name := fmt.Sprint("step-", i)
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t", Input: &runtime.RawExtension{Raw: []byte(`{"n":1}`)}}})
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{
			Name: name, Phase: v1alpha1.StepSucceeded, Attempt: 1, JobID: "0b6f0f5c-7d9c-4b36-8f0a-0123456789ab/" + name + "/-/1",
			DispatchedAt: &now, StartedAt: &now, CompletedAt: &now, Output: &runtime.RawExtension{Raw: []byte(`{"n":1}`)},
		})
	}
	for _, c := range []string{"Admitted", "RunLockRenewed", "RunLockAbandoned", "DeadLettered", "Finished", "Succeeded", "Reconciling", "Stalled"} {
		run.Status.Conditions = append(run.Status.Conditions, metav1.Condition{Type: c, Status: "Unknown", Reason: "Running", Message: "as of now", LastTransitionTime: metav1.Now()})
	}
	return run
}

// BenchmarkEvent measures one event of the watch: as client-go decodes it, here if another wrote
// it, and if this process did.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{1, 5, 20} {
		run := largeRun(n)
		raw, err := json.Marshal(run)
		if err != nil {
			b.Fatal(err)
		}
		var loose map[string]any
		if err := json.Unmarshal(raw, &loose); err != nil {
			b.Fatal(err)
		}
		if raw, err = json.Marshal(loose); err != nil {
			b.Fatal(err)
		}
		line := bytes.Join([][]byte{[]byte(`{"type":"MODIFIED","object":`), raw, []byte("}\n")}, nil)
		codec, media := codecOfRuns(b)
		decode := func(b *testing.B, d watch.Decoder, before func()) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				before()
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		}
		body := func() io.ReadCloser { return io.NopCloser(&again{text: line}) }
		b.Run(fmt.Sprintf("steps=%d/client-go", n), func(b *testing.B) {
			frames := media.StreamSerializer.Framer.NewFrameReader(body())
			decode(b, restwatch.NewDecoder(streaming.NewDecoder(frames, media.StreamSerializer.Serializer), codec), func() {})
		})
		b.Run(fmt.Sprintf("steps=%d/another's", n), func(b *testing.B) {
			decode(b, newDecoder(body(), codec, NewWrites(clock.RealClock{}), func(bool) {}), func() {})
		})
		b.Run(fmt.Sprintf("steps=%d/own", n), func(b *testing.B) {
			writes := NewWrites(clock.RealClock{})
			decode(b, newDecoder(body(), codec, writes, func(bool) {}), func() { writes.Note(run, len(raw)) })
		})
	}
}
