// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// mutation: results that keep the priority of the last pass make this fail.
func TestAPassThatComesAgainIsAsUrgentAsOthers(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"after a time": nil, "after an error": errors.New("no place")} {
		r := UntilStop(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Second}, cause
		}))
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if !errors.Is(err, cause) || result.Priority == nil || *result.Priority != 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
}

// controller-runtime takes no time beside an error, and warns of it with words for developers.
//
// mutations: a result that has a time beside an error, or none without one.
func TestAPassThatFailsAsksForNoTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		want  time.Duration
	}{"it fails": {errors.New("no place"), 0}, "it does not": {nil, time.Second}} {
		r := UntilStop(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Second}, c.cause
		}))
		if result, err := r.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, c.cause) || result.RequeueAfter != c.want {
			t.Errorf("%s: again after %s, %v", name, result.RequeueAfter, err)
		}
	}
}

// mutation: an error of a pass that ends with its operator, none of one that goes on, or a cause
// that nobody can find, makes this fail.
func TestAPassThatEndsWithItsOperatorIsNoError(t *testing.T) {
	t.Parallel()
	for name, verbosity := range map[string]int{"as usual": 0, "at debug level": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: verbosity})
			ctx, stop := context.WithCancel(log.IntoContext(t.Context(), logger))
			defer stop()
			r := UntilStop(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: time.Second}, errors.New("no place")
			}))
			if result, err := r.Reconcile(ctx, reconcile.Request{}); err == nil {
				t.Errorf("while it works: %+v, %v", result, err)
			}
			if len(lines) > 0 {
				t.Errorf("told twice: %v", lines)
			}
			stop()
			if result, err := r.Reconcile(ctx, reconcile.Request{}); err != nil || result != (reconcile.Result{}) {
				t.Errorf("as it stops: %+v, %v", result, err)
			}
			if told := strings.Contains(strings.Join(lines, "\n"), "no place"); told != (verbosity == 1) {
				t.Errorf("told %t: %v", told, lines)
			}
		})
	}
}

// mutation: a line for a pass that ended well makes this fail.
func TestAPassThatEndedWellIsNotTold(t *testing.T) {
	t.Parallel()
	logger := funcr.New(func(_, args string) { t.Errorf("told: %s", args) }, funcr.Options{Verbosity: 1})
	ctx, stop := context.WithCancel(log.IntoContext(t.Context(), logger))
	stop()
	r := UntilStop(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	if _, err := r.Reconcile(ctx, reconcile.Request{}); err != nil {
		t.Error(err)
	}
}

// mutation: a controller whose passes end otherwise makes this fail.
func TestThePassesOfEveryControllerEndSo(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`\bComplete\(|\bReconciler: `)
	found := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if made.MatchString(line) {
				found++
				if !strings.Contains(line, "passes.UntilStop(") {
					t.Errorf("%s: %s", path, strings.TrimSpace(line))
				}
			}
		}
		return err
	})
	if err != nil || found < 5 {
		t.Errorf("%d controllers, %v; want five at least", found, err)
	}
}
