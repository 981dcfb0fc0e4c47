// SPDX-License-Identifier: Apache-2.0

// Package console_test looks at the console with a real browser, beside a real API server.
//
// It needs Chromium: hack/ensure-chromium.sh. Without one it is skipped; REQUIRE_CHROMIUM=1 says
// that it must run. PICTURES=DIRECTORY has it keep pictures of all pages (make pictures).
package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const (
	patience = 60 * time.Second // for what must happen
	operator = "syncopate-system"
)

var (
	config *rest.Config
	admin  client.Client
)

func TestMain(m *testing.M) {
	if browser() == "" && os.Getenv("REQUIRE_CHROMIUM") == "" {
		fmt.Println("skipped: there is no chromium; hack/ensure-chromium.sh says how to get one")
		return
	}
	testenv.Main(m, func(e *envtest.Environment) error {
		scheme, err := testenv.Scheme()
		if err != nil {
			return err
		}
		config = rest.CopyConfig(e.Config)
		config.QPS, config.Burst = 500, 1000
		admin, err = client.New(config, client.Options{Scheme: scheme})
		return err
	})
}

// browser is the path of Chromium; "": there is none.
func browser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, name string) {
	t.Helper()
	must(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// console serves one, and gives its address.
func console(t *testing.T, letters server.Letters) string {
	t.Helper()
	url, _ := served(t, letters)
	return url
}

// served is a console, and what begins its first list, as kubectl syncopate console does before it
// starts the browser. Requests pass those that are before it, the last first.
func served(t *testing.T, letters server.Letters, before ...func(http.Handler) http.Handler) (url string, warm func()) {
	t.Helper()
	view, err := cluster.NewView(config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	h := httptest.NewUnstartedServer(nil)
	s, err := server.New(ctx, who, server.Options{
		Base: who.Base(), Hosts: []string{h.Listener.Addr().String()}, Operator: operator, Letters: letters, Clock: clock.RealClock{}, Log: t.Logf,
	})
	must(t, err)
	h.Config.Handler = s.Handler()
	for _, f := range before {
		h.Config.Handler = f(h.Config.Handler)
	}
	h.Start()
	var warming sync.WaitGroup
	t.Cleanup(func() { cancel(); h.CloseClientConnections(); h.Close(); s.Close(); warming.Wait() })
	return h.URL + who.Base(), func() { warming.Go(func() { s.Warm(ctx, view) }) }
}

// tab is a page of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp has the browser in it

	close func() // ends the browser
}

// open starts a browser; it ends with the test.
func open(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	page, end := chromedp.NewContext(ctx)
	p := &tab{t: t, ctx: page, close: sync.OnceFunc(func() {
		_ = chromedp.Cancel(page) // waits for the browser
		end()
		cancel()
	})}
	t.Cleanup(p.close)
	p.do()
	return p
}

// do does things in the page.
func (p *tab) do(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if len(actions) == 0 { // the first context that is used is the browser's life
		must(p.t, chromedp.Run(p.ctx))
		return
	}
	must(p.t, chromedp.Run(ctx, actions...))
}

// follow clicks on a link, by its text, and waits for its page. It finds and clicks in one step:
// between two, a page that fetches itself again may put another link in its place.
func (p *tab) follow(link string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Evaluate(fmt.Sprintf(
		`[...document.links].find(a => a.checkVisibility() && a.textContent.replace(/\s+/g, " ").trim() === %q).click()`, link), nil))
	must(p.t, err)
	p.do(chromedp.WaitReady("main"))
}

// eval is a value of the page.
func (p *tab) eval(script string, into any) {
	p.t.Helper()
	p.do(chromedp.Evaluate(script, into))
}

// until waits until the page has it.
func (p *tab) until(script string) {
	p.t.Helper()
	p.do(chromedp.Poll(script, nil, chromedp.WithPollingTimeout(patience)))
}

// mode is dark or light.
func mode(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
}

// picture keeps one of the window, if that is wanted.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	for _, m := range []string{"light", "dark"} {
		var png []byte
		p.do(mode(m), chromedp.CaptureScreenshot(&png))
		must(p.t, os.WriteFile(filepath.Join(dir, name+"-"+m+".png"), png, 0o600))
	}
	p.do(mode("light"))
}
