// SPDX-License-Identifier: Apache-2.0

package runwatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// NewInformer makes an informer, as cache.Options take it.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers makes informers of which that of runs does not decode what was noted. Count is told of
// each event of runs.
func Informers(config *rest.Config, c *http.Client, scheme *runtime.Scheme, writes *Writes, count func(own bool)) (NewInformer, error) {
	kind := v1alpha1.GroupVersion.WithKind("WorkflowRun")
	codecs := serializer.NewCodecFactory(scheme)
	runs, err := apiutil.RESTClientForGVK(kind, false, false, config, codecs, c)
	if err != nil {
		return nil, fmt.Errorf("make client of the watch of runs: %w", err)
	}
	media, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("make client of the watch of runs: no codec of %s", runtime.ContentTypeJSON)
	}
	codec := codecs.WithoutConversion().DecoderToVersion(media.Serializer, v1alpha1.GroupVersion)
	params := runtime.NewParameterCodec(scheme)
	watchRuns := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch, o.AllowWatchBookmarks = true, true
		body, err := runs.Get().Resource("workflowruns").VersionedParams(&o, params).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
		if err != nil {
			return nil, err // the reflector asks what it is
		}
		return watch.NewStreamWatcher(newDecoder(body, codec, writes, count), apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
	}
	return func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, is := o.(*v1alpha1.WorkflowRun); is {
			list := toolscache.ToListerWatcherWithContext(lw).ListWithContext
			lw = &toolscache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watchRuns}
		}
		return toolscache.NewSharedIndexInformer(lw, o, resync, by)
	}, nil
}
