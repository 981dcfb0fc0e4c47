// SPDX-License-Identifier: Apache-2.0

// Package devenv runs everything that Syncopate needs on one machine: a real kube-apiserver with
// etcd, an in-process nats-server with JetStream, Redis, and operators as processes of their own.
// The demo and the end-to-end tests use it; no part of it is linked into the operator.
//
// All state is in one directory; Stop ends everything that Start and StartManager began.
package devenv
