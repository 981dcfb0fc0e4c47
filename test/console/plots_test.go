// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// crossing finds texts of a picture that lie over each other, or leave it. The box of a line is a
// third higher than what is in it.
const crossing = `(() => {
  const found = [], whole = document.querySelector("svg").getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg text")].map((e) => ({what: e.textContent, box: e.getBoundingClientRect()}));
  const out = (b) => b.left < whole.left - 1 || b.right > whole.right + 1 || b.top < whole.top - 1 || b.bottom > whole.bottom + 1;
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > Math.min(a.height, b.height) / 3;
  texts.forEach((a, i) => {
    if (out(a.box)) found.push(a.what + " leaves the picture");
    texts.slice(i + 1).forEach((b) => { if (over(a.box, b.box)) found.push(a.what + " lies over " + b.what); });
  });
  return texts.length ? found : ["no text"];
})()`

// The text of each plot stays in its place, whatever font draws it. With PICTURES one of them is
// kept in both fonts.
// mutation: textLength taken out of the plots makes this fail.
func TestPlotsFitInTwoFonts(t *testing.T) {
	files, err := filepath.Glob(testenv.Root("docs", "benchmarks", "*.svg"))
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no plots")
	}
	p := open(t)
	for _, font := range []string{"DejaVu Sans Mono", "DejaVu Serif"} {
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			_, svg, _ := strings.Cut(string(text), "<svg")
			page := fmt.Sprintf("<!DOCTYPE html><style>text { font-family: %q !important }</style><svg%s", font, svg)
			p.do(chromedp.Navigate("data:text/html;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(page))))
			var found []string
			p.eval(crossing, &found)
			if len(found) > 0 {
				t.Errorf("%s in %s: %s", filepath.Base(file), font, strings.Join(found, "; "))
			}
			if dir := os.Getenv("PICTURES"); dir != "" && filepath.Base(file) == "throughput-cpu.svg" {
				var png []byte
				p.do(chromedp.Screenshot("svg", &png, chromedp.NodeVisible))
				must(t, os.WriteFile(filepath.Join(dir, "plot-"+strings.ToLower(strings.ReplaceAll(font, " ", "-"))+".png"), png, 0o600))
			}
		}
	}
}
