// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
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
	scope := views.ScopeOf(v.URL.Query())
	rows, namespace, only, err := s.rows(ctx, v.view, scope.Namespace)
	if err = settle(&scope, namespace, only, err); err != nil {
		return answer{}, err
	}
	page := views.Page{Title: "Locks and policies", Active: "policies", Live: ticks}
	body := views.PoliciesOf(list, s.waves.Look(list, v.now), rows, v.now)
	body.Scope = scope
	page.Body = body
	return answer{name: pages.Policies, page: page}, nil
}

// settle notes in a scope which namespace a page is of, and a refusal. Other errors stay.
func settle(scope *views.Scope, namespace string, only bool, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		scope.Refused = err.Error()
		return nil
	case only:
		scope.OnlyOne = namespace
	}
	return err
}

// underWay shows the runs under way of the namespace that the address asks for, or of the user's
// own, as listable says. show is not called where the user may not list them.
func (s *Server) underWay(ctx context.Context, v visit, show func(runs []v1alpha1.WorkflowRun, more bool)) (views.Scope, error) {
	scope := views.ScopeOf(v.URL.Query())
	namespace, only, err := s.listable(ctx, v, scope.Namespace)
	if err == nil {
		err = v.view.UnderWay(ctx, namespace, show)
	}
	err = settle(&scope, namespace, only, err)
	return scope, err
}

// tenants is the page of tenants and semaphores.
func (s *Server) tenants(ctx context.Context, v visit) (answer, error) {
	list, err := v.view.Policies(ctx)
	if err != nil {
		return answer{}, err
	}
	semaphores, others, err := v.view.Semaphores(ctx)
	if err != nil {
		return answer{}, err
	}
	body := views.TenantsOf(nil, nil, semaphores, v.now)
	scope, err := s.underWay(ctx, v, func(runs []v1alpha1.WorkflowRun, more bool) {
		body = views.TenantsOf(runs, list, semaphores, v.now)
		body.More = more
	})
	if err != nil {
		return answer{}, err
	}
	body.Scope, body.MoreOfThem = scope, others
	return answer{name: pages.Tenants, page: views.Page{Title: "Tenants", Active: "tenants", Live: ticks, Body: body}}, nil
}

// schedules is the page of schedules.
func (s *Server) schedules(ctx context.Context, v visit) (answer, error) {
	scope := views.ScopeOf(v.URL.Query())
	list, more, err := v.view.Schedules(ctx, scope.Namespace)
	only := scope.Namespace == "" && apierrors.IsForbidden(err) && s.Namespace != ""
	if only {
		list, more, err = v.view.Schedules(ctx, s.Namespace)
	}
	if err = settle(&scope, s.Namespace, only, err); err != nil {
		return answer{}, err
	}
	body := views.SchedulesOf(list, v.now)
	body.Scope, body.More = scope, more
	return answer{name: pages.Schedules, page: views.Page{Title: "Schedules", Active: "schedules", Live: ticks, Body: body}}, nil
}

// replicas is the page of partitions and replicas.
func (s *Server) replicas(ctx context.Context, v visit) (answer, error) {
	page := views.Page{Title: "Replicas", Active: "replicas", Live: ticks}
	owners, err := v.view.Owners(ctx, s.Operator)
	if err != nil {
		return answer{}, err
	}
	if owners.Claims == nil {
		none := fmt.Sprintf("There are no partitions in namespace %s: the operator is elsewhere, or has a leader.", s.Operator)
		page.Body = views.Replicas{Why: cmp.Or(views.ReplicasOf(owners, nil, v.now).Why, none)}
		return answer{name: pages.Replicas, page: page}, nil
	}
	var body views.Replicas
	scope, err := s.underWay(ctx, v, func(runs []v1alpha1.WorkflowRun, more bool) {
		body = views.ReplicasOf(owners, runs, v.now)
		body.More = more
	})
	if err != nil {
		return answer{}, err
	}
	body.Scope = scope
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
	list, err := s.Letters.List(ctx, maxLetters)
	if err != nil {
		page.Live, page.Body = "", views.Letters{Why: "NATS cannot be asked: " + err.Error() + ". It is where --nats-url says; docs/console.md has an example."}
		return answer{name: pages.Letters, page: page}, nil //nolint:nilerr // the page says what is wrong
	}
	page.Body = views.LettersOf(list, v.now)
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
