// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/addresses"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
)

// Headers in which a trusted proxy names its user.
const (
	HeaderUser   = "X-Remote-User"
	HeaderGroup  = "X-Remote-Group"
	headerPrefix = "X-Remote-"
)

const (
	maxKept    = 1000
	keptFor    = 30 * time.Second
	viewFor    = 5 * time.Minute // after its last use
	maxToken   = 16 << 10
	maxGroups  = 200
	authorized = "Bearer "
	// groupAll is the group of all who are authenticated.
	groupAll = "system:authenticated"
	// accounts is how the names of service accounts begin.
	accounts = "system:serviceaccount:"
)

// InCluster is a console for many users. A request has a token of the cluster, which the API server
// reviews; then every call is made by impersonating its user. A proxy whose own token is that of a
// user in proxies may name another one by headers.
type InCluster struct {
	own       *cluster.View // with the rights of the console itself: no request sees it
	reviews   kubernetes.Interface
	audiences []string
	proxies   []string
	limits    *addresses.Limits
	clock     clock.PassiveClock

	mu    sync.Mutex
	users map[[sha256.Size]byte]known
	views map[string]*seen
}

// seen is a user who has asked, as the cluster is to them.
type seen struct {
	view *cluster.View
	at   time.Time // the last time
}

// known is a token that was reviewed.
type known struct {
	user  authenticationv1.UserInfo
	until time.Time
}

// Options say whom a console in a cluster believes.
type Options struct {
	Audiences []string // of tokens; none: those of the API server
	Proxies   []string // users who may name others by headers
	Clock     clock.PassiveClock
}

// NewInCluster reviews tokens, and impersonates, with the rights of a config.
func NewInCluster(config *rest.Config, o Options) (*InCluster, error) {
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	own, err := cluster.NewView(config, nil, "")
	if err != nil {
		return nil, err
	}
	return &InCluster{
		own: own, reviews: reviews, audiences: o.Audiences, proxies: o.Proxies, clock: o.Clock, limits: addresses.New(ofAll, ofOne),
		users: map[[sha256.Size]byte]known{}, views: map[string]*seen{},
	}, nil
}

// Admit finds out who asks, and gives the cluster as that user may see it.
func (c *InCluster) Admit(r *http.Request) (*cluster.View, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), authorized)
	if !ok || token == "" || len(token) > maxToken {
		return nil, fmt.Errorf("%w: the request has no token; a proxy in front of the console adds it (docs/console.md), or use kubectl syncopate console", ErrUnknown)
	}
	user, err := c.review(r, token)
	if err != nil {
		return nil, err
	}
	if user, err = c.named(r.Header, user); err != nil {
		return nil, err
	}
	if err := admissible(user); err != nil {
		return nil, err
	}
	return c.view(user)
}

// review asks the API server whose token it is; not more often than there is room for.
func (c *InCluster) review(r *http.Request, token string) (authenticationv1.UserInfo, error) {
	sum, now := sha256.Sum256([]byte(token)), c.clock.Now()
	c.mu.Lock()
	found, ok := c.users[sum]
	c.mu.Unlock()
	if ok && now.Before(found.until) {
		return found.user, nil
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if !c.limits.Allow(host, now) {
		return authenticationv1.UserInfo{}, ErrBusy
	}
	asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: c.audiences}}
	answer, err := c.reviews.AuthenticationV1().TokenReviews().Create(r.Context(), asked, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authenticationv1.UserInfo{}, fmt.Errorf("review the token: %w", hidden(err))
	case !answer.Status.Authenticated:
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: the API server does not know the token, or it is not for the console", ErrUnknown)
	case len(c.audiences) > 0 && !slices.ContainsFunc(answer.Status.Audiences, func(a string) bool { return slices.Contains(c.audiences, a) }):
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: the token is not for the console", ErrUnknown)
	}
	c.keep(sum, known{answer.Status.User, now.Add(keptFor)}, now)
	return answer.Status.User, nil
}

// hidden keeps the refusal of a review, which is about the console's own rights, from being taken
// for one of the user's.
func hidden(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.New(err.Error()) // errtext: its kind is not to be seen
}

// keep remembers a token for half a minute.
func (c *InCluster) keep(sum [sha256.Size]byte, k known, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.users) >= maxKept {
		for other, one := range c.users {
			if !now.Before(one.until) {
				delete(c.users, other)
			}
		}
	}
	if len(c.users) < maxKept {
		c.users[sum] = k
	}
}

// named is the user whom a trusted proxy names; else the one of the token.
func (c *InCluster) named(h http.Header, user authenticationv1.UserInfo) (authenticationv1.UserInfo, error) {
	switch trusted := slices.Contains(c.proxies, user.Username); {
	case claims(h) && !trusted:
		return user, fmt.Errorf("%w: the request names a user by headers, and does not come from a proxy that may", ErrRefused)
	case !trusted:
		return user, nil
	}
	names, groups := h.Values(HeaderUser), h.Values(HeaderGroup)
	if len(names) != 1 || names[0] == "" || len(groups) > maxGroups {
		return user, fmt.Errorf("%w: the proxy has to name one user in %s, and %d groups at most in %s", ErrRefused, HeaderUser, maxGroups, HeaderGroup)
	}
	if name := ofSystem(append([]string{names[0]}, groups...)); name != "" {
		return user, fmt.Errorf("%w: a proxy may not name %q", ErrRefused, name)
	}
	if !slices.Contains(groups, groupAll) {
		groups = append(slices.Clone(groups), groupAll)
	}
	return authenticationv1.UserInfo{Username: names[0], Groups: groups}, nil
}

// claims says whether a request names a user by headers.
func claims(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerPrefix) {
			return true
		}
	}
	return false
}

// ofSystem is the first name that is not for people; "": there is none.
func ofSystem(names []string) string {
	for _, name := range names {
		if strings.HasPrefix(name, "system:") && name != groupAll {
			return name
		}
	}
	return ""
}

// admissible refuses users whom the console must never be, whatever its rights are.
func admissible(user authenticationv1.UserInfo) error {
	name := user.Username
	switch {
	case name == "", name == "system:anonymous":
		return fmt.Errorf("%w: the user has no name", ErrUnknown)
	case strings.HasPrefix(name, "system:") && !strings.HasPrefix(name, accounts), slices.Contains(user.Groups, "system:masters"), slices.Contains(user.Groups, "system:nodes"):
		return fmt.Errorf("%w: %s is part of the cluster itself; use kubectl syncopate console", ErrRefused, name)
	}
	return nil
}

// view is the cluster as a user may see it.
func (c *InCluster) view(user authenticationv1.UserInfo) (*cluster.View, error) {
	as := rest.ImpersonationConfig{UserName: user.Username, Groups: user.Groups, Extra: map[string][]string{}}
	for name, values := range user.Extra { // without them a token with less rights would have all of its user's
		as.Extra[name] = values
	}
	raw, err := json.Marshal(as)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.views[string(raw)]; s != nil {
		s.at = now
		return s.view, nil
	}
	v, err := c.own.As(as)
	if err != nil {
		return nil, err
	}
	v.Identity = string(raw)
	c.forget(now)
	c.views[string(raw)] = &seen{v, now}
	return v, nil
}

// forget makes room for a view: it lets go of those that were not used for a while and, if there
// are too many all the same, of all. The caller has the mutex.
func (c *InCluster) forget(now time.Time) {
	for name, one := range c.views {
		if now.Sub(one.at) >= viewFor {
			delete(c.views, name)
		}
	}
	if len(c.views) >= maxKept {
		clear(c.views)
	}
}
