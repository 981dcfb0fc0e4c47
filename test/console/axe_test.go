// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// axe is axe-core, which hack/ensure-axe.sh gets; "": it is not there. REQUIRE_AXE=1 says that it
// must be.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(testenv.Root("hack", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil && os.Getenv("REQUIRE_AXE") != "" {
		t.Fatal(err)
	}
	return string(text)
}

// violation is a rule of axe-core that a page does not keep.
type violation struct {
	ID, Impact, Help string
	Where            []string
}

func (v violation) String() string {
	return v.Impact + ": " + v.ID + ": " + v.Help + ": " + strings.Join(v.Where, "; ")
}

// serious says whether it keeps people from using the page.
func (v violation) serious() bool { return v.Impact == "serious" || v.Impact == "critical" }

// violations are those of the page.
func (p *tab) violations(axe string) (found []violation) {
	p.t.Helper()
	p.eval(axe+"; true", nil)
	const script = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => ({
  ID: v.id, Impact: v.impact, Help: v.help, Where: v.nodes.map((n) => n.html.slice(0, 200)),
})))`
	p.do(chromedp.Evaluate(script, &found, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return found
}

func TestAxeFindsWhatIsWrong(t *testing.T) {
	script := axe(t)
	if script == "" {
		t.Skip("axe-core is not there; hack/ensure-axe.sh gets it")
	}
	p := open(t)
	p.do(chromedp.Navigate("about:blank"))
	p.eval(`document.documentElement.innerHTML = '<body><p style="color:#aaa;background:#fff">pale</p><a href="#"></a><input>'`, nil)
	serious := map[string]bool{}
	for _, v := range p.violations(script) {
		serious[v.ID] = v.serious()
	}
	for _, rule := range []string{"color-contrast", "label", "link-name", "html-has-lang"} {
		if !serious[rule] {
			t.Errorf("%s is not found: %v", rule, serious)
		}
	}
}
