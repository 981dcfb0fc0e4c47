// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

const (
	hourEnv  = "CONSOLE_OF_AN_HOUR" // address of the API server: this process is the console of the test
	hourRuns = 2000
	hourTime = 240 // how much faster the console's clock goes: an hour is 15 s
	hostName = "console.test"
	mib      = 1 << 20
)

// fast is a clock that goes faster than time.
type fast struct {
	clock.RealClock
	begun time.Time
}

func (f fast) Now() time.Time                         { return f.begun.Add(hourTime * time.Since(f.begun)) }
func (f fast) Since(t time.Time) time.Duration        { return f.Now().Sub(t) }
func (f fast) NewTimer(d time.Duration) clock.Timer   { return f.RealClock.NewTimer(d / hourTime) }
func (f fast) NewTicker(d time.Duration) clock.Ticker { return f.RealClock.NewTicker(d / hourTime) }

// beConsole serves a console as cmd/console does, and says how much memory it has whenever it is
// asked: what is reachable, and what the system has given it.
func beConsole(api string) error {
	ctrllog.SetLogger(logr.Discard())
	c := fast{begun: time.Now()}
	who, err := access.NewInCluster(&rest.Config{Host: api, QPS: -1}, access.Options{Clock: c})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := server.New(ctx, who, server.Options{Hosts: []string{hostName}, Operator: "syncopate-system", Clock: c, Log: func(string, ...any) {}})
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(ctx, l) }()
	fmt.Println(l.Addr())
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		for range 2 { // what has a finalizer goes with the second
			runtime.GC()
		}
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapAlloc, resident(), runtime.NumGoroutine())
	}
	return nil
}

// resident is what of the system's memory this process has, in bytes.
func resident() int {
	var size, pages int
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &size, &pages)
	}
	return pages * os.Getpagesize()
}

// busyAPI is an API server with 2,000 runs that change, as far as a console asks.
type busyAPI struct {
	mu       sync.Mutex
	changes  int
	lists    int
	watchers map[chan int]bool
}

// change changes a run, and waits until each watch has been told.
func (a *busyAPI) change() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	for w := range a.watchers {
		select {
		case w <- a.changes:
		case <-time.After(patience): // its reader is stuck
		}
	}
}

// until waits until there are so many watches.
func (a *busyAPI) until(t *testing.T, want int) {
	t.Helper()
	got := -1
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		a.mu.Lock()
		got = len(a.watchers)
		a.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Fatalf("%d lists are watched, want %d", got, want)
}

func (a *busyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		body, _ := io.ReadAll(r.Body)
		review := &authenticationv1.TokenReview{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":%q,"groups":["team"]}}}`, review.Spec.Token)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case r.URL.Query().Get("limit") == "1":
		_, _ = io.WriteString(w, hourTable("1", hourRow(0, 0)))
	default:
		a.mu.Lock()
		a.lists++
		a.mu.Unlock()
		rows := make([]string, hourRuns)
		for i := range rows {
			rows[i] = hourRow(i, 0)
		}
		_, _ = io.WriteString(w, hourTable("1", rows...))
	}
}

func (a *busyAPI) watch(w http.ResponseWriter, r *http.Request) {
	told := make(chan int)
	a.mu.Lock()
	a.watchers[told] = true
	a.mu.Unlock()
	defer func() {
		go func() { // change may be about to tell it
			for range told {
			}
		}()
		a.mu.Lock()
		delete(a.watchers, told)
		a.mu.Unlock()
		close(told)
	}()
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case n := <-told:
			if _, err := fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, hourTable(fmt.Sprint(n), hourRow(n%hourRuns, n))); err != nil {
				return
			}
			if n%50 == 0 {
				_ = flush.Flush()
			}
		}
	}
}

func hourTable(version string, rows ...string) string {
	return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"` + version + `"},"columnDefinitions":[{"name":"Name"},{"name":"Phase"},{"name":"Steps"},{"name":"Tenant"},{"name":"Message"}],"rows":[` + strings.Join(rows, ",") + `]}`
}

func hourRow(i, n int) string {
	return fmt.Sprintf(`{"cells":["run-%d","Running","%d/9","tenant-%d","%0100d"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"team","name":"run-%d","uid":"uid-%d","creationTimestamp":"2026-11-20T10:00:00Z"}}}`, i, n%9, i%20, n, i, i)
}

// crowd are eight people, of three users, who look on all the time, and two places through which
// others come and go, each as a user who was not seen before.
type crowd struct {
	t       *testing.T
	address string
	looked  chan struct{} // a word for each page
	visits  atomic.Int64
	all     sync.WaitGroup
}

const (
	hourUsers  = 3
	hourPeople = 8
	hourPlaces = 2
)

func (c *crowd) come(ctx context.Context) {
	for i := range hourPeople {
		c.all.Go(func() {
			for ctx.Err() == nil {
				c.look(ctx, fmt.Sprintf("user-%d", i%hourUsers), 1<<30)
			}
		})
	}
}

// visit has others come and go, until the function is called.
func (c *crowd) visit(ctx context.Context) (leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	var here sync.WaitGroup
	for range hourPlaces {
		here.Go(func() {
			for ctx.Err() == nil {
				c.look(ctx, fmt.Sprintf("visitor-%d", c.visits.Add(1)), 5)
			}
		})
	}
	return func() { cancel(); here.Wait() }
}

// look follows the list as a page does, and fetches the page when it is told of a change. After so
// many pages it leaves.
func (c *crowd) look(ctx context.Context, user string, pages int) {
	stream, err := c.get(ctx, "/live/runs", user)
	if err != nil {
		return // it has to wait for the review of its token, or for room for its list
	}
	defer func() { _ = stream.Close() }()
	for lines := bufio.NewScanner(stream); pages > 0 && lines.Scan(); {
		if lines.Text() != "event: changed" {
			continue
		}
		page, err := c.get(ctx, fmt.Sprintf("/runs?page=%d", 1+pages%4), user)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, page)
		_ = page.Close()
		if err != nil {
			return
		}
		pages--
		select {
		case c.looked <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (c *crowd) get(ctx context.Context, path, user string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+path, nil)
	if err != nil {
		return nil, err
	}
	r.Host = hostName
	r.Header.Set("Authorization", "Bearer "+user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return answer.Body, nil
}

// hour is a console in a process of its own.
type hour struct {
	t       *testing.T
	address string
	ask     io.Writer
	answers *bufio.Scanner
}

func startHour(t *testing.T, api string) *hour {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), hourEnv+"="+api), os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { must(t, in.Close()); must(t, cmd.Wait()) })
	h := &hour{t: t, ask: in, answers: bufio.NewScanner(out)}
	h.address = h.line()
	return h
}

func (h *hour) line() string {
	h.t.Helper()
	if !h.answers.Scan() {
		h.t.Fatal("the console has ended")
	}
	return h.answers.Text()
}

// memory is what the console has reachable, and what of the system's memory, in MiB.
func (h *hour) memory() (heap, rss float64) {
	h.t.Helper()
	_, err := fmt.Fprintln(h.ask, "memory")
	must(h.t, err)
	var routines int
	_, err = fmt.Sscan(h.line(), &heap, &rss, &routines)
	must(h.t, err)
	h.t.Logf("%6.2f MiB reachable, %6.2f MiB of the system's, %d goroutines", heap/mib, rss/mib, routines)
	return heap / mib, rss / mib
}

// pass plays some of an hour: for each 50 changes, which is a second of it, people look at as many
// pages as there are people.
func (c *crowd) pass(ctx context.Context, api *busyAPI, changes int) {
	c.t.Helper()
	leave := c.visit(ctx)
	defer leave()
	for n := range changes {
		api.change()
		if n%50 != 49 {
			continue
		}
		for range hourPeople {
			select {
			case <-c.looked:
			case <-time.After(patience):
				c.t.Fatal("nobody looks on")
			}
		}
	}
}

// An hour of a console whose 2,000 runs change: people look on, some leave and others come. Its
// clock goes 240 times as fast, so that all of its periods pass many times. In make test there are
// 9,000 changes and 1,440 pages; with CONSOLE_HOUR=1 twenty times as many, which is 50 changes and
// 8 pages a second for an hour.
//
// mutation: a feed that keeps each change makes this fail.
func TestAnHourOfChangesTakesNoMemory(t *testing.T) {
	changes := 9000
	if os.Getenv("CONSOLE_HOUR") != "" {
		changes *= 20
	}
	api := &busyAPI{watchers: map[chan int]bool{}}
	s := httptest.NewServer(api)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	h := startHour(t, s.URL)
	people := &crowd{t: t, address: h.address, looked: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); people.all.Wait(); http.DefaultClient.CloseIdleConnections() }()
	people.come(ctx)
	const parts = 12
	var heaps, all []float64
	for range parts {
		people.pass(ctx, api, changes/parts)
		api.until(t, hourUsers) // the lists of those who have left are ended
		heap, rss := h.memory()
		heaps, all = append(heaps, heap), append(all, rss)
	}
	for name, values := range map[string][]float64{"reachable": heaps, "of the system's": all} {
		early, late := middle(values[parts/4:parts/2]), middle(values[3*parts/4:])
		t.Logf("%s: %.1f MiB in the second quarter of %d changes, %.1f in the last", name, early, changes, late)
		if late > 1.1*early {
			t.Errorf("%s: it grows", name)
		}
	}
	t.Logf("%d visits", people.visits.Load())
	if people.visits.Load() < 20 {
		t.Errorf("%d visits only", people.visits.Load())
	}
}

// middle is the median: at one moment a list may be on its way, and be in memory twice, or not yet.
func middle(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// mutation: Warm that does nothing, and one that lists for itself, make this fail.
func TestTheFirstPageFindsAListThatWasBegun(t *testing.T) {
	api := &busyAPI{watchers: map[chan int]bool{}}
	h := httptest.NewServer(api)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	view, err := cluster.NewView(&rest.Config{Host: h.URL}, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	s, err := server.New(t.Context(), who, server.Options{Base: who.Base(), Hosts: []string{hostName}, Clock: clock.RealClock{}, Log: t.Logf})
	must(t, err)
	t.Cleanup(s.Close)
	s.Warm(t.Context(), view)
	if api.lists != 1 {
		t.Fatalf("%d lists before the first page", api.lists)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, who.Base()+"/runs", nil)
	r.Host = hostName
	s.Handler().ServeHTTP(w, r)
	wants(t, w.Body.String(), "1 to 50 of 2000 runs")
	if api.lists != 1 {
		t.Errorf("%d lists after it", api.lists)
	}
}
