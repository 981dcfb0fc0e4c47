// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/pages"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const maxCause = 1000

// refuse shows what went wrong.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, user string, err error) {
	status, f := failureOf(err)
	f.Cause = runview.Printable(err.Error(), maxCause)
	if r.Method == http.MethodPost && r.PathValue("name") != "" {
		f.Back = s.Base + "/runs/" + r.PathValue("namespace") + "/" + r.PathValue("name")
	}
	if r.Method == http.MethodPost && status == http.StatusGatewayTimeout { // to reload would be to ask for it once more
		f.Advice = "It may have been done: go back and look."
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if status >= http.StatusInternalServerError {
		s.Log("%s: %v", r.Pattern, err) // it begins with the method
	}
	v := visit{Request: r, now: s.Clock.Now()}
	page := views.Page{Title: f.What, User: user, Body: f}
	s.write(w, status, pages.Failure, page, v)
}

// failures are what may go wrong, in words, with the status of the answer.
var failures = []struct {
	is     func(error) bool
	status int
	say    views.Failure
}{
	{useless, http.StatusUnprocessableEntity, views.Failure{What: "It could have no effect"}},
	{oneOf(access.ErrBusy), http.StatusTooManyRequests, views.Failure{What: "Too many attempts", Advice: "Wait a moment, and reload."}},
	{oneOf(errManyAsked), http.StatusTooManyRequests, views.Failure{What: "You ask too much at a time", Advice: "Close a page or two, and reload."}},
	{oneOf(access.ErrUnknown), http.StatusUnauthorized, unknown},
	{apierrors.IsUnauthorized, http.StatusUnauthorized, unknown},
	{oneOf(access.ErrRefused, errForged), http.StatusForbidden, views.Failure{What: "Refused"}},
	{apierrors.IsForbidden, http.StatusForbidden, views.Failure{What: "You may not do that", Advice: "The API server refused it. The roles of people are in docs/security.md."}},
	{apierrors.IsNotFound, http.StatusNotFound, views.Failure{What: "It is not there", Advice: "It may have been deleted since."}},
	{apierrors.IsConflict, http.StatusConflict, views.Failure{What: "Something else came first", Advice: "Go back, and look again."}},
	{apierrors.IsInvalid, http.StatusUnprocessableEntity, views.Failure{What: "That cannot be done"}},
	{apierrors.IsBadRequest, http.StatusUnprocessableEntity, views.Failure{What: "That cannot be done"}},
	{oneOf(errSenseless), http.StatusUnprocessableEntity, views.Failure{What: "That cannot be done"}},
	{oneOf(cluster.ErrFull), http.StatusServiceUnavailable, views.Failure{What: "The console is full", Advice: "Try again when somebody has closed a page."}},
	{oneOf(cluster.ErrGivenUp), http.StatusGatewayTimeout, slow},
	{oneOf(errLate), http.StatusRequestTimeout, views.Failure{What: "The form did not arrive in time", Advice: "Go back, and send it again."}},
	{oneOf(context.DeadlineExceeded), http.StatusGatewayTimeout, slow},
	{apierrors.IsTimeout, http.StatusGatewayTimeout, slow},
	{apierrors.IsServerTimeout, http.StatusGatewayTimeout, slow},
}

var (
	unknown = views.Failure{What: "The cluster does not know you", Advice: "Log in again, or ask who runs the console how it learns who you are."}
	slow    = views.Failure{What: "The API server does not answer in time", Advice: "Reload in a moment."}
)

func oneOf(these ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
	}
}

func useless(err error) bool {
	_, is := errors.AsType[*actions.UselessError](err)
	return is
}

func failureOf(err error) (int, views.Failure) {
	for _, f := range failures {
		if f.is(err) {
			return f.status, f.say
		}
	}
	return http.StatusBadGateway, views.Failure{What: "That went wrong"}
}

// errSenseless is returned for what could have no effect.
var errSenseless = errors.New("it could have no effect")
