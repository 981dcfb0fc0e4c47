// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/internal/addresses"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server of the tests.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.With(m, func(env *envtest.Environment) error {
		server = env.Config
		return nil
	}))
}

// newGuard is in front of a page that says "metrics".
func newGuard(t *testing.T, config *rest.Config) *guard {
	t.Helper()
	filter, err := Filter(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
	if err != nil {
		t.Fatal(err)
	}
	g, is := h.(*guard)
	if !is {
		t.Fatalf("%T", h)
	}
	return g
}

// get is the code that a request with this header gets; the page itself comes with no
// other than 200.
func get(t *testing.T, h http.Handler, authorization string) int {
	t.Helper()
	return getFrom(t, h, authorization, "192.0.2.1")
}

func getFrom(t *testing.T, h http.Handler, authorization, address string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Authorization", authorization)
	r.RemoteAddr = net.JoinHostPort(address, "12345")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if shown := strings.Contains(w.Body.String(), "metrics") && w.Body.Len() == len("metrics"); shown != (w.Code == http.StatusOK) {
		t.Errorf("%d with %q", w.Code, w.Body)
	}
	return w.Code
}

// account makes a service account and a token of it.
func account(ctx context.Context, t *testing.T, name string) (token string) {
	t.Helper()
	k := kubernetes.NewForConfigOrDie(server)
	if _, err := k.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answer, err := k.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// allow gives an account the right to get the metrics.
func allow(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	k := kubernetes.NewForConfigOrDie(server)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}
	if _, err := k.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mutation: an answer that is not allowed taken for one that is, a config with the operator's own
// user, or the check of the token's form taken out makes this fail.
func TestWhoMayGetMetrics(t *testing.T) {
	g := newGuard(t, server)
	reader, stranger := account(t.Context(), t, "reader"), account(t.Context(), t, "stranger")
	allow(t.Context(), t, "reader")
	for deadline := time.Now().Add(time.Minute); get(t, newGuard(t, server), scheme+reader) != http.StatusOK && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // the API server takes roles up in the background
	}
	for name, c := range map[string]struct {
		authorization string
		want          int
	}{
		"who may":                      {scheme + reader, http.StatusOK},
		"who may, again":               {scheme + reader, http.StatusOK},
		"who may not":                  {scheme + stranger, http.StatusForbidden},
		"nobody":                       {"", http.StatusUnauthorized},
		"an empty token":               {scheme, http.StatusUnauthorized},
		"another way to say it":        {"Basic " + reader, http.StatusUnauthorized},
		"a token that nobody has":      {scheme + "nonsense", http.StatusUnauthorized},
		"a token of others' making":    {scheme + reader[:len(reader)-4] + "AAAA", http.StatusUnauthorized},
		"a token that is far too long": {scheme + strings.Repeat("x", maxToken+1), http.StatusUnauthorized},
	} {
		if got := get(t, g, c.authorization); got != c.want {
			t.Errorf("%s: %d; want %d", name, got, c.want)
		}
	}
}

// mutation: an error of the API server that counts as yes, or is kept, makes this fail.
func TestNobodyGetsMetricsWhileTheAPIServerIsAway(t *testing.T) {
	var asked int
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer away.Close()
	g := newGuard(t, &rest.Config{Host: away.URL})
	for range 2 {
		if got := get(t, g, scheme+"token"); got != http.StatusServiceUnavailable {
			t.Errorf("%d", got)
		}
	}
	if asked < 2 {
		t.Errorf("asked %d times", asked)
	}
}

// An alert on an outage of the API server needs metrics while there is one (A6).
// mutation: an answer that is forgotten when it cannot be asked for again, a yes that outlives the
// hour, or one for a token that never had it makes this fail.
func TestWhoGotMetricsGetsThemWhileTheAPIServerIsAway(t *testing.T) {
	var asked int
	g, clock := newGuard(t, knows(t, &asked, "good")), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	g.clock = clock
	began := clock.Now()
	if good, bad := get(t, g, scheme+"good"), get(t, g, scheme+"bad"); good != http.StatusOK || bad != http.StatusUnauthorized {
		t.Fatalf("before: %d and %d", good, bad)
	}
	g.config = &rest.Config{Host: "https://127.0.0.1:1"}
	for _, c := range []struct {
		after     time.Duration
		good, bad int
	}{
		{keptFor + time.Second, http.StatusOK, http.StatusServiceUnavailable},
		{goodFor - time.Second, http.StatusOK, http.StatusServiceUnavailable},
		{goodFor, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	} {
		clock.SetTime(began.Add(c.after))
		if good, bad := get(t, g, scheme+"good"), get(t, g, scheme+"bad"); good != c.good || bad != c.bad {
			t.Errorf("after %s: %d and %d; want %d and %d", c.after, good, bad, c.good, c.bad)
		}
	}
}

// Whose right was taken away cannot have the API server seem away (S44): not by going before it
// answers, and not by asking it so often that it refuses.
// mutation: a question that ends with its request, an answer of any code that counts as none, a
// client that tries again, or a question that may wait in line until it is cut off makes this fail.
func TestWhoSeesToItThatTheAPIServerIsNotAskedGetsNoMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		code   int // of the API server
		leaves bool
		want   int
	}{
		"who leaves at once":       {http.StatusUnauthorized, true, http.StatusUnauthorized},
		"who asks too often":       {http.StatusTooManyRequests, false, http.StatusServiceUnavailable},
		"who asks what cannot be":  {http.StatusBadRequest, false, http.StatusServiceUnavailable},
		"where there is no review": {http.StatusNotFound, false, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var asked int
			g, clock := newGuard(t, knows(t, &asked, "good")), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
			g.clock = clock
			if code := get(t, g, scheme+"good"); code != http.StatusOK {
				t.Fatalf("before: %d", code)
			}
			g.config = answers(t, func(w http.ResponseWriter, r *http.Request) {
				if bound := r.URL.Query().Get("timeout"); bound != askTimeout.String() {
					t.Errorf("the API server may take %q", bound)
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(c.code)
			})
			clock.SetTime(clock.Now().Add(keptFor + time.Second))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.leaves {
				cancel()
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody)
			r.Header.Set("Authorization", scheme+"good")
			w := httptest.NewRecorder()
			if g.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%d; want %d", w.Code, c.want)
			}
		})
	}
}

// Scrapers whose time-out is short get metrics while the API server hangs, and do not wait for each
// other (A6).
// mutation: a question anew for each request makes this fail, and so does an hour
// that begins again.
func TestAnAPIServerThatIsAwayIsNotAskedForEachRequest(t *testing.T) {
	for name, how := range map[string]http.HandlerFunc{
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else it does not notice who leaves
			<-r.Context().Done()
		},
		"it fails":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"it ends connections": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var before int
			var asked atomic.Int64
			g, clock := newGuard(t, knows(t, &before, "good")), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
			g.clock = clock
			gets := func(what string, want int, questions int64) {
				t.Helper()
				if code := get(t, g, scheme+"good"); code != want || asked.Load() != questions {
					t.Errorf("%s: %d after %d questions; want %d after %d", what, code, asked.Load(), want, questions)
				}
			}
			gets("before", http.StatusOK, 0)
			g.config = answers(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				how(w, r)
			})
			g.bound = time.Second
			clock.SetTime(clock.Now().Add(goodFor - keptFor/2))
			gets("the first", http.StatusOK, 1)
			gets("the second", http.StatusOK, 1)
			clock.SetTime(clock.Now().Add(keptFor / 2))
			gets("after the hour", http.StatusServiceUnavailable, 2)
		})
	}
}

// answers is an API server that answers so.
func answers(t *testing.T, how http.HandlerFunc) *rest.Config {
	t.Helper()
	s := httptest.NewServer(how)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// yes is an API server that allows everything, and counts.
func yes(t *testing.T, asked *int) *rest.Config {
	t.Helper()
	return knows(t, asked, "")
}

// knows is an API server that allows everything to those whose tokens begin so, does not know any
// others, and counts.
func knows(t *testing.T, asked *int, prefix string) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(r.Header.Get("Authorization"), scheme+prefix) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// mutation: answers that are never kept, or kept for ever, make this fail.
func TestAnAnswerIsKeptForAWhile(t *testing.T) {
	var asked int
	g, clock := newGuard(t, yes(t, &asked)), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	g.clock = clock
	for _, want := range []int{1, 1, 2} {
		if got := get(t, g, scheme+"token"); got != http.StatusOK || asked != want {
			t.Errorf("%d after %d questions; want %d", got, asked, want)
		}
		if want == 1 {
			clock.SetTime(clock.Now().Add(keptFor / 2))
		}
	}
}

// in50 is how much a rate allows in 50 s.
func in50(r addresses.Rate) int { return r.AtOnce + 50*int(r.PerSecond) }

// Whoever sends many tokens, good ones or others, from many addresses or from one, costs the API
// server little, and the operator no memory.
// mutation: a limit or the bound of what is kept taken out makes this fail.
func TestManyTokens(t *testing.T) {
	for name, c := range map[string]struct {
		known, address string
		least, most    int // questions
	}{
		"all are good":        {"", "192.0.2.%d", in50(ofAll), in50(ofAll) + in50(ofGood)},
		"none is good":        {"none", "192.0.2.%d", in50(ofAll) - 1, in50(ofAll)},
		"all are of one host": {"none", "192.0.2.1", in50(ofOne) - 1, in50(ofOne)},
	} {
		t.Run(name, func(t *testing.T) {
			var asked int
			g, clock := newGuard(t, knows(t, &asked, c.known)), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
			g.clock = clock
			refused := 0
			for i := range 1000 {
				if getFrom(t, g, scheme+strings.Repeat("x", i+1), strings.ReplaceAll(c.address, "%d", strconv.Itoa(i%250))) == http.StatusTooManyRequests {
					refused++
				}
				clock.SetTime(clock.Now().Add(50 * time.Millisecond))
			}
			if asked > c.most || asked < c.least || refused != 1000-asked || len(g.good) > maxKept || len(g.refused) > maxKept {
				t.Errorf("%d refused, %d questions, %d good and %d others kept", refused, asked, len(g.good), len(g.refused))
			}
		})
	}
}

// Nobody who reaches the port keeps out who had the metrics before, and whoever sends many tokens
// keeps out none of another address.
// mutations: one limit for all tokens, refusals that take the places of good tokens, and an address
// without a limit of its own make this fail.
func TestManyTokensKeepNobodyElseOut(t *testing.T) {
	var asked, sent int
	g, clock := newGuard(t, knows(t, &asked, "good")), testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	g.clock = clock
	flood := func(addresses int) { // 20 s of it
		for range 2000 {
			sent++
			clock.SetTime(clock.Now().Add(10 * time.Millisecond))
			getFrom(t, g, scheme+"bad"+strconv.Itoa(sent), "192.0.2."+strconv.Itoa(sent%addresses))
		}
	}
	gets := func(what, token, address string) {
		t.Helper()
		if got := getFrom(t, g, scheme+token, address); got != http.StatusOK {
			t.Errorf("%s: %d", what, got)
		}
	}
	flood(30)
	clock.SetTime(clock.Now().Add(time.Second))
	gets("who comes after many from many addresses", "good", "192.0.2.100")
	clock.SetTime(clock.Now().Add(keptFor + time.Second))
	flood(101)
	gets("who had the metrics before, among many", "good", "192.0.2.100")
	clock.SetTime(clock.Now().Add(keptFor + time.Second))
	flood(30)
	gets("whose token was rotated, among many", "good-rotated", "192.0.2.100")
	clock.SetTime(clock.Now().Add(keptFor + time.Second))
	flood(1)
	gets("who comes while one address sends many", "good-too", "192.0.2.200")
}

// mutation: origins without a bound, or that never end, make this fail.
func TestAddressesOfGoodTokensAreBounded(t *testing.T) {
	l, now := newLimits(), time.Unix(1e9, 0)
	for i := range 2 * maxKept {
		l.welcome(strconv.Itoa(i), now)
	}
	if len(l.origins) != maxKept {
		t.Errorf("%d addresses", len(l.origins))
	}
	if l.welcome("new", now.Add(goodFor)); len(l.origins) != 1 {
		t.Errorf("an hour later: %d addresses", len(l.origins))
	}
}

// mutation: a token that was good once and counts as that for ever, or when it is not any more,
// makes this fail.
func TestATokenThatWasGoodIsOneOfManyAfterAWhile(t *testing.T) {
	now := time.Unix(1e9, 0)
	g, of := newGuard(t, &rest.Config{Host: "https://127.0.0.1:1"}), sum{1}
	g.keep(of, http.StatusOK, now)
	if got := g.known(of, now.Add(goodFor-1)); got.code != http.StatusOK || now.Add(keptFor).Before(got.until) {
		t.Errorf("within the hour: %+v", got)
	}
	if got := g.known(of, now.Add(goodFor)); got != (kept{}) {
		t.Errorf("after an hour: %+v", got)
	}
	g.keep(of, http.StatusForbidden, now)
	if got := g.known(of, now); got.code != http.StatusForbidden {
		t.Errorf("after a refusal: %+v", got)
	}
	if got := g.known(of, now.Add(keptFor)); got != (kept{}) {
		t.Errorf("after a refusal, and a while: %+v", got)
	}
}
