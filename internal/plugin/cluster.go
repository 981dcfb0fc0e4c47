// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

// bindConfig adds kubectl's flags and returns what reads the kubeconfig as they say.
func bindConfig(flags *pflag.FlagSet) func() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "Path of the kubeconfig file.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.Timeout.Default = "30s"
	clientcmd.BindOverrideFlags(overrides, flags, names)
	return func() (*rest.Config, string, error) {
		config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
		namespace, _, err := config.Namespace()
		if err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		c, err := config.ClientConfig()
		if err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		return c, namespace, nil
	}
}

// connected returns what connects as a kubeconfig says.
func connected(read func() (*rest.Config, string, error)) func() (client.Client, string, error) {
	return func() (client.Client, string, error) {
		config, namespace, err := read()
		if err != nil {
			return nil, "", err
		}
		scheme, mapper, err := reads.Kinds()
		if err != nil {
			return nil, "", err
		}
		config.QPS, config.Burst = -1, -1 // 1,000 pages at most; the API server has its own limits
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
		if err != nil {
			return nil, "", fmt.Errorf("API server: %w", err)
		}
		return c, namespace, nil
	}
}

// run reads one run, with the steps of the Workflow that it follows, as far as they may be read.
func (a *app) run(ctx context.Context, name string) (*v1alpha1.WorkflowRun, client.Client, error) {
	run, c, err := shownRun(ctx, a, name)
	if errors.Is(err, reads.ErrHidden) {
		err = nil
	}
	return run, c, err
}

// shownRun is run, with an error beside the run if its steps may not be read.
func shownRun(ctx context.Context, a *app, name string) (*v1alpha1.WorkflowRun, client.Client, error) {
	run, c, err := a.storedRun(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	run, err = reads.WithSteps(ctx, c, run)
	return run, c, err
}

// noteHidden notes that the steps of a run may not be read, and returns other errors.
func noteHidden(a *app, err error) error {
	if !errors.Is(err, reads.ErrHidden) {
		return err
	}
	a.note("%v", err)
	return nil
}

// storedRun reads one run as it is stored.
func (a *app) storedRun(ctx context.Context, name string) (*v1alpha1.WorkflowRun, client.Client, error) {
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, nil, err
	}
	var run v1alpha1.WorkflowRun
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &run); err != nil {
		return nil, nil, fmt.Errorf("run %s/%s: %w", namespace, name, err)
	}
	return &run, c, nil
}

// underWay lists the runs under way of all namespaces or, where that is forbidden, of one: then it
// notes narrowed, which has a place for the name of that. "" is no note.
func (a *app) underWay(ctx context.Context, c client.Reader, namespace string, detail reads.Detail, narrowed string) (reads.Seen, error) {
	seen, err := reads.UnderWay(ctx, c, namespace, detail)
	if err != nil {
		return seen, err
	}
	if !seen.All && narrowed != "" {
		a.note(narrowed, namespace)
	}
	if seen.More {
		a.note("There are more than %d runs under way. The others are not seen.", seen.Bound)
	}
	return seen, nil
}

// runNames gives each wanted UID its run, where that still exists. Who may not list the runs of all
// namespaces sees those of the current one.
func (a *app) runNames(ctx context.Context, wanted map[string]bool) (map[string]types.NamespacedName, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, err
	}
	found, err := namesIn(ctx, c, "", wanted)
	if apierrors.IsForbidden(err) {
		found, err = namesIn(ctx, c, namespace, wanted)
	}
	return found, err
}

func namesIn(ctx context.Context, c client.Reader, namespace string, wanted map[string]bool) (map[string]types.NamespacedName, error) {
	found := map[string]types.NamespacedName{}
	_, err := eachName(ctx, c, v1alpha1.GroupVersion.WithKind("WorkflowRunList"), func(run *metav1.PartialObjectMetadata) bool {
		if uid := string(run.UID); wanted[uid] {
			found[uid] = client.ObjectKeyFromObject(run)
		}
		return len(found) < len(wanted)
	}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return found, nil
}
