// SPDX-License-Identifier: Apache-2.0

package otlptest

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Sizes of a picture, in pixels.
const (
	rowHeight  = 22
	labelWidth = 300
	barWidth   = 640
	indent     = 14
	leastBar   = 2
)

const pictureStyle = `<style>
svg{background:#fff;color:#1f2328;font:13px ui-sans-serif,system-ui,sans-serif}text{fill:currentColor}
.axis{stroke:#d0d7de}.wait{fill:#b6bec9}.operator{fill:#3b6fd4}.worker{fill:#2e9e5b}.failed{fill:#cf3f3a}
@media (prefers-color-scheme: dark){svg{background:#0d1117;color:#e6edf3}.axis{stroke:#3d444d}.wait{fill:#6e7681}}
</style>
`

// Draw is a picture of spans as SVG: a line each, below its parent, with a bar from its start to
// its end. Spans are those of the operator, but for those of consumers, which are workers'.
func Draw(spans []*tracepb.Span) []byte {
	rows := tree(spans, "", 0)
	begin, end := extent(spans)
	scale := float64(barWidth) / float64(max(end-begin, 1))
	height := rowHeight * (len(rows) + 2)
	var out bytes.Buffer
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"A trace\">\n%s",
		labelWidth+barWidth+110, height, pictureStyle)
	for i := range 5 {
		x := labelWidth + barWidth*i/4
		at := time.Duration(float64(end-begin) * float64(i) / 4).Round(10 * time.Millisecond)
		fmt.Fprintf(&out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"15\" text-anchor=\"middle\">%s</text>\n", x, x, rowHeight, height, x, at)
	}
	for i, row := range rows {
		s, y := row.span, rowHeight*(i+1)+4
		x := labelWidth + int(scale*float64(s.GetStartTimeUnixNano()-begin))
		width := max(leastBar, int(scale*float64(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano())))
		took := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()).Round(time.Millisecond)
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\">%s</text><rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			8+indent*row.depth, y+12, html.EscapeString(s.GetName()), look(s), x, y, width, rowHeight-8, x+width+5, y+12, took)
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// row is a line of a picture.
type row struct {
	span  *tracepb.Span
	depth int
}

// tree gives the spans below a parent, each with those below it, in the order of their starts.
func tree(spans []*tracepb.Span, parent string, depth int) (rows []row) {
	var here []*tracepb.Span
	for _, s := range spans {
		if string(s.GetParentSpanId()) == parent {
			here = append(here, s)
		}
	}
	slices.SortStableFunc(here, func(a, b *tracepb.Span) int {
		return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, s := range here {
		rows = append(append(rows, row{s, depth}), tree(spans, string(s.GetSpanId()), depth+1)...)
	}
	return rows
}

func extent(spans []*tracepb.Span) (begin, end uint64) {
	for i, s := range spans {
		if i == 0 || s.GetStartTimeUnixNano() < begin {
			begin = s.GetStartTimeUnixNano()
		}
		end = max(end, s.GetEndTimeUnixNano())
	}
	return begin, end
}

// look is the class of a bar.
func look(s *tracepb.Span) string {
	switch waits := []string{"wait for admission", "wait for locks", "approval", "delay"}; {
	case s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR:
		return "failed"
	case s.GetKind() == tracepb.Span_SPAN_KIND_CONSUMER:
		return "worker"
	case slices.Contains(waits, s.GetName()):
		return "wait"
	}
	return "operator"
}
