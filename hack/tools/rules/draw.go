// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Sizes of the picture, in pixels.
const (
	cell      = 60 // of a column of Grafana's grid
	unit      = 24 // of a row
	inset     = 10
	titleRoom = 22
	keyRoom   = 14
	maxKeys   = 4
)

// colors are those that most people can tell apart (Okabe and Ito).
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"}

const drawStyle = `<style>
svg{background:#fff;color:#1f2328;font:11px ui-sans-serif,system-ui,sans-serif}text{fill:currentColor}
.box{fill:none;stroke:#d0d7de}.t{font-weight:600;font-size:12px}.row{font-weight:600;font-size:15px}.n{fill:#6e7781}polyline{fill:none;stroke-width:1.5}
@media (prefers-color-scheme: dark){svg{background:#0d1117;color:#e6edf3}.box{stroke:#3d444d}.n{fill:#9198a1}}
</style>
`

// drawDashboard draws what the panels show of scrapes as one picture, each in its place, and says
// which of them show nothing.
func drawDashboard(ctx context.Context, path, scrapes, picture string) error {
	b, err := newRulebook(nil)
	if err != nil {
		return err
	}
	d, err := readDashboard(path)
	if err != nil {
		return err
	}
	data, from, to, err := b.readScrapes(scrapes)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	height, empty := 0, []string(nil)
	for _, p := range d.Panels {
		height = max(height, (p.GridPos.Y+p.GridPos.H)*unit)
		if p.Type == "row" {
			fmt.Fprintf(&out, "<text class=\"row\" x=\"%d\" y=\"%d\">%s</text>\n", inset, p.GridPos.Y*unit+17, html.EscapeString(p.Title))
			continue
		}
		all, err := b.curves(ctx, p, d, data, from, to)
		if err != nil {
			return err
		}
		if !p.draw(&out, all, from, to) {
			empty = append(empty, p.Title)
		}
	}
	svg := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"The dashboard\">\n%s%s</svg>\n", columns*cell, height, drawStyle, out.Bytes())
	fmt.Printf("no data in %d panels: %s\n", len(empty), strings.Join(empty, "; "))
	return os.WriteFile(picture, []byte(svg), 0o600)
}

// draw draws a panel, and says whether it shows anything.
func (p panel) draw(out *bytes.Buffer, all []curve, from, to time.Time) bool {
	x, y, w, h := p.GridPos.X*cell, p.GridPos.Y*unit, p.GridPos.W*cell, p.GridPos.H*unit
	fmt.Fprintf(out, "<rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"/><text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n",
		x+3, y+3, w-6, h-6, x+inset, y+18, html.EscapeString(cut(p.Title, (w-2*inset)/7)))
	switch {
	case len(all) == 0:
		fmt.Fprintf(out, "<text class=\"n\" x=\"%d\" y=\"%d\">no data</text>\n", x+inset, y+h/2)
	case p.Type == "stat":
		last := all[0].points[len(all[0].points)-1].F
		fmt.Fprintf(out, "<text font-size=\"28\" x=\"%d\" y=\"%d\">%s</text>\n", x+inset, y+h/2+18, digits(last))
	default:
		p.drawCurves(out, all, from, to)
	}
	return len(all) > 0
}

func (p panel) drawCurves(out *bytes.Buffer, all []curve, from, to time.Time) {
	x, y, w, h := p.GridPos.X*cell, p.GridPos.Y*unit, p.GridPos.W*cell, p.GridPos.H*unit
	most := math.SmallestNonzeroFloat32
	for _, c := range all {
		for _, v := range c.points {
			most = max(most, v.F)
		}
	}
	keys := min(len(all), maxKeys)
	top, bottom := y+titleRoom+keyRoom, y+h-inset-keyRoom*(keys+1)
	fmt.Fprintf(out, "<text class=\"n\" x=\"%d\" y=\"%d\">most %s</text>\n", x+inset, y+titleRoom+10, digits(most))
	scale, second := float64(bottom-top)/most, float64(w-2*inset)/float64(max(to.UnixMilli()-from.UnixMilli(), 1))
	for i, c := range all {
		var points []string
		color, before := colors[i%len(colors)], c.points[0].T
		for _, v := range c.points {
			if v.T-before > lookBack.Milliseconds() { // nothing was there in between
				fmt.Fprintf(out, "<polyline stroke=\"%s\" points=\"%s\"/>\n", color, strings.Join(points, " "))
				points = nil
			}
			before = v.T
			points = append(points, fmt.Sprintf("%.0f,%.0f", float64(x+inset)+second*float64(v.T-from.UnixMilli()), float64(bottom)-scale*math.Max(v.F, 0)))
		}
		fmt.Fprintf(out, "<polyline stroke=\"%s\" points=\"%s\"/>\n", color, strings.Join(points, " "))
		if i >= keys {
			continue
		}
		name, more := cut(c.name, (w-3*inset-90)/6), ""
		if i == keys-1 && len(all) > keys {
			more = fmt.Sprintf(", and %d more", len(all)-keys)
		}
		ky := bottom + keyRoom*(i+1) + 2
		fmt.Fprintf(out, "<rect fill=\"%s\" x=\"%d\" y=\"%d\" width=\"8\" height=\"8\"/><text x=\"%d\" y=\"%d\">%s</text>\n", color, x+inset, ky-8, x+inset+12, ky, html.EscapeString(name+more))
	}
}

// cut is a text of so many characters at most.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:max(most-1, 1)]) + "…"
	}
	return s
}

func digits(v float64) string {
	if v <= math.SmallestNonzeroFloat32 {
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
