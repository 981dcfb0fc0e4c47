// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
)

// way is the files of the operator that were on the stack wherever something left or entered it,
// each once, in order.
type way struct {
	mu    sync.Mutex
	on    bool
	files []string
}

// watch begins and ends the notes.
func (w *way) watch(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
}

func (w *way) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.files)
}

// look notes the files on the stack, outermost first.
func (w *way) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		return
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var stack []string
	for {
		f, more := frames.Next()
		if _, file, ok := strings.Cut(f.File, "/internal/controller/"); ok && !strings.HasSuffix(file, "_test.go") && strings.Contains(f.Function, "syncopate") {
			stack = append(stack, file)
		}
		if !more {
			break
		}
	}
	slices.Reverse(stack)
	for _, file := range stack {
		if !slices.Contains(w.files, file) {
			w.files = append(w.files, file)
		}
	}
}

// watchedClock looks at the stack whenever it is asked for the time.
type watchedClock struct {
	clock.WithTickerAndDelayedExecution
	way *way
}

func (c watchedClock) Now() time.Time {
	c.way.look()
	return c.WithTickerAndDelayedExecution.Now()
}

var _ = Describe("the way of one result", func() {
	It("is the one that docs/architecture.md tells, file by file", func(ctx SpecContext) {
		w := newWorld(ctx)
		taken := &way{}
		r := w.newReplica(ctx, "r", withClock(watchedClock{w.clock, taken}), func(r *replica) { r.quiet = true })
		r.hook = func(context.Context, string) error {
			taken.look()
			return nil
		}
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b", "a")})
		r.inFlight(ctx, run, 1)
		w.clock.Step(time.Second)
		task := w.takeAll(ctx, 1)[0]
		woken := make(chan types.NamespacedName, 1)
		r.router.Wake = func(key types.NamespacedName) {
			taken.look()
			select {
			case woken <- key:
			default: // of a result that came again
			}
		}
		taken.watch(true)
		running(ctx, results.NewConsumer(r.bus.Conn, r.bus.Results, r.router).Start)
		task.succeed(ctx)
		Eventually(woken).WithContext(ctx).WithTimeout(patience).Should(Receive())
		for _, p := range r.Batches.Inbox.Waiting(run.UID) {
			if d, ok := p.Delivery.(*busresults.Delivery); ok {
				p.Delivery = &watched{Delivery: d, r: r, pending: p}
			}
		}
		r.mustPass(ctx, run)
		taken.watch(false)
		Expect(w.get(ctx, run).Status.Steps[0].Phase).To(Equal(v1alpha1.StepSucceeded))

		page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "architecture.md"))
		Expect(err).NotTo(HaveOccurred())
		_, told, _ := strings.Cut(string(page), "<!-- way: begin -->")
		told, _, _ = strings.Cut(told, "<!-- way: end -->")
		var want []string
		for _, m := range regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`").FindAllStringSubmatch(told, -1) {
			want = append(want, m[1])
		}
		Expect(taken.seen()).To(Equal(want))
	}, NodeTimeout(2*patience))
})
