// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
)

// root is the repository, from here.
const root = "../../.."

// Namespaces of what is installed.
const (
	operatorNS = "syncopate-system"
	helmNS     = "syncopate-by-helm"
	natsNS     = "nats"
	redisNS    = "redis"
	ledgerNS   = "tally"
	workersNS  = "workers"
)

// settings are what hack/test-e2e.sh says by environment variables.
type settings struct {
	kubeconfig string // E2E_KUBECONFIG; empty: no suite
	artifacts  string // E2E_ARTIFACTS, an absolute path
	keep       bool   // E2E_KEEP: leave what is installed
	production bool   // E2E_PRODUCTION: examples/production on three nodes, and the specs for it

	operator, next, worker, tally, nats, redis string // images
}

func readSettings() (settings, error) {
	artifacts, err := filepath.Abs(or(os.Getenv("E2E_ARTIFACTS"), filepath.Join(root, "bin", "e2e")))
	return settings{
		kubeconfig: os.Getenv("E2E_KUBECONFIG"),
		artifacts:  artifacts,
		keep:       os.Getenv("E2E_KEEP") != "",
		production: os.Getenv("E2E_PRODUCTION") != "",
		operator:   or(os.Getenv("E2E_IMAGE"), "syncopate:e2e"),
		next:       or(os.Getenv("E2E_NEXT_IMAGE"), "syncopate:e2e-next"),
		worker:     or(os.Getenv("E2E_WORKER_IMAGE"), "syncopate-worker:e2e"),
		tally:      or(os.Getenv("E2E_TALLY_IMAGE"), "syncopate-e2e-tally:e2e"),
		nats:       or(os.Getenv("E2E_NATS_IMAGE"), "nats:2.12"),
		redis:      or(os.Getenv("E2E_REDIS_IMAGE"), "redis:8"),
	}, err
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// nameAndTag splits an image's name: the port of a registry is no tag.
func nameAndTag(image string) (name, tag string) {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}
