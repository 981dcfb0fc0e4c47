// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	scheme   = "Bearer "
	maxToken = 16 << 10
	// maxKept is how many answers are kept, each for keptFor.
	maxKept = 100
	keptFor = 30 * time.Second
	// The API server is asked so often a second, after some at once: anybody who reaches the port
	// can send tokens.
	perSecond, atOnce = 5, 20
	askTimeout        = 5 * time.Second
)

// Filter is what controller-runtime puts in front of the metrics.
func Filter(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		g := &guard{config: rest.AnonymousClientConfig(config), next: next, log: log, clock: clock.RealClock{}, limit: rate.NewLimiter(perSecond, atOnce)}
		g.kept = map[[sha256.Size]byte]kept{}
		return g, nil
	}, nil
}

// guard answers requests, or hands them on.
type guard struct {
	config *rest.Config // without a user
	next   http.Handler
	log    logr.Logger
	clock  clock.PassiveClock
	limit  *rate.Limiter

	mu   sync.Mutex
	kept map[[sha256.Size]byte]kept // by token
}

// kept is an answer about a token.
type kept struct {
	code  int
	until time.Time
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, is := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !is || token == "" || len(token) > maxToken {
		w.Header().Set("WWW-Authenticate", strings.TrimSpace(scheme))
		http.Error(w, "a request for metrics needs a token of the cluster", http.StatusUnauthorized)
		return
	}
	switch code := g.ask(r.Context(), token, r.URL.Path); code {
	case http.StatusOK:
		g.next.ServeHTTP(w, r)
	case http.StatusForbidden:
		http.Error(w, "the token is of nobody who may get "+r.URL.Path+": see the ClusterRole syncopate-metrics-reader", code)
	default:
		http.Error(w, http.StatusText(code), code)
	}
}

// ask says with which code to answer. What the API server said is kept for a while.
func (g *guard) ask(ctx context.Context, token, path string) (code int) {
	sum, now := sha256.Sum256([]byte(path+" "+token)), g.clock.Now()
	g.mu.Lock()
	found, is := g.kept[sum]
	g.mu.Unlock()
	switch {
	case is && now.Before(found.until):
		return found.code
	case !g.limit.AllowN(now, 1):
		return http.StatusTooManyRequests
	}
	code, err := g.review(ctx, token, path)
	if err != nil {
		g.log.Info("The API server cannot be asked who may get metrics", "cause", err.Error())
		return http.StatusServiceUnavailable
	}
	g.keep(sum, kept{code, now.Add(keptFor)}, now)
	return code
}

// review asks the API server, with the token.
func (g *guard) review(ctx context.Context, token, path string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	config := rest.CopyConfig(g.config)
	config.BearerToken = token
	api, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	answer, err := api.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}},
	}, metav1.CreateOptions{})
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
func (g *guard) keep(sum [sha256.Size]byte, k kept, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.kept) >= maxKept {
		for other, one := range g.kept {
			if !now.Before(one.until) {
				delete(g.kept, other)
			}
		}
	}
	if len(g.kept) < maxKept {
		g.kept[sum] = k
	}
}
