# The house's commands.  `make demo` shows the product, `make test` proves it, `make check` is the inner loop.
# Everything lands in .venv, build and the engine's cache; nothing needs root, Go, a cluster or an account.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast check view soak bench lock venv clean

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# A folder of tests says what they may use (docs/architecture.md): these need nothing but records ...
FAST := $(wildcard tests/unit tests/golden tests/docs)
# ... and these the engine, Monarch workers and the labs.
SLOW := $(wildcard tests/real tests/labs tests/e2e)
# ... and these kill it at every point, beside the slow ones.
CONTRACT := tests/contract

UV := uv==0.13.8

help:
	@echo 'make demo       two hosts on this machine, an actor call answered, all removed again'
	@echo 'make test       everything that must be true before a change lands'
	@echo 'make check      format, lint, types, imports, fast tests'
	@echo 'make test-fast  the fast tests alone'
	@echo 'make soak       deaths and races in full number; figures in bench/soak.jsonl'
	@echo 'make bench      every measurement of bench/'
	@echo 'make lock       requirements.lock anew; UPGRADE=1 takes newer versions'
	@echo 'make venv       .venv from the lock, this checkout installed in it'
	@echo 'make clean      remove .venv, build and caches; not the engine'

demo:
	@.ci/demo

venv: .venv/installed

# The stamps lie in .venv, so that removing it removes them.
.venv/locked: requirements.lock
	@if ! $(BIN)/python -c pass 2>/dev/null; then \
		for candidate in "$(PYTHON)" python3.13 python3.12 python3.11 python3.10; do \
			if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
				found=$$candidate; break; \
			fi; \
		done; \
		if [ -z "$${found:-}" ]; then \
			echo 'error: no Python 3.10 to 3.13 with venv was found; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; \
		fi; \
		"$$found" -m venv --clear .venv; \
	fi
	@$(PIP) install --require-hashes --requirement requirements.lock
	@touch $@

# setuptools is in the lock, so the build fetches nothing of its own.
.venv/installed: .venv/locked pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# mypy and import-linter read folders, not setuptools' map of them: here the three stand as they are imported.
view:
	@rm -rf build/view && mkdir -p build/view/monarch_infra
	@ln -s $(addprefix ../../../,$(wildcard monarch_infra/*) providers stacks) build/view/monarch_infra/

check: venv view
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd build/view && ../../$(BIN)/mypy --config-file ../../pyproject.toml
	cd build/view && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../pyproject.toml --no-cache --no-logo
	$(BIN)/python -m pytest $(FAST)

test-fast: venv
	$(BIN)/python -m pytest $(FAST)

test: venv
	@SLOW='$(SLOW)' CONTRACT='$(CONTRACT)' .ci/test

# Deaths at every point, races in full number; appends its figures to bench/soak.jsonl.
soak: venv
	MONARCH_INFRA_SOAK=1 $(BIN)/python -m pytest tests/contract tests/real

bench: venv
	@[ -n '$(wildcard bench/*.py)' ] || { echo 'error: bench/ holds no measurement' >&2; exit 1; }
	@for measurement in $(wildcard bench/*.py); do $(BIN)/python $$measurement; done

lock:
	@rm -rf build/uv && $(PYTHON) -m venv build/uv && build/uv/bin/pip --disable-pip-version-check --quiet install $(UV)
	UV_PYTHON_DOWNLOADS=never build/uv/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
		--extra dev --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
