// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
	plotMargin = 3 * vg.Millimeter
	barWidth   = 14 * vg.Millimeter
	fewCases   = 6 // have room for a name of two words in a line
)

// plot is a picture of a report.
type plot struct {
	name string
	make func() (*gonum.Plot, error)
}

// draw writes the picture as SVG.
func (p plot) draw(file string) (err error) {
	made, err := p.make()
	if err != nil {
		return fmt.Errorf("plot %s: %w", p.name, err)
	}
	canvas := vgsvg.New(plotWidth, plotHeight)
	drawBeside(made, draw.Crop(draw.New(canvas), plotMargin, -plotMargin, plotMargin, -plotMargin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return fmt.Errorf("plot %s: %w", p.name, err)
	}
	if err := os.WriteFile(file, fitText(out.Bytes()), 0o600); err != nil {
		return fmt.Errorf("plot %s: %w", p.name, err)
	}
	return nil
}

// drawBeside draws a picture with its legend on the right of it, where no line can be.
func drawBeside(p *gonum.Plot, c draw.Canvas) {
	legend := p.Legend
	p.Legend = gonum.NewLegend()
	width := vg.Length(0)
	if r := legend.Rectangle(c); r.Size().X > legend.ThumbnailWidth {
		width = r.Size().X + plotMargin
	}
	p.Draw(draw.Crop(c, 0, -width, 0, 0))
	legend.Draw(c)
	p.Legend = legend
}

// The pictures are laid out with plotFont, which not every machine has. So each text says how wide
// it is (textLength): whatever font draws it, it stays in its place.
const (
	plotFont  = "font-family:Liberation Serif"
	plotFonts = plotFont + ",Times New Roman,Times,serif"
)

// svgText is a text of a picture: its attributes, its size and what it says.
var svgText = regexp.MustCompile(`(?s)<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// fitText has each text of a picture drawn as wide as the layout took it to be. A picture that was
// fitted stays as it is.
func fitText(svg []byte) []byte {
	return svgText.ReplaceAllFunc(svg, func(text []byte) []byte {
		if bytes.Contains(text, []byte("textLength")) {
			return text
		}
		m := svgText.FindSubmatch(text)
		size, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return text
		}
		face := font.DefaultCache.Lookup(gonum.DefaultFont, vg.Points(size))
		width := face.Width(html.UnescapeString(string(m[3]))).Points()
		attributes := bytes.ReplaceAll(m[1], []byte(plotFont), []byte(plotFonts))
		return fmt.Appendf(nil, `<text %s textLength="%.2f" lengthAdjust="spacingAndGlyphs">%s</text>`, attributes, width, m[3])
	})
}

// palette are colours that most people can tell apart (Okabe and Ito).
func palette(i int) color.Color {
	colors := []color.RGBA{{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255}, {86, 180, 233, 255}}
	return colors[i%len(colors)]
}

func newPlot(title, x, y string) *gonum.Plot {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	p.BackgroundColor = color.White
	return p
}

// barPlot shows figures of one table: a bar for each case, or one of each name side by side, or on
// top of each other.
type barPlot struct {
	title, y string
	table    string
	names    []string
	stacked  bool
}

// of makes the picture from what the report has by now.
func (b barPlot) of(r *report, name string) plot {
	figures := slices.Clone(r.Figures)
	return plot{name: name, make: func() (*gonum.Plot, error) { return b.make(figures) }}
}

func (b barPlot) make(figures []*figure) (*gonum.Plot, error) {
	var cases []string
	values := map[[2]string]float64{}
	for _, f := range figures {
		if f.Table != b.table || !slices.Contains(b.names, f.Name) {
			continue
		}
		if !slices.Contains(cases, f.Case) {
			cases = append(cases, f.Case)
		}
		values[[2]string{f.Case, f.Name}] = f.Value
	}
	p := newPlot(b.title, "", b.y)
	p.Y.Min = 0
	var below *plotter.BarChart
	for i, name := range b.names {
		heights := make(plotter.Values, len(cases))
		for c := range cases {
			heights[c] = max(0, values[[2]string{cases[c], name}])
		}
		width := barWidth
		if !b.stacked {
			width /= vg.Length(len(b.names))
		}
		bars, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = palette(i), 0
		switch {
		case !b.stacked:
			bars.Offset = width * vg.Length(2*i+1-len(b.names)) / 2
		case below != nil:
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		if len(b.names) > 1 {
			p.Legend.Add(name, bars)
		}
	}
	for i, c := range cases {
		cases[i] = inLines(c, len(cases))
	}
	p.NominalX(cases...)
	p.X.Min, p.X.Max = -0.5, float64(len(cases))-0.5
	p.Y.Max *= 1.05
	return p, nil
}

// inLines breaks the name of a case: beside each other they have no room for long lines, and where
// there are many each word has its own.
func inLines(name string, cases int) string {
	if cases > fewCases {
		return strings.NewReplacer("-", "-\n", " ", "\n").Replace(name)
	}
	return strings.ReplaceAll(name, ", ", ",\n")
}

// series is a line.
type series struct {
	name   string
	points plotter.XYs
}

// linePlot shows series over one axis.
type linePlot struct {
	title, x, y string
	series      []series
}

func (l linePlot) of(name string) plot {
	return plot{name: name, make: l.make}
}

func (l linePlot) make() (*gonum.Plot, error) {
	p := newPlot(l.title, l.x, l.y)
	for i, s := range l.series {
		if len(s.points) == 0 {
			continue
		}
		slices.SortFunc(s.points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, err := plotter.NewLine(s.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = palette(i), vg.Points(1.2)
		p.Add(line)
		p.Legend.Add(s.name, line)
	}
	p.Y.Min = 0
	p.Y.Max *= 1.05
	return p, nil
}
