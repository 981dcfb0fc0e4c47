// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	pageSize       = 500
	maxPages       = 200 // of names of runs: 100,000
	maxCompletions = 200
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
		scheme, mapper, err := kinds()
		if err != nil {
			return nil, "", err
		}
		c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
		if err != nil {
			return nil, "", fmt.Errorf("API server: %w", err)
		}
		return c, namespace, nil
	}
}

// kinds also says where the kinds are, so that the server need not be asked.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, nil, fmt.Errorf("register kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("WorkflowRun"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("StepApproval"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Workflow"), meta.RESTScopeNamespace)
	mapper.Add(revisionKind("ControllerRevision"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("LockPolicy"), v1alpha1.GroupVersion.WithResource("lockpolicies"),
		v1alpha1.GroupVersion.WithResource("lockpolicy"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// run reads one run, with the steps of the Workflow that it follows.
func (a *app) run(ctx context.Context, name string) (*v1alpha1.WorkflowRun, client.Client, error) {
	run, c, err := a.storedRun(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	run, err = withSteps(ctx, c, run)
	return run, c, err
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

// policies are all LockPolicies; nil if they may not be read: not everybody who has runs
// may see them.
func policies(ctx context.Context, c client.Reader) ([]v1alpha1.LockPolicy, error) {
	var list v1alpha1.LockPolicyList
	switch err := c.List(ctx, &list); {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("policies: %w", err)
	}
	return append([]v1alpha1.LockPolicy{}, list.Items...), nil
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
	next := ""
	for range maxPages {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		for i := range list.Items {
			if uid := string(list.Items[i].UID); wanted[uid] {
				found[uid] = client.ObjectKeyFromObject(&list.Items[i])
			}
		}
		if next = list.Continue; next == "" || len(found) == len(wanted) {
			break
		}
	}
	return found, nil
}

// completeRuns offers the names of runs to the shell.
func (a *app) completeRuns(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	if err := c.List(cmd.Context(), list, client.InNamespace(namespace), client.Limit(maxCompletions)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
