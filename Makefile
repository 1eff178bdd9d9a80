# Everything a person or CI does with this repository. `make` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLUSTER ?= $(PYTHON) hack/cluster
LAYERS := unit contract integration chart e2e
REPORTS := out/tests
PACKAGES := $(foreach folder,api kube store clients process operator runtime gateway cli,$(wildcard $(folder)/runyard_*))
export PYTHON

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Start here

demo: $(VENV)/.embedded ## Start Runyard on a free port, stream one run of examples/hello, end (needs only Python 3.11)
	@$(BIN)/python hack/demo.py

test: $(VENV)/.dev cluster-deps ## Run every test: unit, contract, integration, chart, e2e (as root it installs what they need)
	@rm -rf $(REPORTS)
	@$(CLUSTER) build --background
	@failed=0; \
	for layer in $(LAYERS); do $(MAKE) --no-print-directory test-$$layer || failed=1; done; \
	$(BIN)/python hack/test_counts.py $(REPORTS) $(LAYERS) || failed=1; \
	exit $$failed

venv: $(VENV)/.dev ## Make .venv with everything for development

##@ Tests by layer

test-unit: $(VENV)/.dev ## Decisions, without I/O (under a minute)
	@$(call pytest,unit,tests/unit)

test-contract: $(VENV)/.dev binaries ## Store, CRDs and wire formats on a real PostgreSQL and a real API server
	@$(call pytest,contract,tests/contract)

test-integration: $(VENV)/.dev binaries ## The services as processes
	@$(call pytest,integration,tests/integration)

test-chart: $(VENV)/.dev binaries ## What the Helm chart renders
	@$(call pytest,chart,tests/chart)

test-e2e: $(VENV)/.dev binaries ## The installed chart on the native cluster, and `runyard dev` (root)
	@$(call pytest,e2e,tests/cluster tests/e2e)

fuzz: $(VENV)/.dev ## Fuzz every route of the gateway for longer than the tests do (FUZZ_EXAMPLES=200 FUZZ_SEED=1)
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),200) FUZZ_SEED=$(or $(FUZZ_SEED),1) $(BIN)/pytest -q tests/integration/gateway/test_fuzz.py

bench: $(VENV)/.dev binaries ## Measure latency and throughput, beside the goals
	$(BIN)/python -m hack.bench $(BENCH)

##@ Code

lint: lint-code lint-chart ## Check everything that is checked without running it

lint-code: $(VENV)/.dev ## Format, ruff, mypy --strict, layers, generated CRDs, locks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPYPATH=tests/graphs $(BIN)/mypy $(PACKAGES) tests hack/*.py hack/bench
	MYPYPATH=examples/hello $(BIN)/mypy examples/hello
	MYPYPATH=hack/cluster $(BIN)/mypy hack/cluster/runyard_cluster
	MYPYPATH=hack/images $(BIN)/mypy hack/images/runyard_images
	$(BIN)/lint-imports
	$(BIN)/python hack/generate_crds.py --check
	$(BIN)/python hack/generate_values.py --check
	$(BIN)/python hack/generate_values.py --check
	hack/check_locks.sh

lint-chart: ## Lint the Helm chart
	@helm=$$(command -v helm || echo "$$($(CLUSTER) build)/helm") && "$$helm" lint --strict charts/runyard

format: $(VENV)/.dev ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

hooks: $(VENV)/.dev ## Check each commit and push in this clone (.pre-commit-config.yaml)
	$(BIN)/pre-commit install

crds: $(VENV)/.dev ## Generate crds/ from the models
	$(BIN)/python hack/generate_crds.py

values: $(VENV)/.dev ## Generate docs/values.md from the chart's values schema
	$(BIN)/python hack/generate_values.py

lock: ## Resolve requirements.lock and requirements/*.lock (LOCK_ARGS=--upgrade for newer versions)
	hack/lock.sh

images: ## Build the container images into out/images
	$(PYTHON) hack/images build

##@ Cluster

cluster-up: binaries ## Start the native cluster with two nodes (root)
	$(CLUSTER) up --nodes 2

cluster-down: ## End the native cluster
	$(CLUSTER) down

cluster-deps: ## Install the system packages that cluster and tests need; without root: name them and stop
	@if [ "$$(id -u)" = 0 ]; then $(CLUSTER) deps --install; else $(CLUSTER) deps --check; fi

binaries: ## Build kubectl, helm and the cluster's binaries, once (cold: about 11 minutes on two cores)
	@$(CLUSTER) build >/dev/null

##@ Other

clean: ## Remove what was made here: environment, caches, results
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call pytest,LAYER,FOLDERS): tests with kubectl and helm on PATH; the report is what `make test` counts.
define pytest
mkdir -p $(REPORTS) && printf '\n== %s\n' $(1) && \
PATH="$$($(CLUSTER) bin 2>/dev/null || true):$$PATH" $(BIN)/pytest -q --junitxml=$(REPORTS)/$(1).xml $(2)
endef

$(VENV)/.dev: requirements.lock pyproject.toml hack/venv.sh
	@hack/venv.sh requirements.lock $@
	@touch $(VENV)/.embedded

$(VENV)/.embedded: requirements/embedded.lock pyproject.toml hack/venv.sh
	@hack/venv.sh requirements/embedded.lock $@

.PHONY: help demo test venv bench lint lint-code lint-chart format hooks crds values lock images clean binaries
.PHONY: cluster-up cluster-down cluster-deps $(addprefix test-,$(LAYERS))
