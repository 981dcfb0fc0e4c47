// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/pages"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const maxYAML = 256 << 10

// listable is the namespace whose runs the user may list: the one asked for or, where that is all
// and he may not, his own. only says that it is.
func (s *Server) listable(ctx context.Context, v visit, asked string) (namespace string, only bool, err error) {
	err = v.view.MayList(ctx, asked)
	if asked == "" && apierrors.IsForbidden(err) && s.Namespace != "" {
		return s.Namespace, true, v.view.MayList(ctx, s.Namespace)
	}
	return asked, false, err
}

// rows are the runs of the namespace that is asked for, or of the user's own, as listable says.
func (s *Server) rows(ctx context.Context, view *cluster.View, asked string) (rows facts.Rows, namespace string, only bool, err error) {
	rows, err = s.feeds.Rows(ctx, view, asked)
	if asked == "" && apierrors.IsForbidden(err) && s.Namespace != "" {
		rows, err = s.feeds.Rows(ctx, view, s.Namespace)
		return rows, s.Namespace, true, err
	}
	return rows, asked, false, err
}

// Warm begins the list that the first page will show, while its user's browser starts. What goes
// wrong is told by the page.
func (s *Server) Warm(ctx context.Context, view *cluster.View) {
	ctx, cancel := context.WithTimeout(ctx, s.PageTime)
	defer cancel()
	_, _, _, _ = s.rows(ctx, view, "")
}

// runs is the page of the list.
func (s *Server) runs(ctx context.Context, v visit) (answer, error) {
	q := views.ParseRunsQuery(v.URL.Query())
	page := views.Page{Title: "Runs", Active: "runs", Live: "live/runs?" + q.Encode()}
	rows, namespace, only, err := s.rows(ctx, v.view, q.Namespace)
	if apierrors.IsForbidden(err) {
		page.Live, page.Body = "", views.Runs{Query: q, Refused: err.Error()}
		return answer{name: pages.Runs, page: page}, nil
	}
	if err != nil {
		return answer{}, err
	}
	body := views.RunsOf(rows, q, v.now)
	if only {
		body.OnlyOne = namespace
	}
	page.Body = body
	return answer{name: pages.Runs, page: page}, nil
}

// run is the page of one run.
func (s *Server) run(ctx context.Context, v visit) (answer, error) {
	namespace, name := v.PathValue("namespace"), v.PathValue("name")
	page := views.Page{Title: name, Active: "runs", Live: "live/runs/" + namespace + "/" + name, Notice: views.Notice(v.URL.Query().Get("done"))}
	if err := v.view.Run(ctx, namespace, name, s.Operator, func(r *facts.Run) { page.Body = views.RunOf(r, v.now) }); err != nil {
		return answer{}, err
	}
	return answer{name: pages.Run, page: page}, nil
}

// object is a page with an object as YAML.
type object struct {
	Namespace, Name, Text string
	Cut                   bool // it is JSON, and not all of it
	Limit                 int
}

func (s *Server) yaml(ctx context.Context, v visit) (answer, error) {
	namespace, name := v.PathValue("namespace"), v.PathValue("name")
	run, err := v.view.Stored(ctx, namespace, name)
	if err != nil {
		return answer{}, err
	}
	run.ManagedFields = nil
	o := object{Namespace: namespace, Name: name, Limit: maxYAML}
	if o.Text, o.Cut, err = yamlOf(run); err != nil {
		return answer{}, errors.Join(errors.New("write as YAML"), err)
	}
	return answer{name: pages.YAML, page: views.Page{Title: "YAML of " + name, Active: "runs", Body: o}}, nil
}

// yamlOf is an object as YAML. What is too large for a page, or nested too deep, is the beginning
// of its JSON: YAML is made as a whole, and indents what JSON does not.
func yamlOf(o any) (text string, cut bool, err error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return "", false, err
	}
	var b strings.Builder
	for line := range runview.JSONLines(raw) {
		if b.Len() > maxYAML {
			break
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	if b.Len() <= maxYAML && !runview.IsDeep(raw) {
		if whole, err := yaml.JSONToYAML(raw); err != nil || len(whole) <= maxYAML {
			return string(whole), false, err
		}
	}
	text = b.String()
	return strings.ToValidUTF8(text[:min(len(text), maxYAML)], ""), true, nil
}
