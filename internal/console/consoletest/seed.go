// SPDX-License-Identifier: Apache-2.0

// Package consoletest puts objects with a status into a cluster, as an operator would have left
// them: for tests and pictures of the console. There is no operator.
package consoletest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

//go:embed seed.yaml
var seed string

var moments = regexp.MustCompile(`@(u?)([+-][0-9]+[smh])`)

// Seed makes the objects of seed.yaml, and the replicas of an operator.
func Seed(ctx context.Context, c client.Client, namespace, operator string, now time.Time) error {
	text := moments.ReplaceAllStringFunc(strings.ReplaceAll(seed, "NAMESPACE", namespace), func(s string) string {
		parts := moments.FindStringSubmatch(s)
		d, err := time.ParseDuration(parts[2])
		if err != nil {
			return s
		}
		layout := time.RFC3339
		if parts[1] != "" {
			layout = metav1.RFC3339Micro
		}
		return `"` + now.Add(d).UTC().Format(layout) + `"`
	})
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		if kind := o.GetKind(); kind == "WorkflowRun" || kind == "Schedule" {
			o.SetNamespace(namespace)
		}
		if err := create(ctx, c, o); err != nil {
			return err
		}
	}
	if err := event(ctx, c, namespace, now); err != nil {
		return err
	}
	return replicas(ctx, c, operator, now)
}

func create(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	status := o.Object["status"]
	if err := c.Create(ctx, o); err != nil {
		return fmt.Errorf("seed %s: %w", o.GetName(), err)
	}
	o.Object["status"] = status
	if err := c.Status().Update(ctx, o); err != nil {
		return fmt.Errorf("seed status of %s: %w", o.GetName(), err)
	}
	return nil
}

func event(ctx context.Context, c client.Client, namespace string, now time.Time) error {
	run := &v1alpha1.WorkflowRun{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "report"}, run); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "report."},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkflowRun", Namespace: namespace, Name: run.Name, UID: run.UID},
		Reason:         "StepRetry", Message: "step rates: attempt 2 failed: Unavailable <b>503</b>", Type: corev1.EventTypeWarning, Count: 2,
		FirstTimestamp: metav1.NewTime(now.Add(-time.Minute)), LastTimestamp: metav1.NewTime(now.Add(-time.Minute)), Source: corev1.EventSource{Component: "syncopate"},
	}
	return c.Create(ctx, e)
}

// replicas makes the ConfigMap of owners, and the Leases of two replicas.
func replicas(ctx context.Context, c client.Client, operator string, now time.Time) error {
	if err := client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operator}})); err != nil {
		return err
	}
	names := []string{"syncopate-5d8c7-k4m2p.3k7qd2mxw5a6tz4b", "syncopate-5d8c7-x2x8b.q6w2m5j7ra3yd4fn"}
	var partitions [][2]int
	for p := range ownership.Partitions {
		partitions = append(partitions, [2]int{p % len(names), 1 + p%3})
	}
	raw, err := json.Marshal(map[string]any{"version": 1, "installation": "i", "prefix": "syncopate", "origin": "o", "owners": names, "partitions": partitions})
	if err != nil {
		return err
	}
	objects := []client.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: operator, Name: ownership.ObjectName},
		Data:       map[string]string{"ownership.json": string(raw), "checksum": fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw))},
	}}
	for _, name := range names {
		renewed := metav1.NewMicroTime(now.Add(-time.Second))
		objects = append(objects, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: operator, Name: ownership.LeasePrefix + name, Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &renewed},
		})
	}
	for _, o := range objects {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, o)); err != nil {
			return fmt.Errorf("seed %s: %w", o.GetName(), err)
		}
	}
	return nil
}
