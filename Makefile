# `make demo` and `make test` work from nothing but Python 3.11+, make and a package index: each prepares .venv itself.

.DEFAULT_GOAL := help
.PHONY: help demo test check test-interop bench docs clean

VENV    := .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check -qq
# The first of these that runs, is new enough, and can make a virtual environment. Override with `make PYTHON=...`.
PYTHON  ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
             $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
WORKERS ?= 2

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## train a network on real handwritten digits, save it, load it elsewhere, show what it reads
	@echo "tenon demo digits"
	@$(BIN)/tenon demo digits

test: $(VENV)/.test  ## the whole test suite, but for the comparison with other frameworks
	@echo "pytest, $(WORKERS) workers"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

check: $(VENV)/.test  ## before every commit, under a minute: subjects, lint, types, layers, one test a promise
	@echo "git: subjects of commits"
	@$(BIN)/python tools/check_subjects.py
	@echo "ruff: style and likely mistakes"
	@$(BIN)/ruff check --quiet .
	@echo "mypy: strict types of tenon/"
	@$(BIN)/mypy --no-error-summary
	@echo "pytest: layers, names, prose and promises"
	@$(BIN)/python -m pytest -q tests/test_layers.py tests/test_names.py tests/test_prose.py $(wildcard tests/test_tiny*.py)

test-interop: $(VENV)/.interop  ## compare with PyTorch and ONNX Runtime as judges
	@echo "pytest tests/interop"
	@$(BIN)/python -m pytest -q tests/interop

bench: $(VENV)/.test  ## every row of the table, beside the libraries that are installed in .venv: an hour with all of them
	@mkdir -p build
	@$(BIN)/python -m benchmarks.table --json build/table.json --chart build/table.png

docs: $(VENV)/.test  ## HTML documentation in docs/_build, warnings are errors
	@echo "sphinx: docs/ -> docs/_build/index.html"
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tenon tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted or failed install is done again; a changed pyproject.toml installs again.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Tenon needs Python 3.11 or newer with its venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml
	@echo "installing tenon, scikit-learn, rich and matplotlib into $(VENV) (once)"
	@$(PIP) install -e '.[data,ui]'
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml
	@echo "installing tenon and what its tests need into $(VENV) (once)"
	@$(PIP) install -e '.[dev,data,ui]'
	@touch $@

$(VENV)/.interop: $(VENV)/.test
	@echo "installing PyTorch (CPU), onnx and ONNX Runtime into $(VENV) (once)"
	@$(PIP) install -e '.[torch,onnx,onnxruntime]'
	@touch $@
