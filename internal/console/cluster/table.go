// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	pageRows    = 500
	listPages   = 200 // of a list: 100,000 runs
	maxCell     = 240 // characters of a message; other cells are shorter by their schema
	watchPeriod = 5 * time.Minute
	// pageMost is how long a page of a list may take: other lists wait for the turn of one that
	// is read again.
	pageMost = time.Minute
	asTable  = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// table is an answer of the API server.
type table struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Columns []struct {
		Name string `json:"name"`
	} `json:"columnDefinitions"`
	Rows []struct {
		Cells  []any `json:"cells"`
		Object struct {
			Metadata struct {
				Namespace       string    `json:"namespace"`
				Name            string    `json:"name"`
				UID             string    `json:"uid"`
				ResourceVersion string    `json:"resourceVersion"`
				Created         time.Time `json:"creationTimestamp"`
			} `json:"metadata"`
		} `json:"object"`
	} `json:"rows"`
}

// page reads one page of runs.
func (v *View) page(ctx context.Context, namespace, next string, limit int) (*table, error) {
	ctx, stop := context.WithTimeout(ctx, pageMost)
	defer stop()
	answer := v.tables(namespace).Param("limit", strconv.Itoa(limit)).Param("continue", next).Do(ctx)
	if err := answer.Error(); err != nil { // Raw has not read what the API server says of it
		return nil, fmt.Errorf("list runs: %w", err)
	}
	raw, err := answer.Raw()
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	t := &table{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return t, nil
}

func (v *View) tables(namespace string) *rest.Request {
	return v.rows.Get().NamespaceIfScoped(namespace, namespace != "").Resource("workflowruns").SetHeader("Accept", asTable).
		Param("includeObject", string(metav1.IncludeMetadata))
}

// MayList asks whether the user may list the runs of a namespace; "": of all.
func (v *View) MayList(ctx context.Context, namespace string) error {
	_, err := v.page(ctx, namespace, "", 1)
	return err
}

// list reads all runs, and keeps the best, limit at most; more says whether there are others. The
// API server gives them by name, so that the newest may be on any page. Where there are more than
// may be kept, a page that cannot be read is the end: what was read is shown.
func (v *View) list(ctx context.Context, namespace string, limit int) (rows []facts.Row, version string, more bool, err error) {
	next := ""
	for range listPages {
		t, err := v.page(ctx, namespace, next, pageRows)
		switch {
		case err != nil && len(rows) == limit && ctx.Err() == nil:
			return rows, version, true, nil
		case err != nil:
			return nil, "", false, err
		}
		if rows = append(rows, t.read(t.names())...); len(rows) > limit {
			rows, more = best(rows, limit), true
		}
		if next, version = t.Metadata.Continue, t.Metadata.ResourceVersion; next == "" {
			return rows, version, more, nil
		}
	}
	return rows, version, true, nil
}

// names are the columns of a table. Only the first one of a watch has them.
func (t *table) names() []string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return names
}

func (t *table) read(columns []string) []facts.Row {
	rows := make([]facts.Row, 0, len(t.Rows))
	for i := range t.Rows {
		m := &t.Rows[i].Object.Metadata
		row := facts.Row{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Created: m.Created}
		cells := map[string]*string{
			"Phase": &row.Phase, "Steps": &row.Steps, "Tenant": &row.Tenant, "Class": &row.Class, "Policy": &row.Policy,
			"Reason": &row.Reason, "Message": &row.Message, "Holder": &row.Holder, "Fence": &row.Fence,
		}
		for k, cell := range t.Rows[i].Cells {
			if k >= len(columns) || cells[columns[k]] == nil {
				continue
			}
			switch value := cell.(type) {
			case string:
				*cells[columns[k]] = short(value)
			case float64:
				*cells[columns[k]] = strconv.FormatFloat(value, 'f', 0, 64)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// short cuts a cell. The copy lets go of the text of the whole answer.
func short(text string) string {
	if r := []rune(text); len(r) > maxCell {
		return string(r[:maxCell-1]) + "…"
	}
	return string([]byte(text))
}

// change is an event of a watch.
type change struct {
	Row  facts.Row
	Gone bool
}

// ErrStale is returned by a watch that cannot go on from where it was: list again.
var ErrStale = errors.New("the watch is too old")

// watch follows runs from a version on, for five minutes at most. fields may select some.
func (v *View) watch(ctx context.Context, namespace, fields, version string, each func(change)) error {
	stream, err := v.open(ctx, namespace, fields, version)
	if err != nil {
		return err
	}
	return events(ctx, stream, each)
}

// open begins a watch. Who gets a stream may see the runs.
func (v *View) open(ctx context.Context, namespace, fields, version string) (io.ReadCloser, error) {
	stream, err := v.tables(namespace).Param("watch", "1").Param("resourceVersion", version).Param("allowWatchBookmarks", "1").
		Param("fieldSelector", fields).Param("timeoutSeconds", strconv.Itoa(int(watchPeriod.Seconds()))).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch runs: %w", err)
	}
	return stream, nil
}

// events reads a watch until it is over, and closes it.
func events(ctx context.Context, stream io.ReadCloser, each func(change)) error {
	defer func() { _ = stream.Close() }()
	decoder := json.NewDecoder(stream)
	var columns []string
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("watch runs: %w", err)
		}
		if event.Type == "ERROR" {
			return failure(event.Object)
		}
		var t table
		if err := json.Unmarshal(event.Object, &t); err != nil {
			return fmt.Errorf("watch runs: %w", err)
		}
		if len(t.Columns) > 0 {
			columns = t.names()
		}
		if event.Type == "BOOKMARK" {
			continue
		}
		for _, row := range t.read(columns) {
			each(change{row, event.Type == "DELETED"})
		}
	}
}

func failure(raw []byte) error {
	status := metav1.Status{}
	if err := json.Unmarshal(raw, &status); err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	err := &apierrors.StatusError{ErrStatus: status}
	if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("watch runs: %w", err)
}

// Follow calls changed for each change of one run, and when it cannot be watched, until ctx ends.
// It begins with the run as it is, and so does each watch after one that was over or has failed:
// changed is called as each begins, so what was missed is made up for. It returns early only
// with an error that says that there is nothing more to see: the user has no right any more,
// or is not known.
func (v *View) Follow(ctx context.Context, c clock.WithTicker, namespace, name string, changed func()) error {
	for p := (pace{}); ; {
		began := c.Now()
		stream, err := v.open(ctx, namespace, "metadata.name="+name, "")
		if err == nil {
			changed() // a run that has gone meanwhile has no event
			err = events(ctx, stream, func(change) { changed() })
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
			return err
		case err != nil:
			changed() // the page says so, if it cannot be read either
		}
		if err := p.wait(ctx, c, c.Since(began)); err != nil {
			return err
		}
	}
}
