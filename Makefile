# Targets work from a fresh clone; `make help` lists them. BIMETAL_PYTHON names the Python to build .venv with.
BIMETAL_PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Two processes of one thread each: what two cores and 4 GiB of memory carry. A file stays in one process.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile
CORE := .venv/.core-installed
DEV := .venv/.dev-installed

.DEFAULT_GOAL := help
.PHONY: help install format lint types test test-fast test-soak golden-update docs docs-serve demo check

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CORE): pyproject.toml constraints.txt
	@$(BIMETAL_PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "bimetal needs Python 3.11, 3.12 or 3.13; found " + sys.version.split()[0] + ". Name another: make BIMETAL_PYTHON=python3.12")'
	@echo "Setting up .venv (the first time takes a few minutes)"; $(BIMETAL_PYTHON) -m venv .venv
	@$(PIP) "$$(grep ^torch== constraints.txt)" && $(PIP) --editable ".[plots]" && touch $@

$(DEV): $(CORE)
	@echo "Adding the development environment to .venv"; $(PIP) --editable ".[dev,gym,lora,data,gguf,plots,docs]" && touch $@

install: $(DEV) ## .venv with everything development needs, and the commit hooks
	@if [ -d .git ] && [ -z "$$CI" ]; then $(BIN)/pre-commit install >/dev/null; fi

demo: $(CORE) ## the main job: train the embedded model, print before and after (needs no compiler)
	$(BIN)/bimetal quickstart

format: $(DEV) ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

lint: $(DEV) ## ruff, import layers, file sizes, tolerances
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/python scripts/check_style.py

types: $(DEV) ## pyright, standard everywhere and strict where the house style asks for it
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python --project pyright-strict.json

test: $(DEV) ## every test but the soak tests (needs a C compiler once, for pycosat)
	$(PYTEST) -m "not soak"

test-fast: $(DEV) ## the tests that take seconds
	$(PYTEST) -m "not soak and not slow"

test-soak: $(DEV) ## the long tests: every method, every fault
	$(PYTEST) -m soak

golden-update: $(DEV) ## write the recorded trajectories anew, after a change that moves numbers by design
	BIMETAL_GOLDEN=update OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/golden

docs: $(DEV) ## strict build of the documentation, without network
	$(BIN)/python scripts/generate_docs.py --check && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(DEV) ## the documentation on this machine, rebuilt as it changes
	$(BIN)/python scripts/generate_docs.py && $(BIN)/mkdocs serve

check: lint types docs test ## what CI runs before test-soak
