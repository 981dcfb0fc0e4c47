// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	scheme   = "Bearer "
	maxToken = 16 << 10
	// maxKept is how many answers are kept, each for keptFor: of those that were good, and of the
	// others.
	maxKept = 100
	keptFor = 30 * time.Second
	// goodFor is for how long a token has the limit of those that were good, and is good while the
	// API server is away.
	goodFor    = time.Hour
	askTimeout = 5 * time.Second
)

// Filter is what controller-runtime puts in front of the metrics.
func Filter(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		g := &guard{config: rest.AnonymousClientConfig(config), next: next, log: log, clock: clock.RealClock{}, limits: newLimits(), bound: askTimeout}
		g.good, g.refused = map[sum]kept{}, map[sum]kept{}
		return g, nil
	}, nil
}

// guard answers requests, or hands them on.
type guard struct {
	config *rest.Config // without a user
	next   http.Handler
	log    logr.Logger
	clock  clock.PassiveClock
	limits *limits
	bound  time.Duration // of a question

	mu            sync.Mutex
	good, refused map[sum]kept // apart: refusals, of which anybody can have many, take no place of what is good
}

// sum stands for a token, and what is asked for with it.
type sum [sha256.Size]byte

// kept is an answer about a token.
type kept struct {
	code int
	// until is when it is asked for again, and ends when it is forgotten.
	until, ends time.Time
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, is := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !is || token == "" || len(token) > maxToken {
		w.Header().Set("WWW-Authenticate", strings.TrimSpace(scheme))
		http.Error(w, "a request for metrics needs a token of the cluster", http.StatusUnauthorized)
		return
	}
	switch code := g.ask(r.Context(), token, r.URL.Path, addressOf(r)); code {
	case http.StatusOK:
		g.next.ServeHTTP(w, r)
	case http.StatusForbidden:
		http.Error(w, "the token is of nobody who may get "+r.URL.Path+": see the ClusterRole syncopate-metrics-reader", code)
	default:
		http.Error(w, http.StatusText(code), code)
	}
}

// ask says with which code to answer. What the API server said is kept for a while, and a yes for
// longer while it is away. A request that ends does not end its question: else whoever sends one
// and leaves would see to it that the API server is never heard.
func (g *guard) ask(ctx context.Context, token, path, address string) (code int) {
	of, now := sum(sha256.Sum256([]byte(path+" "+token))), g.clock.Now()
	found := g.known(of, now)
	switch {
	case now.Before(found.until):
		return found.code
	case !g.limits.allow(address, found.code == http.StatusOK, now):
		return http.StatusTooManyRequests
	}
	code, err := g.review(context.WithoutCancel(ctx), token, path)
	if err != nil {
		g.log.Info("The API server cannot be asked who may get metrics", "cause", err.Error())
		if found.code == http.StatusOK && isAway(err) { // else metrics would be away when they tell of the API server
			g.postpone(of)
			return found.code
		}
		return http.StatusServiceUnavailable
	}
	g.keep(of, code, now)
	if code == http.StatusOK {
		g.limits.welcome(address, now)
	}
	return code
}

// known is what is known of a token; of one of which nothing is, the zero value.
func (g *guard) known(of sum, now time.Time) kept {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, all := range []map[sum]kept{g.good, g.refused} {
		if found := all[of]; now.Before(found.ends) {
			return found
		}
	}
	return kept{}
}

// addressOf is where a request comes from, without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// isAway says whether an error is that of an API server that is away. One that refuses to answer,
// as what it is asked too often, is not: the holder of a token could see to that.
func isAway(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	var failed net.Error // a time-out is one, too
	return errors.As(err, &failed)
}

// postpone has the API server, which is away, not be asked for a while about a token that was good:
// who sends it again gets metrics without a wait. When that ends stays.
func (g *guard) postpone(of sum) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if found, is := g.good[of]; is { // else it was refused meanwhile
		found.until = g.clock.Now().Add(keptFor)
		g.good[of] = found
	}
}

// review asks the API server once, with the token. It is told the bound, too: a question that waits
// in line there since others of that user are many is refused by it before that, and not
// cut off here.
func (g *guard) review(ctx context.Context, token, path string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.bound)
	defer cancel()
	config := rest.CopyConfig(g.config)
	config.BearerToken = token
	api, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	var answer authorizationv1.SelfSubjectAccessReview
	err = api.RESTClient().Post().Resource("selfsubjectaccessreviews").Timeout(g.bound).MaxRetries(0).Body(&authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}},
	}).Do(ctx).Into(&answer)
	switch {
	case apierrors.IsUnauthorized(err):
		return http.StatusUnauthorized, nil
	case apierrors.IsForbidden(err):
		return http.StatusForbidden, nil
	case err != nil:
		return 0, fmt.Errorf("review: %w", err)
	case !answer.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// keep remembers an answer, if there is room.
func (g *guard) keep(of sum, code int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.good, of)
	delete(g.refused, of)
	all, ends := g.refused, now.Add(keptFor)
	if code == http.StatusOK {
		all, ends = g.good, now.Add(goodFor)
	}
	if len(all) >= maxKept {
		maps.DeleteFunc(all, func(_ sum, k kept) bool { return !now.Before(k.ends) })
	}
	if len(all) < maxKept {
		all[of] = kept{code: code, until: now.Add(keptFor), ends: ends}
	}
}
