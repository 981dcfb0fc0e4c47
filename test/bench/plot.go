package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"

	gonum "gonum.org/v1/plot"
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
	made.Draw(draw.Crop(draw.New(canvas), plotMargin, -plotMargin, plotMargin, -plotMargin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return fmt.Errorf("plot %s: %w", p.name, err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(out.Bytes(), []byte(plotFont), []byte(plotFonts)), 0o600); err != nil {
		return fmt.Errorf("plot %s: %w", p.name, err)
	}
	return nil
}

// plotFonts are as wide as plotFont, with which the pictures are laid out, and which not
// every machine has.
const (
	plotFont  = "font-family:Liberation Serif"
	plotFonts = plotFont + ",Times New Roman,Times,serif"
)

// palette are colours that most people can tell apart (Okabe and Ito).
func palette(i int) color.Color {
	colors := []color.RGBA{{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255}, {86, 180, 233, 255}}
	return colors[i%len(colors)]
}

func newPlot(title, x, y string) *gonum.Plot {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	p.Legend.Top = true
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
	p.NominalX(cases...)
	p.X.Min, p.X.Max = -0.5, float64(len(cases))-0.5
	p.Y.Max *= 1.3 // room for the legend
	return p, nil
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
	p.Y.Max *= 1.3 // room for the legend
	return p, nil
}
