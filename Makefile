# Everything a developer, a newcomer or CI runs. Needs python3 (3.11 or newer) and GNU make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
CODE := collector api alerts simulator dashboards tests

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of Pythons: without compiled files each would compile our sources anew, which
# takes seconds. Images set this variable to keep layers small.
unexport PYTHONDONTWRITEBYTECODE

# More words for pytest: make test ARGS="-k spool -x"
ARGS ?=
# How long `make soak` lasts.
HOURS ?= 2
# Processes that share the tests, whole files each. Every one may start services and peers of its
# own, and wants 2 GiB. Three keep two cores busy, as tests also wait.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help
help: ## list the targets
	@echo "Fabricscope. Start with: make demo, make test"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: python-ok
python-ok:
	@command -v $(PYTHON) >/dev/null || { echo "setup: there is no $(PYTHON) here; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $$($(PYTHON) --version 2>&1) is too old; Fabricscope needs 3.11 or newer. Try: make PYTHON=python3.12 setup" >&2; exit 1; }

.PHONY: setup
setup: python-ok ## prepare .venv (with .venv/bin/fabricscope) and nothing else
	@$(PYTHON) -m tests.tools.setup_venv

.PHONY: page
page: python-ok ## build the built-in page into dashboards/page; needs no Node on this machine
	@$(PYTHON) -m tests.tools.setup_page

.PHONY: demo
demo: setup ## 256 simulated GPUs, real agents, the real service: ARGS="--fault slow_nic"
	@$(PYTHON) -m tests.tools.setup_page || echo "demo: goes on without the built-in page" >&2
	@$(BIN)/fabricscope demo $(ARGS)

.PHONY: score
score: setup ## known faults on simulated clusters, and what is found of them, into build/
	@$(BIN)/fabricscope score $(ARGS)

.PHONY: check
check: setup ## formatting, lint, types, import contracts
	@echo "check: ruff format"; $(BIN)/ruff format --check --quiet . || { echo "check: run $(BIN)/ruff format" >&2; exit 1; }
	@echo "check: ruff"; $(BIN)/ruff check --quiet .
	@echo "check: mypy"; $(BIN)/mypy
	@echo "check: import contracts"; $(BIN)/lint-imports --no-logo

.PHONY: check-page
check-page: page ## the built-in page's types, lint and unit tests
	@echo "check: page"; $(PYTHON) -m tests.tools.setup_page check

.PHONY: test
test: check check-page pytest ## everything that must be green: checks, tests, a part of the long proofs

.PHONY: test-all
test-all: export TEST_CUT := all
test-all: check check-page pytest score ## the same with the long proofs in full, for hours; CI takes a part in turn

.PHONY: pytest
pytest: setup peers page
	@$(PYTEST) $(ARGS)

.PHONY: test-fast
test-fast: setup ## tests that need neither peers nor patience
	@$(PYTEST) -m "not slow and not peer" $(ARGS)

.PHONY: e2e
e2e: setup peers ## real processes on loopback, from agent to answer
	@$(BIN)/python -m pytest tests/e2e $(ARGS)

.PHONY: chaos
chaos: export TEST_CUT := all
chaos: setup peers ## kills, stops, full disks, wrong clocks, cut networks: nothing lost, one page, minutes
	@$(BIN)/python -m pytest tests/chaos $(ARGS)

.PHONY: bench
bench: setup peers ## measure us and the peers in one go, into build/bench/
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: soak
soak: setup ## the service under steady load for HOURS (2): memory, descriptors, parts, into build/soak/
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

.PHONY: golden
golden: export TEST_CUT := all
golden: setup ## rewrite the golden files; read the diff before you commit it
	@$(BIN)/python -m pytest --update-golden $(ARGS)

.PHONY: docs
docs: setup ## rewrite the generated tables in the documentation
	@$(BIN)/python -m tests.tools.docs_tables --write

.PHONY: peers
peers: python-ok ## unpack the real programs that we test against under .peers/
	@$(PYTHON) -m tests.tools.peers unpack

.PHONY: peers-system
peers-system: python-ok ## as root: install the peers that cannot run unpacked
	@$(PYTHON) -m tests.tools.peers system

.PHONY: lock
lock: python-ok ## resolve the newest versions into the lock files
	@$(PYTHON) -m tests.tools.setup_venv lock

.PHONY: audit
audit: setup ## compare the locks with known vulnerabilities; needs PyPI's own JSON interface
	@for lock in requirements-dev.lock requirements-node.lock deploy/docker/*.lock; do echo "audit: $$lock"; \
	  $(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r "$$lock"; done

.PHONY: wheel
wheel: setup page ## build the wheel, with the built-in page, into dist/
	@rm -rf build/lib build/bdist.*  # setuptools would ship what an earlier build left there
	@mkdir -p build; $(BIN)/python -m build --wheel --no-isolation --outdir dist . >build/wheel.log 2>&1 \
	  || { cat build/wheel.log; exit 1; }
	@ls dist/*.whl

.PHONY: images
images: wheel ## build both images without a registry, start them, say what they cost; needs root, buildah, debootstrap
	@$(PYTHON) deploy/docker/images.py $(ARGS)

.PHONY: grafana
grafana: export TEST_CUT := all
grafana: setup ## our boards through Grafana's own libraries from npm (180 MB, fetched once)
	@$(BIN)/python -m tests.tools.grafana_libraries
	@$(BIN)/python -m pytest tests/conformance/test_grafana_libraries.py $(ARGS)

.PHONY: dashboards
dashboards: setup ## write the Grafana dashboards into build/release/dashboards
	@rm -rf build/release/dashboards
	@$(BIN)/fabricscope dashboards export --out build/release/dashboards

.PHONY: rules
rules: setup ## write the rule files for Prometheus into build/release/rules
	@rm -rf build/release/rules
	@$(BIN)/fabricscope rules build --out build/release/rules

.PHONY: release
release: wheel dashboards rules ## the wheel, and an archive of dashboards and rules, into dist/
	@tar --sort=name --owner=0 --group=0 -C build/release -czf dist/fabricscope-files.tar.gz dashboards rules
	@ls dist/fabricscope-files.tar.gz

.PHONY: clean
clean: ## remove what was built and the caches; .venv, .venv-node and .peers stay
	@rm -rf build dist dashboards/page *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: removed build, dist and caches; to start afresh: rm -rf .venv .venv-node .peers dashboards/web/node_modules"
