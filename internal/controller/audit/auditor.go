// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
)

const (
	// ObjectName is the name of the ConfigMap with what the last audit found.
	ObjectName = "syncopate-audit"
	// every is the time between two audits.
	every = 10 * time.Minute
	// firstAfter is the wait before the first one: a replica that takes over has other
	// things to do.
	firstAfter = time.Minute
	// maxKept bounds the findings in the ConfigMap.
	maxKept = 100
	// reason is that of events and of log lines.
	reason = "StoresDiffer"
)

// Auditor makes audits until it is stopped. It may be started again.
type Auditor struct {
	Stores *stores.Stores
	// Live reads from the API server, and Client writes.
	Live      client.Reader
	Client    client.Client
	Namespace string
	Events    events.EventRecorder
	Clock     clock.Clock
	Log       logr.Logger
	Metrics   *Metrics
	// Pause is the time between two looks; stores.Pause if 0.
	Pause time.Duration
}

// Start implements manager.Runnable.
func (a *Auditor) Start(ctx context.Context) error {
	defer a.Metrics.forget()
	for pause := firstAfter; ; pause = every {
		timer := a.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if err := a.Audit(ctx); err != nil && ctx.Err() == nil {
			a.Log.Info("What the audit found was not written, the next one is", "delay", every, "cause", err.Error())
		}
	}
}

// Audit makes one audit and tells what it found.
func (a *Auditor) Audit(ctx context.Context) error {
	pause := a.Pause
	if pause == 0 {
		pause = stores.Pause
	}
	report, err := a.Stores.Twice(ctx, pause)
	if err != nil {
		return err
	}
	kept := a.Metrics.tell(report)
	for _, k := range audit.Kinds() {
		if of := ofKind(report.Findings, k); len(of) > 0 {
			a.Log.Info("Stores differ", "kind", k, "findings", len(of), "first", of[0].Message, "run", of[0].Run, "uid", of[0].UID)
		}
	}
	object, err := a.write(ctx, report, kept)
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ObjectName, err)
	}
	if len(report.Findings) > 0 {
		a.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, "Audit", "%s", summary(report.Findings))
	}
	return nil
}

func ofKind(all []audit.Finding, k audit.Kind) []audit.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f audit.Finding) bool { return f.Kind != k })
}

// summary counts findings by kind.
func summary(all []audit.Finding) string {
	var parts []string
	for _, k := range audit.Kinds() {
		if n := len(ofKind(all, k)); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, n))
		}
	}
	return "the stores differ: " + strings.Join(parts, ", ") + "; see kubectl syncopate audit"
}

// Status is what the ConfigMap says in audit.json.
type Status struct {
	stores.Report

	Consistent metav1.ConditionStatus `json:"consistent"`
	// Total counts the findings; the list is cut.
	Total int `json:"total"`
	// Kept counts by kind what was found before, where this audit could not look.
	Kept map[audit.Kind]int `json:"kept,omitempty"`
}

func statusOf(r stores.Report, kept map[audit.Kind]int) Status {
	s := Status{Report: r, Consistent: metav1.ConditionTrue, Total: len(r.Findings), Kept: kept}
	switch {
	case len(r.Findings) > 0:
		s.Consistent = metav1.ConditionFalse
	case len(r.Unread) > 0:
		s.Consistent = metav1.ConditionUnknown
	}
	s.Findings = s.Findings[:min(maxKept, len(s.Findings))]
	return s
}

// write keeps a report in the ConfigMap.
func (a *Auditor) write(ctx context.Context, r stores.Report, kept map[audit.Kind]int) (*corev1.ConfigMap, error) {
	s := statusOf(r, kept)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	data := map[string]string{"consistent": string(s.Consistent), "audit.json": string(text)}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: ObjectName}}
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		object.Data = data
		return object, a.Client.Create(ctx, object)
	case err != nil:
		return nil, err
	case maps.Equal(object.Data, data):
		return object, nil
	}
	object.Data = data
	return object, a.Client.Update(ctx, object)
}
