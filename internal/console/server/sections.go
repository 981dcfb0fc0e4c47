// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/pages"
	"github.com/syncopate-dev/syncopate/internal/console/views"
)

const (
	ticks      = "live/ticks"
	maxLetters = 100
)

// policies is the page of locks and policies.
func (s *Server) policies(ctx context.Context, v visit) (answer, error) {
	list, err := v.view.Policies(ctx)
	if err != nil {
		return answer{}, err
	}
	rows, _, _, err := s.rows(ctx, v.view, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return answer{}, err
	}
	page := views.Page{Title: "Locks and policies", Active: "policies", Live: ticks}
	page.Body = views.PoliciesOf(list, s.waves.Look(list, v.now), rows, v.now)
	return answer{name: pages.Policies, page: page}, nil
}

// tenants is the page of tenants and semaphores.
func (s *Server) tenants(ctx context.Context, v visit) (answer, error) {
	namespace, only, err := s.listable(ctx, v, "")
	if err != nil {
		return answer{}, err
	}
	list, err := v.view.Policies(ctx)
	if err != nil {
		return answer{}, err
	}
	semaphores, err := v.view.Semaphores(ctx)
	if err != nil {
		return answer{}, err
	}
	var body views.Tenants
	err = v.view.UnderWay(ctx, namespace, func(runs []v1alpha1.WorkflowRun, more bool) {
		body = views.TenantsOf(runs, list, semaphores, v.now)
		body.More = more
	})
	if err != nil {
		return answer{}, err
	}
	if only {
		body.OnlyOne = namespace
	}
	return answer{name: pages.Tenants, page: views.Page{Title: "Tenants", Active: "tenants", Live: ticks, Body: body}}, nil
}

// schedules is the page of schedules.
func (s *Server) schedules(ctx context.Context, v visit) (answer, error) {
	list, err := v.view.Schedules(ctx, "")
	only := apierrors.IsForbidden(err) && s.Namespace != ""
	if only {
		list, err = v.view.Schedules(ctx, s.Namespace)
	}
	if err != nil {
		return answer{}, err
	}
	body := views.SchedulesOf(list, v.now)
	if only {
		body.OnlyOne = s.Namespace
	}
	return answer{name: pages.Schedules, page: views.Page{Title: "Schedules", Active: "schedules", Live: ticks, Body: body}}, nil
}

// replicas is the page of partitions and replicas.
func (s *Server) replicas(ctx context.Context, v visit) (answer, error) {
	page := views.Page{Title: "Replicas", Active: "replicas", Live: ticks}
	owners, err := v.view.Owners(ctx, s.Operator)
	switch {
	case apierrors.IsNotFound(err):
		page.Body = views.Replicas{Why: fmt.Sprintf("There are no partitions in namespace %s: the operator is elsewhere, or has a leader.", s.Operator)}
		return answer{name: pages.Replicas, page: page}, nil
	case err != nil:
		return answer{}, err
	}
	namespace, only, err := s.listable(ctx, v, "")
	if err != nil {
		return answer{}, err
	}
	var body views.Replicas
	err = v.view.UnderWay(ctx, namespace, func(runs []v1alpha1.WorkflowRun, _ bool) { body = views.ReplicasOf(owners, runs, v.now) })
	if err != nil {
		return answer{}, err
	}
	if only {
		body.OnlyOne = namespace
	}
	page.Body = body
	return answer{name: pages.Replicas, page: page}, nil
}

// letters is the page of dead letters.
func (s *Server) letters(ctx context.Context, v visit) (answer, error) {
	page := views.Page{Title: "Dead letters", Active: "dead-letters", Live: ticks, Notice: views.Notice(v.URL.Query().Get("done"))}
	if s.Letters == nil {
		page.Live, page.Body = "", views.Letters{Why: "Dead letters are in NATS, and this console has no rights there. Who has: kubectl syncopate dead-letters list."}
		return answer{name: pages.Letters, page: page}, nil
	}
	list, more, err := s.Letters.List(ctx, maxLetters)
	if err != nil {
		page.Live, page.Body = "", views.Letters{Why: "NATS cannot be asked: " + err.Error() + ". It is where --nats-url says; docs/console.md has an example."}
		return answer{name: pages.Letters, page: page}, nil //nolint:nilerr // the page says what is wrong
	}
	page.Body = views.LettersOf(list, more, v.now)
	return answer{name: pages.Letters, page: page}, nil
}

// redrive publishes a dead letter again.
func (s *Server) redrive(ctx context.Context, v visit) (answer, error) {
	sequence, err := strconv.ParseUint(v.PathValue("sequence"), 10, 64)
	if err != nil || s.Letters == nil {
		return answer{}, fmt.Errorf("%w: %q is no dead letter", errSenseless, v.PathValue("sequence"))
	}
	if err := s.Letters.Redrive(ctx, sequence); err != nil {
		return answer{}, fmt.Errorf("dead letter %d: %w", sequence, err)
	}
	return answer{elsew: "dead-letters?done=redrive"}, nil
}
