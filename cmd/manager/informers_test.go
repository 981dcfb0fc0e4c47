// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflow"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// A replica reads from the cache what it may watch, and nothing else: a read of another kind is an
// error. So the kinds that it may watch in all namespaces are those of warmKinds.
//
// mutation: a kind that the role has, and warmKinds has not, makes this fail.
func TestCachesOfAllKindsThatReplicasMayWatchAreWarm(t *testing.T) {
	text, err := os.ReadFile(testenv.Root("config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(bytes.Split(text, []byte("\n---\n"))[0], role); err != nil {
		t.Fatal(err)
	}
	var may, warm []string
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "watch") {
			may = append(may, rule.Resources...)
		}
	}
	for _, kind := range warmKinds() {
		name := reflect.TypeOf(kind).Elem().Name()
		if partial, ok := kind.(*metav1.PartialObjectMetadata); ok {
			name = partial.Kind
		}
		resource, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(name))
		warm = append(warm, resource.Resource)
	}
	slices.Sort(may)
	slices.Sort(warm)
	if diff := cmp.Diff(may, warm); diff != "" {
		t.Errorf("kinds that replicas may watch, and those of warmKinds (-may +warm):\n%s", diff)
	}
}

// One Workflow that was deleted had the process of the sweeper keep all Workflows of the cluster in
// memory, whole: a read of a kind whose cache is not there made one, and slim does not know it.
//
// mutations: confirmGone that reads the kind itself, and cached that lets a read make a cache, make
// this fail.
func TestAReadMakesNoCache(t *testing.T) {
	server := testenv.APIServer(t, testenv.CRDs())
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c, made := asReplicas(t, server.Config, scheme)
	left := revisionOfNobody(t, direct)
	sweeper := &workflow.Sweeper{Client: c, Live: direct, Clock: clock.RealClock{}, Owner: "test"}
	if err := sweeper.Round(t.Context()); err != nil {
		t.Errorf("a round: %v", err)
	}
	if err := direct.Get(t.Context(), client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
		t.Errorf("the revision of a Workflow that is gone: %v", err)
	}
	var want []string
	for _, kind := range warmKinds() {
		want = append(want, fmt.Sprintf("%T", kind))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, made()); diff != "" {
		t.Errorf("caches (-want +got):\n%s", diff)
	}
	for _, o := range []client.Object{&v1alpha1.Workflow{}, &appsv1.ControllerRevision{}} {
		if _, is := errors.AsType[*cache.ErrResourceNotCached](c.Get(t.Context(), client.ObjectKeyFromObject(left), o)); !is {
			t.Errorf("a read of a %T, which no cache has, is no error, or another", o)
		}
	}
}

// asReplicas is a client that reads from caches as replicas have them, and which kinds these are of
// by now.
func asReplicas(t *testing.T, config *rest.Config, scheme *runtime.Scheme) (c client.Client, made func() []string) {
	t.Helper()
	var mu sync.Mutex
	var kinds []string
	options := cached(func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, fmt.Sprintf("%T", o))
		return toolscache.NewSharedIndexInformer(lw, o, resync, by)
	})
	options.Scheme = scheme
	replica, err := cache.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	if err = warmCaches(t.Context(), replica); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- replica.Start(t.Context()) }()
	t.Cleanup(func() { // the context has ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !replica.WaitForCacheSync(t.Context()) {
		t.Fatal("the caches are not synced")
	}
	c, err = client.New(config, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: replica}})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(kinds))
	}
}

// revisionOfNobody is the revision of a Workflow that is gone.
func revisionOfNobody(t *testing.T, c client.Client) *appsv1.ControllerRevision {
	t.Helper()
	w := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	w.Spec.Template.Steps = []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: "reports.daily"}}}
	if err := c.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	store := &revisions.Store{Live: c, Client: c, Owner: "test"}
	if _, err := store.Ensure(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	all := &appsv1.ControllerRevisionList{}
	if err := c.List(t.Context(), all, client.HasLabels{v1alpha1.LabelWorkflow}); err != nil || len(all.Items) != 1 {
		t.Fatalf("%d revisions, %v", len(all.Items), err)
	}
	return &all.Items[0]
}
