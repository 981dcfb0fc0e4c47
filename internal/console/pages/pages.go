// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/url"

	"github.com/syncopate-dev/syncopate/internal/console/views"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed assets/*
var assets embed.FS

// Names of pages.
const (
	Runs    = "runs.html"
	Run     = "run.html"
	YAML    = "yaml.html"
	Failure = "failure.html"

	Policies  = "policies.html"
	Tenants   = "tenants.html"
	Schedules = "schedules.html"
	Replicas  = "replicas.html"
	Letters   = "letters.html"
)

// Pages are the parsed templates.
type Pages struct{ byName map[string]*template.Template }

// New parses the templates.
func New() (*Pages, error) {
	shared, err := template.New("").Funcs(template.FuncMap{
		"path": url.PathEscape,
		"act":  button,
		"svg":  func(base string, of any) drawing { return drawing{base, of} },
	}).ParseFS(templates, "templates/base.html", "templates/drawings.html", "templates/actions.html")
	if err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	names, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	p := &Pages{byName: map[string]*template.Template{}}
	for _, name := range names {
		one, err := shared.Clone()
		if err == nil {
			one, err = one.ParseFS(templates, name)
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		p.byName[name[len("templates/"):]] = one
	}
	return p, nil
}

// drawing is what a template of a drawing gets.
type drawing struct {
	Base string
	Of   any
}

// form is a button that asks for an action.
type form struct {
	To, Label, CSRF, UID string
	Nonce                string // "": to do it twice is to do it once
	Danger               bool
}

// button is the form of an action of the run that a page shows.
func button(page views.Page, verb, label string) (form, error) {
	run, ok := page.Body.(views.Run)
	if !ok {
		return form{}, fmt.Errorf("%s is for the page of a run", verb)
	}
	nonce := ""
	if verb == "rerun" {
		nonce = page.Nonce
	}
	return form{
		To: page.Base + "/runs/" + run.Namespace + "/" + run.Name + "/" + verb, Label: label, CSRF: page.CSRF, UID: run.UID, Nonce: nonce,
		Danger: verb == "cancel" || verb == "terminate",
	}, nil
}

// Write writes a page.
func (p *Pages) Write(w io.Writer, name string, page views.Page) error {
	t := p.byName[name]
	if t == nil {
		return fmt.Errorf("there is no page %s", name)
	}
	if err := t.ExecuteTemplate(w, "base", page); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	return nil
}

// Asset is a file that pages refer to, and its type.
func Asset(name string) (content []byte, kind string, ok bool) {
	kinds := map[string]string{"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}
	if kind, ok = kinds[name]; !ok {
		return nil, "", false
	}
	content, err := assets.ReadFile("assets/" + name)
	return content, kind, err == nil
}
