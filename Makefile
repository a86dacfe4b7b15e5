# The front door. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Tools and binaries that are built once for all checkouts; nothing is installed outside of it.
CACHE ?= $(or $(OUTRIGGER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outrigger)
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
HELM_VERSION := v4.3.1
HELM := $(CACHE)/tools/helm-$(HELM_VERSION)/helm
# The cluster's, if `hack cluster build` has made it, else whatever there is.
KUBECTL := $(firstword $(wildcard $(CACHE)/programs/kubernetes-*/kubectl) kubectl)
# That definitions are links is no news.
QUIET := 2> >(grep -v "symbolic link" >&2)
CHART := deploy/helm/outrigger
BASE := deploy/kustomize/base/outrigger.yaml
VECTORS := hack/testdata/vectors
HACK := cargo run -q -p hack --
# Many tests wait for processes and sockets: eight at once use two cores better than two do.
TEST_THREADS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$(( n > 8 ? n : 8 )))

##@ Start here

.PHONY: help
help: ## List what make can do
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Watch a small shop being looked after (ON=sandbox|cluster)
	$(HACK) demo --on $(if $(filter file,$(origin ON)),sandbox,$(ON))

.PHONY: test
test: ## Run the tests and the vectors of the real systems (long ones: make vectors)
	cargo test --workspace --lib --tests -- --test-threads=$(TEST_THREADS)
	$(HACK) vectors $(VECTORS)

.PHONY: vectors
vectors: ## Run the vectors our way (each difference a named quirk) and with native sidecars added; long ones too
	$(HACK) vectors $(VECTORS)/long
	for folder in $(VECTORS) $(VECTORS)/long; do \
	  $(HACK) vectors $$folder --quirks=none; \
	  $(HACK) vectors $$folder --add-native-sidecars; done

.PHONY: soak
soak: ## Let a week of 2,000 pods pass on the sandbox, with everything that can go wrong
	cargo run --profile ci -p hack -- soak

##@ Real clusters (the first build of their programs takes some 15 minutes; it is kept in ~/.cache/outrigger)

LEVEL ?= node
ON ?= cluster
# The shortest scenarios that cover the place itself and each daemon.
SMOKE := crds-install sidecar-deployment-runs resize-answers resize-lands resize-needs-a-kubelet-that-can \
	eviction-answers eviction-waits-for-the-budget metrics-served webhook-mutates usage-is-measured \
	recommends-for-sidecars recommends-more-after-oom updater-node-too-small updater-leader-killed \
	admission-suite admission-sizes-new-pods sidecarset-injects sidecarset-size-stories

.PHONY: cluster-up
cluster-up: ## Start a real Kubernetes on this machine (LEVEL=api|control-plane|node)
	$(HACK) cluster up --level $(LEVEL)

.PHONY: cluster-down
cluster-down: ## Stop every cluster that cluster-up started
	$(HACK) cluster down --all

.PHONY: e2e
e2e: ## Run all scenarios (ON=sandbox|cluster|kubeconfig)
	$(HACK) e2e --on $(ON)

.PHONY: e2e-smoke
e2e-smoke: ## Run the scenarios that prove the basics on a real cluster
	$(HACK) cluster build --level node
	$(HACK) e2e --on cluster $(SMOKE:%=--scenario %)

##@ Before a commit

.PHONY: lint
lint: fmt-check clippy deny crds-check docs-check ## Check format, clippy, dependencies and generated files

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: clippy
clippy: ## Run clippy; a warning fails
	cargo clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: $(DENY) ## Check bans, licences and sources of all dependencies
	$(DENY) check bans licenses sources

.PHONY: audit
audit: $(DENY) ## Check dependencies for known advisories (needs the network)
	$(DENY) check advisories

$(DENY):
	cargo install cargo-deny --version $(DENY_VERSION) --locked --root $(dir $(patsubst %/,%,$(dir $@)))

.PHONY: crds
crds: ## Generate deploy/crds from the Rust types
	$(HACK) crds

.PHONY: crds-check
crds-check:
	$(HACK) crds --check

.PHONY: chart
chart: $(HELM) ## Write the kustomize base from the chart
	{ echo "# Generated from $(CHART) by \`make chart\`. Do not edit."; \
	  $(HELM) template outrigger $(CHART) --namespace kube-system $(QUIET); } > $(BASE).new
	mv $(BASE).new $(BASE)

.PHONY: chart-check
chart-check: $(HELM) ## Lint the chart, give it good and bad values, and build the kustomize folders (needs Go, once)
	$(HELM) template outrigger $(CHART) --namespace kube-system $(QUIET) | diff <(tail -n +2 $(BASE)) - \
	  || { echo "$(BASE) is not what the chart gives: run make chart"; exit 1; }
	for values in deploy/helm/values/*.yaml; do \
	  echo "$$values"; $(HELM) lint --quiet --strict $(CHART) --values $$values $(QUIET); \
	  $(HELM) template outrigger $(CHART) --values $$values $(QUIET) > /dev/null; done
	for values in deploy/helm/refused/*.yaml; do \
	  ! $(HELM) template outrigger $(CHART) --values $$values > /dev/null 2>&1 \
	  || { echo "$$values should be refused"; exit 1; }; done
	for folder in deploy/kustomize/*/; do \
	  echo "$$folder"; $(KUBECTL) kustomize $$folder > /dev/null; done

$(HELM):
	GOBIN=$(dir $@) go install -trimpath helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)

.PHONY: docs
docs: ## Generate docs/flags.md and docs/metrics.md from the code
	$(HACK) docs

.PHONY: docs-check
docs-check:
	$(HACK) docs --check
	cargo test --workspace --doc

.PHONY: alerts
alerts: ## Test the alerting rules (needs promtool)
	@command -v promtool > /dev/null || { echo "promtool is missing: on Debian, apt-get install --no-install-recommends prometheus"; exit 1; }
	promtool check rules deploy/monitoring/alerts.yaml
	promtool test rules deploy/monitoring/alerts_test.yaml

##@ Build

.PHONY: images
images: ## Build the images with docker (REGISTRY=registry.example.com/ TAG=...)
	for daemon in recommender updater admission; do \
	  docker build -f deploy/Dockerfile --build-arg DAEMON=$$daemon \
	    --build-arg OUTRIGGER_COMMIT=$$(git rev-parse --short=12 HEAD) \
	    -t $(REGISTRY)outrigger/$$daemon:$(or $(TAG),0.1.0) .; done

.PHONY: release
release: ## Build the release binaries and print their sizes
	cargo build --release -p recommender -p updater -p admission
	@ls -l target/release/{recommender,updater,admission} | awk '{printf "%6.1f MB  %s\n", $$5 / 1e6, $$NF}'
