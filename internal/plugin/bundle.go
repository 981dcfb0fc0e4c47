// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bundle"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/check/probe"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

const bundleHelp = `Write what a bug report needs into a file: versions, what check and audit say, the operator's Deployment, pods and Leases, LockPolicies,
runs with their steps, reasons and times, streams and consumers, and Redis' settings.

Left out are inputs, outputs, expressions, annotations, labels, idempotency keys, messages of runs, users and passwords of addresses, and Secrets.
The names of runs, steps, topics, namespaces, tenants and servers are in it. contents.txt lists all; read it before you pass the file on. docs/support-bundle.md says what is in each file.`

const (
	// bundleRuns and bundleObjects bound the lists.
	bundleRuns    = 1000
	bundleObjects = 200
	// bundlePause is between the two looks of the audit: it tells candidates, not certainties.
	bundlePause = 5 * time.Second
	auditObject = "syncopate-audit"
)

type bundleFlags struct {
	output string
	checkFlags
}

func bundleCommand(a *app) *cobra.Command {
	var f bundleFlags
	cmd := &cobra.Command{
		Use: "support-bundle", Short: "Write what a bug report needs into a file", Long: bundleHelp, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "File to write; default syncopate-support-TIME.tar.gz here. It must not exist.")
	flags.StringVar(&f.operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	a.nats.bind(cmd)
	f.redis.bind(cmd, redisByEnv)
	return cmd
}

func (f *bundleFlags) run(ctx context.Context, a *app) (err error) {
	name := f.output
	if name == "" {
		name = "syncopate-support-" + a.Clock.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	written := false // a panic has no err
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil || !written {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	w := &bundle.Writer{}
	f.gather(ctx, a, w)
	if err := w.Write(file, a.Clock.Now()); err != nil {
		return err
	}
	written = true
	fmt.Fprintln(a.Out, "wrote", name)
	return w.Table(a.Out)
}

func (f *bundleFlags) gather(ctx context.Context, a *app, w *bundle.Writer) {
	w.Add("plugin.json", "version of this plugin", a.Build)
	f.facts(ctx, a, w)
	audit := auditFlags{redis: f.redis, wait: bundlePause}
	audit.into(ctx, a, w)
	c, _, err := a.Cluster()
	if err != nil {
		w.Miss("runs.json", "runs", err)
		return
	}
	collect(ctx, w, c, &v1alpha1.LockPolicyList{}, "policies.json", "LockPolicies",
		func(l *v1alpha1.LockPolicyList) []bundle.Policy { return each(l.Items, bundle.PolicyOf) })
	runs(ctx, w, c)
	at := client.InNamespace(f.operator)
	collect(ctx, w, c, &appsv1.DeploymentList{}, "deployments.json", "the operator's Deployment",
		func(l *appsv1.DeploymentList) []bundle.Deployment { return each(l.Items, bundle.DeploymentOf) }, at)
	collect(ctx, w, c, &corev1.PodList{}, "pods.json", "its pods", func(l *corev1.PodList) []bundle.Pod { return each(l.Items, bundle.PodOf) }, at)
	collect(ctx, w, c, &coordinationv1.LeaseList{}, "leases.json", "its Leases",
		func(l *coordinationv1.LeaseList) []bundle.Lease { return each(l.Items, bundle.LeaseOf) }, at)
	f.objects(ctx, w, c)
}

// objects are the two ConfigMaps that the operator writes.
func (f *bundleFlags) objects(ctx context.Context, w *bundle.Writer, c client.Reader) {
	for name, about := range map[string]string{ownership.ObjectName: "which replica owns which partition", auditObject: "what the operator's last audit found"} {
		object := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: f.operator, Name: name}, object); err != nil {
			w.Miss(name+".json", about, err)
			continue
		}
		w.Add(name+".json", about, object.Data)
	}
}

// facts are what check asks and says.
func (f *bundleFlags) facts(ctx context.Context, a *app, w *bundle.Writer) {
	o, err := f.options(a)
	var facts check.Facts
	if err == nil {
		facts, err = probe.Gather(ctx, o)
	}
	if err != nil {
		w.Miss("check.json", "what kubectl syncopate check says", err)
		return
	}
	w.Add("check.json", "what kubectl syncopate check says", check.Judge(facts))
	facts.NATS.User = check.User{}
	w.Add("nats.json", "NATS: version, streams, consumers", facts.NATS)
	w.Add("redis.json", "Redis: versions, settings, latency", facts.Redis)
	w.Add("partitions.json", "partitions and their owners", facts.Partitions)
}

func (f *auditFlags) into(ctx context.Context, a *app, w *bundle.Writer) {
	const name, about = "audit.json", "what an audit found whose looks are 5 s apart: some of it may be on its way to heal"
	s, end, err := f.stores(ctx, a)
	if err != nil {
		w.Miss(name, about, err)
		return
	}
	defer end()
	report, err := s.Twice(ctx, f.wait)
	if err != nil {
		w.Miss(name, about, err)
		return
	}
	w.Add(name, about, report)
}

// collect lists objects of a kind, and puts what may be shown of them into the bundle.
func collect[L client.ObjectList, T any](ctx context.Context, w *bundle.Writer, c client.Reader, list L, name, about string, of func(L) []T, o ...client.ListOption) {
	if err := c.List(ctx, list, append([]client.ListOption{client.Limit(bundleObjects)}, o...)...); err != nil {
		w.Miss(name, about, err)
		return
	}
	if list.GetContinue() != "" {
		about += "; there are more"
	}
	bundle.AddList(w, name, about, of(list))
}

// runs puts what may be shown of runs into the bundle: of those under way first, and then of the
// others.
func runs(ctx context.Context, w *bundle.Writer, c client.Reader) {
	name, about := "runs.json", "runs, those under way first: steps, phases, reasons, times"
	var all []bundle.Run
	has, more := map[types.UID]bool{}, false
	keep := func(run *v1alpha1.WorkflowRun) bool {
		if has[run.UID] {
			return true
		}
		if more = len(all) == bundleRuns; more {
			return false
		}
		all, has[run.UID] = append(all, bundle.RunOf(run)), true
		return true
	}
	_, err := reads.Each(ctx, c, keep, reads.NotEnded())
	if err == nil && !more {
		_, err = reads.Each(ctx, c, keep)
	}
	switch {
	case err != nil && len(all) == 0:
		w.Miss(name, about, err)
		return
	case err != nil: // what is there is what people look for
		about += "; the others could not be read: " + err.Error()
	case more:
		about += "; there are more"
	}
	bundle.AddList(w, name, about, all)
}

func each[T, R any](items []T, of func(*T) R) []R {
	all := make([]R, 0, len(items))
	for i := range items {
		all = append(all, of(&items[i]))
	}
	return all
}
