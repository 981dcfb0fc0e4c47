// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"net/http"
	"runtime/metrics"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	heavyItems = 128
	heavyHeap  = 48 << 20
)

// looks is a reader of nothing, which notes how much memory there is.
type looks struct {
	heap    uint64
	samples []metrics.Sample
}

func (l *looks) Read([]byte) (int, error) {
	metrics.Read(l.samples)
	l.heap = max(l.heap, l.samples[0].Value.Uint64())
	return 0, io.EOF
}

// heavyView is of an API server whose lists have a MiB in each item. item has a place for that, and
// one for its number.
func heavyView(t *testing.T, kind, item string) (*View, *looks) {
	t.Helper()
	l := &looks{samples: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}}
	long := strings.Repeat("x", 1<<20)
	view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("continue") != "" { // one page is enough
			return answerOf(r, http.StatusOK, kind+`"metadata":{},"items":[]}`), nil
		}
		parts := []io.Reader{strings.NewReader(kind + `"metadata":{"continue":"more"},"items":[`)}
		before, after, _ := strings.Cut(item, "LONG")
		for i := range heavyItems {
			parts = append(parts, l, strings.NewReader(fmt.Sprintf(before, i)), strings.NewReader(long), strings.NewReader(after))
			if i < heavyItems-1 {
				parts = append(parts, strings.NewReader(","))
			}
		}
		parts = append(parts, l, strings.NewReader("]}"))
		answer := answerOf(r, http.StatusOK, "")
		answer.Body = io.NopCloser(io.MultiReader(parts...))
		return answer, nil
	})}, "")
	if err != nil {
		t.Fatal(err)
	}
	return view, l
}

// mutation: Schedules that reads whole objects, or keeps their templates, makes this fail.
//
//nolint:paralleltest // others would be counted
func TestSchedulesAreNeverThereAsAWhole(t *testing.T) {
	view, l := heavyView(t, `{"kind":"ScheduleList","apiVersion":"syncopate.dev/v1alpha1",`,
		`{"metadata":{"namespace":"team","name":"s%d"},"spec":{"cron":["0 0 * * *"],"runTemplate":{"spec":{"inputs":"LONG"}}},"status":{"active":1}}`)
	all, more, err := view.Schedules(t.Context(), "team")
	if err != nil || !more || len(all) != heavyItems || all[7].Name != "s7" || all[7].Spec.Cron[0] != "0 0 * * *" || all[7].Status.Active != 1 {
		t.Errorf("%d schedules, more %t: %v", len(all), more, err)
	}
	if l.heap > heavyHeap {
		t.Errorf("%d MiB of heap", l.heap>>20)
	}
}

// mutation: events that are read as a whole, or kept with all of their message, make this fail.
//
//nolint:paralleltest // others would be counted
func TestEventsAreNeverThereAsAWhole(t *testing.T) {
	view, l := heavyView(t, `{"kind":"EventList","apiVersion":"v1",`,
		`{"metadata":{"namespace":"team","name":"e%d"},"lastTimestamp":"2026-11-20T10:00:00Z","reason":"Began","message":"It LONG"}`)
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "run", UID: "uid"}}
	r := &facts.Run{Stored: run}
	err := view.events(t.Context(), r)
	if all := r.Events; err != nil || len(all) != maxEvents || all[0].Reason != "Began" || !strings.HasPrefix(all[0].Message, "It xxx") || all[0].LastTimestamp.IsZero() {
		t.Errorf("%d events: %v", len(all), err)
	}
	if l.heap > heavyHeap {
		t.Errorf("%d MiB of heap", l.heap>>20)
	}
}
