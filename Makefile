# Syncopate. `make` lists the targets; logic of more than a few lines is in hack/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL := go tool -modfile=hack/tools/go.mod
LINT := go tool -modfile=hack/tools/lint/go.mod golangci-lint

# Without the folder's name in what is compiled, a second checkout takes it from the cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

# Where tests find kube-apiserver, etcd and kubectl.
export KUBEBUILDER_ASSETS ?= $(CURDIR)/bin/k8s

IMAGE ?= syncopate:dev
WORKER_IMAGE ?= syncopate-worker:dev
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BUILDER_IMAGE ?= golang:1.26
BASE_IMAGE ?= scratch
IMAGE_ARGS = --build-arg BUILDER_IMAGE='$(BUILDER_IMAGE)' --build-arg BASE_IMAGE='$(BASE_IMAGE)' --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' $(if $(GOPROXY),--build-arg GOPROXY='$(GOPROXY)')
PKG ?= ./...
TEST_ARGS ?=
KEEP ?=

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: site
site: ## Build the site of docs/ in bin/site and check its links. Needs Node 20 or newer. SITE_BASE=/name/: for an address that is not a root.
	cd hack/site && npm ci --no-audit --no-fund && npm run build

.PHONY: demo
demo: controlplane ## Run everything on this machine and show the samples finish. KEEP=1: keep it running afterwards.
	@KEEP='$(filter-out 0,$(KEEP))' go run ./hack/demo

.PHONY: test
test: controlplane cc redis workers chromium axe ## Run every test but kind's, with the race detector where anything runs at the same time. PKG=./internal/bus/... TEST_ARGS='-run X' narrow it.
	hack/test.sh '$(PKG)' $(TEST_ARGS)

.PHONY: stress
COUNT ?= 20
LOAD ?= 8
JOBS ?= 1
stress: controlplane redis workers ## Run the tests of PKG COUNT times (20) beside LOAD busy processes (8), to find those that depend on time. LOAD=0 JOBS=8: 8 runs side by side instead. TEST_ARGS are the binaries': -test.run X.
	JOBS='$(JOBS)' hack/stress.sh '$(PKG)' '$(COUNT)' '$(LOAD)' $(TEST_ARGS)

.PHONY: test-hostile
test-hostile: controlplane redis ## Play eight namespaces, seven of which do harm, and expect the eighth's runs to succeed in time. Needs a machine of its own for some minutes.
	HOSTILE=1 go test -count=1 -timeout 10m -v ./test/e2e -ginkgo.focus 'eight namespaces' -ginkgo.v

.PHONY: test-faults
DURATION ?= 30m
SEEDS ?=
PART ?=
RIGS ?= 1
FAULT ?=
TOTALS ?=
test-faults: controlplane redis cc ## Play every fault of NATS, Redis, the API server, operators and clocks against every invariant, by itself and in pairs. DURATION=30m; PART=one,sentinel,cluster, each RIGS times (1) side by side; FAULT='409,etcd' draws from those only; SEEDS=1,2 repeats what a failure printed; TOTALS=docs/faults.json adds the rounds to those of before.
	DURATION='$(DURATION)' PART='$(PART)' RIGS='$(RIGS)' FAULT='$(FAULT)' SEEDS='$(SEEDS)' TOTALS='$(TOTALS)' hack/test-faults.sh

.PHONY: faults-page
faults-page: ## Write the tables of docs/faults.md from docs/faults.json.
	go run ./hack/faulttable -totals docs/faults.json -page docs/faults.md

.PHONY: test-rollout
test-rollout: controlplane redis ## Play rollouts of LockPolicies with three operators that share runs, some of them killed. Takes some minutes.
	ROLLOUT=1 go test -count=1 -timeout 30m -v ./test/e2e -ginkgo.focus 'rolls out by canary' -ginkgo.v

.PHONY: test-e2e
test-e2e: ## Run the end-to-end suite on a kind cluster that it makes, or on that of E2E_KUBECONFIG. See docs/testing.md. KEEP=1: keep the cluster.
	@hack/test-e2e.sh

.PHONY: test-production
test-production: ## Run examples/production on a kind cluster of three nodes, of which one is drained and one stops.
	@PRODUCTION=1 hack/test-e2e.sh

.PHONY: test-shards
SHARDS ?= 5000
test-shards: controlplane redis ## Play replicas that share 5,000 (SHARDS) runs: one is killed every 20 s, one paused, their number changes. Takes some minutes.
	SHARDS='$(SHARDS)' go test -count=1 -timeout 45m -v ./test/e2e -ginkgo.focus 'kills, pauses and changes' -ginkgo.v

.PHONY: nightly
nightly: controlplane redis ## Run what is too long for make test, one after the other: the faults for DURATION (6h), cron, locks, templates, schedules, partitions, rollouts, the audit of 10,000 runs, a ledger of a million results. Results in bin/nightly.
	hack/nightly.sh

.PHONY: test-cron
test-cron: ## Compare the slots of cron texts with what brute force finds, minute by minute, over ten years of every zone. Takes some minutes.
	CRON_BRUTE=1 go test -count=1 -timeout 60m -v -run BruteForce ./internal/cron

.PHONY: lint
lint: ## Run the linters and formatters of .golangci.yml, go vet among them.
	@TIMEFORMAT='== lint of this module: %0R s, %0U + %0S s of CPU'; time $(LINT) run --timeout 30m $(PKG)
	@TIMEFORMAT='== lint of the modules beside it: %0R s, %0U + %0S s of CPU'; time for dir in test/bench examples/lock-fences hack/release; do \
	  (cd $$dir && go tool -modfile=../../hack/tools/lint/go.mod golangci-lint run --config ../../.golangci.yml --timeout 30m ./...) || exit 1; \
	done

.PHONY: fmt
fmt: ## Format the code.
	$(LINT) fmt

.PHONY: generate
generate: ## Regenerate deep copies, CRDs and the API reference from api/, and what the chart has copies of.
	hack/generate.sh .

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities that this code reaches. Not in the gate: it needs https://vuln.go.dev.
	hack/vulncheck.sh ./...

.PHONY: verify
verify: ## Fail where generated code is stale, the API or the wire protocol breaks who uses the last release, kustomize cannot build, the chart differs from it, alerts fail their tests, vet complains of generated code, no test reaches a part of the core, a test that docs/bugs.md names is gone, a quoted figure is not that of its result file, a comment or a page names what does not exist, a comment line is too long, a file does not say its licence, a file is larger than sources are or a compiled program, or go.mod is untidy.
	@TIMEFORMAT='== verify: %0R s, %0U + %0S s of CPU'; time hack/verify.sh

.PHONY: structure
structure: ## Print how far concerns are apart: methods of types, call cycles of files, lines of functions and files (docs/structure.md).
	@go run ./hack/structure

.PHONY: build
build: ## Build the operator, the kubectl plugin and the sample worker into bin/. GOOS and GOARCH choose another platform.
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/ ./cmd/...
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./examples/worker-go

.PHONY: release
REPOSITORY ?= ghcr.io/syncopate-dev/syncopate
release: ## Make all that VERSION is published as, into bin/release/VERSION, from a clean tree (docs/releasing.md). REPOSITORY is where the image will be pushed to.
	go run -C hack/release . -root '$(CURDIR)' -version '$(if $(filter file default undefined,$(origin VERSION)),,$(VERSION))' -repository '$(REPOSITORY)'

.PHONY: image
image: ## Build the operator's image. IMAGE names it; BUILDER_IMAGE and BASE_IMAGE say what it is built with and stands on.
	docker build $(IMAGE_ARGS) --target manager -t '$(IMAGE)' .

.PHONY: image-worker
image-worker: ## Build an image of the sample worker, WORKER_IMAGE.
	docker build $(IMAGE_ARGS) --target worker -t '$(WORKER_IMAGE)' .

.PHONY: image-prebuilt
image-prebuilt: ## The same image as of `image` without a builder image: compiled here, then put on BASE_IMAGE. Needs no registry.
	BASE_IMAGE='$(BASE_IMAGE)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' hack/image-prebuilt.sh manager '$(IMAGE)'

.PHONY: image-worker-prebuilt
image-worker-prebuilt: ## The same for the sample worker.
	BASE_IMAGE='$(BASE_IMAGE)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' hack/image-prebuilt.sh worker '$(WORKER_IMAGE)'

.PHONY: controlplane
controlplane: ## Get kube-apiserver, etcd and kubectl into bin/k8s, once: downloaded, else built from source (some minutes).
	@hack/controlplane.sh

.PHONY: redis
redis: ## Make sure that redis-server is there. REQUIRE_REDIS=1: fail otherwise.
	@hack/ensure-redis.sh

.PHONY: chromium
chromium: ## Make sure that Chromium is there, for tests of the console in a browser. REQUIRE_CHROMIUM=1: fail otherwise.
	@hack/ensure-chromium.sh

.PHONY: axe
axe: ## Make sure that axe-core is there, for tests of the console by its rules of accessibility. REQUIRE_AXE=1: fail otherwise.
	@hack/ensure-axe.sh

.PHONY: pictures
pictures: controlplane ## Take the pictures of the console, with Chromium, and draw that of a trace.
	REQUIRE_CHROMIUM=1 hack/ensure-chromium.sh
	mkdir -p docs/pictures
	PICTURES='$(CURDIR)/docs/pictures' REQUIRE_CHROMIUM=1 go test -count=1 ./test/console -run 'TestEachPageCanBeRead|TestThreeQuestions'
	PICTURES='$(CURDIR)/docs/pictures' REQUIRE_WORKERS=1 go test -count=1 ./test/e2e -run TestE2E -ginkgo.focus 'A trace'

.PHONY: dashboard-picture
dashboard-picture: controlplane redis ## Draw what the panels of Grafana's dashboard show of an operator under load. Takes some minutes.
	rm -rf bin/scrapes
	cd test/bench && go run . -short -record '$(CURDIR)/bin/scrapes' policy limits admission failover
	go run -C hack/tools/rules . -dashboard '$(CURDIR)/config/monitoring/dashboard.json' -scrapes '$(CURDIR)/bin/scrapes' -picture '$(CURDIR)/docs/pictures/dashboard.svg'

.PHONY: diagrams
diagrams: ## Draw docs/diagrams from their texts.
	@hack/diagrams.sh

.PHONY: workers
workers: ## Make sure that workers in other languages can run: node, npm, python3. REQUIRE_WORKERS=1: fail otherwise.
	@[[ -n $${WORKERS_LOOKED_FOR:-} ]] || hack/ensure-workers.sh

.PHONY: cc
cc: ## Make sure that a C compiler is there; the race detector needs one.
	@hack/ensure-cc.sh

.PHONY: bench-locks
bench-locks: redis ## Measure hand-off, polling and renewals with processes on a real Redis (docs/locks.md). Takes some minutes.
	go test ./test/locks -run '^$$' -bench . -benchtime 1x -timeout 30m

.PHONY: bench-tenants
bench-tenants: controlplane redis ## Measure admission by Go benchmarks: decisions of both strategies, and 1,000 tenants on a real API server (docs/admission.md).
	go test ./internal/quota/store -run '^$$' -bench Decision -benchtime 20x
	ADMISSION_TENANTS=1000 go test -v -timeout 40m ./test/e2e -ginkgo.focus 'starves no tenant' -ginkgo.v -ginkgo.timeout 40m

.PHONY: bench-schedules
SCHEDULES ?= 1000
bench-schedules: controlplane ## Measure how long 1,000 (SCHEDULES) schedules of the same minute take to have their runs created, on a real API server.
	SCHEDULES='$(SCHEDULES)' go test ./internal/controller/schedule -count=1 -v -timeout 20m -run TestManySchedulesOfTheSameMinute

BENCH_ARGS ?=
BENCH = cd test/bench && go run . $(BENCH_ARGS)
SUITES = throughput peer-shape status latency limits scale policy contention neighbours hostile failover scale-out admission held-lock tracing

.PHONY: bench
bench: controlplane redis ## Run every suite of docs/benchmarks. BENCH_ARGS=-short: small sizes; -update: write results and plots.
	$(BENCH)

.PHONY: $(SUITES:%=bench-%)
$(SUITES:%=bench-%): bench-%: controlplane redis
	$(BENCH) $*
bench-throughput: ## Measure runs and steps a second, beside what the API server can write.
bench-peer-shape: ## Measure runs from creation to their stored end, as benchmarks of other engines do. BENCH_ARGS='-modes EveryStep -repetitions 1': less.
bench-status: ## Measure what a status write costs the API server, and the share of each rule of the CRD.
bench-latency: ## Measure the time from a worker's result to the next job.
bench-limits: ## Measure how a mutex passes from run to run, and what 10,000 runs cost that wait for one.
bench-scale: ## Measure what runs cost that wait: memory, writes, restarts. BENCH_ARGS=-large: 20,000 runs.
bench-policy: ## Measure a change of a LockPolicy under load.
bench-contention: ## Measure contenders of one run lock, by strategy, beside other libraries.
bench-failover: ## Measure for how long runs stand still when a replica is killed or stopped.
bench-scale-out: ## Measure steps a second by one, three and five replicas, with the API server some way off.
bench-held-lock: ## Measure runs of one class while a dead process holds the admission lock of another.
bench-neighbours: ## Measure neighbours while one run of each kind that does harm is under way. BENCH_ARGS='-kinds backlog': one kind.
bench-hostile: ## Measure neighbours of tenants who do harm, and the operator's memory. BENCH_ARGS='-kinds backlog': one kind.
bench-tracing: ## Measure what traces cost: the same load without a collector and with one, in turn.
bench-admission: ## Measure many starts at once for one tenant, what clients make of refusals, and a burst against one hot lock.

PROFILES = throughput latency scale
.PHONY: $(PROFILES:%=profile-%)
$(PROFILES:%=profile-%): profile-%: controlplane redis
	$(BENCH) -profile '$(CURDIR)/bin/profiles/$*' $*
profile-throughput: ## Write CPU and heap profiles of the operator under that load to bin/profiles. Likewise profile-latency and profile-scale.
