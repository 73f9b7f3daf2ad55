# `make` alone lists the targets. What a target needs is installed into .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV ?= .venv
PYTEST_ARGS ?=
# What `make one` runs.
T ?=
# Tests of one file stay together: some share a swarm of processes. In which order files run, tests/conftest.py says.
WORKERS ?= auto
BENCH_ARGS ?=
SIM_ARGS ?=
SBOM_ARGS ?=

# Stamps: installing runs again only when what it depends on has changed.
RUN_READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
BIN := $(VENV)/bin

.PHONY: help setup crawl test one check bench bench-smoke sim lock dist sbom clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

# With PYTHON=… of another version than the environment has, the environment is made anew.
VERSION_OF = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ifneq ($(PYTHON),)
ifneq ($(call VERSION_OF,$(PYTHON)),$(call VERSION_OF,$(BIN)/python))
$(RUN_READY) $(DEV_READY): another-version
endif
endif
.PHONY: another-version
another-version:

setup: $(DEV_READY) ## create .venv with the dhtcrawl command and the development tools
	@:

$(RUN_READY): pyproject.toml requirements.lock scripts/setup.sh
	@bash scripts/setup.sh $(VENV) requirements.lock
	@touch $@

# The lock file for development holds the other one.
$(DEV_READY): pyproject.toml requirements.lock requirements-dev.lock scripts/setup.sh
	@bash scripts/setup.sh $(VENV) requirements-dev.lock
	@touch $(RUN_READY) $@

# The addresses reach the shell through the environment, so that '&' and '?' in them stay what they are.
crawl: export URL := $(URL)
crawl: export OUT := $(OUT)
crawl: $(RUN_READY) ## crawl a small bundled site, or URL=… [NODES=…] [OUT=…]
	@if [ -n "$$URL" ]; then \
	  $(BIN)/dhtcrawl crawl "$$URL" $(if $(NODES),--nodes $(NODES)) $${OUT:+--out "$$OUT"}; \
	else \
	  $(BIN)/python scripts/demo.py $(if $(NODES),--nodes $(NODES)) $${OUT:+--out "$$OUT"}; \
	fi

test: $(DEV_READY) ## run the tests on WORKERS=… processes; PYTEST_ARGS=… is passed on
	@$(BIN)/python -m pytest -c pyproject.toml -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

one: $(DEV_READY) ## run one test, file or folder in this process: T=tests/…; PYTEST_ARGS=… is passed on
	@[ -n "$(T)" ] || { echo "make one: say which, like T=tests/test_keyspace.py" >&2; exit 2; }
	@$(BIN)/python -m pytest -c pyproject.toml $(PYTEST_ARGS) $(T)

check: check-style check-types check-imports check-structure ## format, lint, types, import contracts, structure
	@:

# By themselves, so that `make check -j2` runs two at a time.
.PHONY: check-style check-types check-imports check-structure check-tests
check-style: $(DEV_READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check

check-types: $(DEV_READY)
	$(BIN)/mypy

check-imports: $(DEV_READY)
	$(BIN)/lint-imports --no-logo

check-structure: $(DEV_READY)
	$(BIN)/python scripts/check_structure.py

# Whether every test can be imported; what is compiled for it here, no worker of pytest has to compile.
check-tests: $(DEV_READY)
	@$(BIN)/python -m pytest -c pyproject.toml --collect-only -q >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }

# A benchmark that is interrupted and ends in order would have the shell go on with the next one.
bench: $(DEV_READY) ## run every benchmark; BENCH_ARGS=--quick: all of it small
	@trap 'exit 130' INT; failed=0; for script in scripts/bench_*.py; do \
	  [ -e "$$script" ] || { echo "make bench: there are no benchmarks yet"; continue; }; \
	  echo "== $$script"; $(BIN)/python "$$script" $(BENCH_ARGS) || failed=1; \
	done; exit $$failed

bench-smoke: $(DEV_READY) ## whether a page has become much dearer, in half a minute
	@$(BIN)/python scripts/bench_smoke.py $(BENCH_ARGS)

sim: $(RUN_READY) ## simulate 1,000 random scenarios on a virtual clock; SIM_ARGS="--seed 7 …" for something else
	@$(BIN)/dhtcrawl sim $(if $(SIM_ARGS),$(SIM_ARGS),--random --seeds 1000)

lock: $(DEV_READY) ## pin the dependencies anew (with the oldest supported Python)
	@bash scripts/lock.sh $(VENV)

dist: $(RUN_READY) ## build the wheel and the source archive into dist/
	rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

sbom: $(RUN_READY) ## write what dhtcrawl is made of, as CycloneDX, to dhtcrawl.cdx.json
	@$(BIN)/python scripts/sbom.py $(SBOM_ARGS)

clean: ## remove .venv, caches and the demo's outputs
	rm -rf $(VENV) build dist crawl-demo crawl-demo.node .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
