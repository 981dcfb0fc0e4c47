// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

// keyMetrics say which keys are in use, and whether the Secret is fine.
type keyMetrics struct {
	inUse  *prometheus.GaugeVec
	usable prometheus.Gauge
}

func newKeyMetrics(reg prometheus.Registerer) *keyMetrics {
	m := &keyMetrics{
		inUse: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_result_keys",
			Help: "1 for the ids of the keys in use: the one that signs the tokens of jobs, and the previous one, which is accepted too.",
		}, []string{"current", "previous"}),
		usable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_result_keys_usable",
			Help: "1 if the Secret of the keys was usable when it was read last; 0: the keys read before are in use.",
		}),
	}
	reg.MustRegister(m.inUse, m.usable)
	return m
}

// keySource reads the key Secret of a running operator for the bus, and tells what it found.
type keySource struct {
	secrets   client.Reader // reads live
	namespace string
	log       logr.Logger
	metrics   *keyMetrics

	mu   sync.Mutex
	told string // of what was logged last
}

func newKeySource(mgr manager.Manager, namespace string, log logr.Logger, m *keyMetrics) (*keySource, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make client for keys: %w", err)
	}
	return &keySource{secrets: c, namespace: namespace, log: log, metrics: m}, nil
}

// load is what keys.New loads. It logs what is new only: forged tokens have it called
// again and again.
func (s *keySource) load(ctx context.Context) (keys.Keyring, error) {
	ring, err := readKeys(ctx, s.secrets, s.namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.metrics.usable.Set(1)
		s.metrics.inUse.Reset()
		s.metrics.inUse.WithLabelValues(ring.Current.ID, ring.Previous.ID).Set(1)
		if s.tell(ring.Current.ID + " " + ring.Previous.ID) {
			s.log.Info("Result keys in use", "current", ring.Current.ID, "previous", ring.Previous.ID)
		}
	case errors.Is(err, bus.ErrConfig):
		s.metrics.usable.Set(0)
		if s.tell(err.Error()) {
			s.log.Error(err, "Result keys cannot be used, those read before stay in use")
		}
	case ctx.Err() == nil && s.tell("unreadable"):
		s.log.Info("Result keys cannot be read now, those read before stay in use", "cause", err.Error())
	}
	return ring, err
}

// tell says whether this is news. s.mu is held.
func (s *keySource) tell(what string) bool {
	news := s.told != what
	s.told = what
	return news
}
