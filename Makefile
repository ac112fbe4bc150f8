PYTHON ?= python3
BIN := .venv/bin
RUNS := .venv/.runs
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test browser bench flower lint setup clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(RUNS)  ## set up what a study needs, run the quickstart study, say where the page is
	$(BIN)/fedpareto run examples/quickstart.toml

test: $(READY) browser  ## set up, run the tests in two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

browser:  # for the tests of the report page, where Debian's package can be had; they are skipped without one
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || true

bench: $(READY) .venv-bench/.ready  ## set up with peers, run the benchmarks (data: FEDPARETO_DATA)
	@for file in benchmarks/*.py; do echo "== $$file"; .venv-bench/bin/python $$file || exit 1; done

flower: .venv-flower/.ready  ## set up an environment with Flower: `.venv-flower/bin/fedpareto deploy`

# Flower wants rich and packaging older than ours are pinned, so it has an environment of its own
.venv-flower/.ready: pyproject.toml
	test -x .venv-flower/bin/python || $(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --editable '.[flower,encryption,lattice]'
	@touch $@

.venv-bench/.ready: pyproject.toml
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check 'setuptools<81' wheel hatchling setuptools_scm
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation torch==2.13.0 'flwr[simulation]' pfl
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --editable '.[bench]'
	@touch $@

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(READY)  ## create the virtual environment and install the package with pinned dependencies

$(RUNS): pyproject.toml constraints.txt hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement hashes.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[figures]'
	@touch $@

$(READY): $(RUNS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:  ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis fedpareto.egg-info
