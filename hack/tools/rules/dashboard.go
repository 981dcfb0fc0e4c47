// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
)

var errDashboard = errors.New("the dashboard is not as it should be")

// dashboard is what is looked at of Grafana's.
type dashboard struct {
	SchemaVersion int     `json:"schemaVersion"`
	UID           string  `json:"uid"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID         int
	Type       string
	Title      string
	GridPos    struct{ X, Y, W, H int }
	Datasource struct{ Type, UID string }
	Targets    []struct{ Expr, RefID, LegendFormat string }
	Options    json.RawMessage
}

const columns = 24 // of Grafana's grid

// panelTypes are those of Grafana that are in use.
var panelTypes = []string{"row", "stat", "timeseries", "heatmap", "table"}

func readDashboard(path string) (d dashboard, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// problems says what Grafana would not show as it is meant: panels that lie over each other or
// leave the grid, ids and references that are there twice, unknown types and variables, and
// expressions that Prometheus does not read.
func (b *rulebook) problems(d dashboard) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if d.UID == "" || d.SchemaVersion == 0 || len(d.Panels) == 0 {
		say("no uid, schemaVersion or panels")
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			say("%q: its id %d is there twice, or 0", p.Title, p.ID)
		}
		ids[p.ID] = true
		if !slices.Contains(panelTypes, p.Type) {
			say("%q: type %q", p.Title, p.Type)
		}
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > columns {
			say("%q: it is not in the grid: %+v", p.Title, g)
		}
		for _, other := range d.Panels[:i] {
			if p.over(other) {
				say("%q lies over %q", p.Title, other.Title)
			}
		}
		found = append(found, b.wrongTargets(p, d)...)
	}
	return found
}

func (p panel) over(o panel) bool {
	a, b := p.GridPos, o.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func (b *rulebook) wrongTargets(p panel, d dashboard) (found []string) {
	if p.Type == "row" {
		return nil
	}
	if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
		found = append(found, fmt.Sprintf("%q: no query, or another data source than the one that is chosen", p.Title))
	}
	refs := map[string]bool{}
	for _, t := range p.Targets {
		if t.RefID == "" || refs[t.RefID] {
			found = append(found, fmt.Sprintf("%q: its refId %q is there twice, or empty", p.Title, t.RefID))
		}
		refs[t.RefID] = true
		expr := filled(t.Expr, d)
		if strings.Contains(expr, "$") {
			found = append(found, fmt.Sprintf("%q: an unknown variable in %s", p.Title, expr))
		} else if _, err := b.parser.ParseExpr(expr); err != nil {
			found = append(found, fmt.Sprintf("%q: %v", p.Title, err))
		}
	}
	return found
}

// lookBack is for how long a value counts that was not exported again.
const lookBack = 5 * scrapeEvery

// rateInterval stands for $__rate_interval: four times the time between two scrapes.
const rateInterval = 4 * scrapeEvery

// filled is an expression with all values of the dashboard's variables.
func filled(expr string, d dashboard) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", rateInterval.String())
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			expr = strings.ReplaceAll(expr, "$"+v.Name, ".*")
		}
	}
	return expr
}

// checkDashboard fails if there is a problem with one.
func checkDashboard(path string) error {
	b, err := newRulebook(nil)
	if err != nil {
		return err
	}
	d, err := readDashboard(path)
	if err != nil {
		return err
	}
	if found := b.problems(d); len(found) > 0 {
		return fmt.Errorf("%w:\n%s", errDashboard, strings.Join(found, "\n"))
	}
	fmt.Printf("dashboard: %d panels\n", len(d.Panels))
	return nil
}

// curve is a line of a panel.
type curve struct {
	name   string
	points []promql.FPoint
}

// label is a place of a legend that has the value of a label.
var label = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)

// curves are what a panel shows over a time.
func (b *rulebook) curves(ctx context.Context, p panel, d dashboard, data *series, from, to time.Time) (all []curve, err error) {
	for _, t := range p.Targets {
		q, err := b.engine.NewRangeQuery(ctx, data, promql.NewPrometheusQueryOpts(false, lookBack, nil), filled(t.Expr, d), from, to, scrapeEvery)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Title, err)
		}
		m, err := q.Exec(ctx).Matrix()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Title, err)
		}
		for _, one := range m {
			c := curve{name: label.ReplaceAllStringFunc(t.LegendFormat, func(s string) string { return one.Metric.Get(label.FindStringSubmatch(s)[1]) })}
			for _, v := range one.Floats {
				if !math.IsNaN(v.F) && !math.IsInf(v.F, 0) {
					c.points = append(c.points, v)
				}
			}
			if len(c.points) > 0 {
				all = append(all, c)
			}
		}
		q.Close()
	}
	return all, nil
}
