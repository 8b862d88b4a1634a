# Everything is installed into .venv by the targets themselves; nothing else on the machine is touched.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The first Python on PATH that is new enough; override with `make PYTHON=/path/to/python3.12 ...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The server that the tests of Azure talk to; the demo needs none.
AZURITE := $(VENV)/azurite/package-lock.json
# The MariaDB server of the tests of MySQL catalogs.
MARIADB := $(VENV)/mariadb/unpacked
# A second DuckDB, the newest, for the tests of queries; the first one has the ducklake extension.
DUCKDB2 := $(VENV)/duckdb-2/duckdb/__init__.py
# What benchmarks compare with, installed when they first run.
PEERS := $(VENV)/.peers
EXTRAS := demo,dev
# Two workers, each with servers and a Spark session of its own; they take a file at a time, so that what a file shares is made once, and
# in the order of the folders, whose last ones are quick. (xdist's groups have no effect with pytest 9.2, which keeps node ids elsewhere.)
PYTEST_FLAGS ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder
# What `make test-all` runs once more, on lakes of the version that new lakes do not have yet.
ON_NEXT_VERSION := $(addprefix tests/behaviour/,row_changes scan types sql foreign_files)
# More for pytest, such as --durations=30.
PYTEST_MORE ?=

# Spark finds its Python workers on PATH, and its Java through JAVA_HOME (written by .ci/java_home.py where Java 17+ is missing).
export PATH := $(BIN):$(PATH)
export PYSPARK_PYTHON := $(BIN)/python
export SPARK_LOCAL_IP ?= 127.0.0.1
# The tests, Dagster and Spark start many processes: what a module compiles to is kept, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE
JAVA = home="$$("$(BIN)/python" .ci/java_home.py "$(VENV)/java_home")"; if [ -n "$$home" ]; then export JAVA_HOME="$$home"; fi;

.PHONY: help install demo ui test test-fast test-all coverage pictures bench docs release-check lint types format browser clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml .ci/constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed; install it, or say where it is: make PYTHON=..." >&2; exit 1; }
	@[ -x "$(BIN)/python" ] || "$(PYTHON)" -m venv "$(VENV)"
	@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || "$(BIN)/python" -m ensurepip --upgrade >/dev/null
	@echo "Installing into .venv (a few minutes the first time) ..."
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt --editable ".[$(EXTRAS)]"
	@touch "$@"

$(AZURITE): $(READY) .ci/azurite/package-lock.json
	@"$(BIN)/python" .ci/azurite.py && touch "$@" || echo "Azurite could not be installed from npm: the tests of Azure will fail." >&2

$(MARIADB): $(READY) .ci/mariadb.py
	@"$(BIN)/python" .ci/mariadb.py && mkdir -p "$(@D)" && touch "$@" || echo "MariaDB could not be unpacked: the tests of MySQL catalogs will fail." >&2

$(DUCKDB2): $(READY) .ci/duckdb-2.txt
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$(VENV)/duckdb-2" -r .ci/duckdb-2.txt
	@touch "$@"

install: $(READY) $(AZURITE) $(MARIADB) $(DUCKDB2)  ## Make .venv with everything in it

demo: $(READY)  ## Run the demo: flights from raw files to tables, backfills, checks and maintenance, in this terminal
	@$(JAVA) "$(BIN)/python" -m examples.flights

ui: $(READY)  ## Open the demo project in Dagster's web interface (http://127.0.0.1:3000)
	@mkdir -p .demo/dagster_home
	@$(JAVA) DAGSTER_HOME="$(CURDIR)/.demo/dagster_home" "$(BIN)/dagster" dev --workspace workspace.yaml --host 127.0.0.1 --port 3000

test: $(READY) $(AZURITE) $(MARIADB) $(DUCKDB2)  ## Run the tests, without the slow ones
	@$(JAVA) "$(BIN)/python" -m pytest -m "not slow" $(PYTEST_FLAGS) $(PYTEST_MORE)

test-fast: $(READY) $(AZURITE) $(MARIADB) $(DUCKDB2)  ## Run the unit and behaviour tests that do not start Spark
	@"$(BIN)/python" -m pytest -m "not slow and not spark" $(PYTEST_FLAGS) $(PYTEST_MORE) tests/unit tests/behaviour tests/project ducklake_core

test-all: $(READY) $(AZURITE) $(MARIADB) $(DUCKDB2) browser  ## Run all tests, slow ones and the browser too
	@$(JAVA) "$(BIN)/python" -m pytest -m "slow or not slow" $(PYTEST_FLAGS) $(PYTEST_MORE)
	@"$(BIN)/python" -m pytest -m "not slow and not spark" --lake-version 1.1 $(PYTEST_FLAGS) $(PYTEST_MORE) $(ON_NEXT_VERSION)

coverage: $(READY) $(AZURITE) $(MARIADB) $(DUCKDB2)  ## Run the tests as `make test` does, and print the lines and branches that they do not reach
	@$(JAVA) "$(BIN)/python" -m pytest -m "not slow" --cov --cov-report=term $(PYTEST_FLAGS) $(PYTEST_MORE)

pictures: $(READY) browser  ## Draw Dagster's pages of a lake by Chromium, into build/pictures
	@$(JAVA) "$(BIN)/python" -m pytest -m slow -p no:xdist tests/dagster/deployment/test_pages.py

$(PEERS): $(READY)
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt --editable ".[$(EXTRAS),bench]"
	@touch "$@"

bench: $(PEERS)  ## Run the benchmarks, each against its named baseline, and print one table; BENCH="bench_peers bench_commit" runs some
	@$(JAVA) "$(BIN)/python" -m benchmarks $(BENCH)

docs: $(READY)  ## Build the documentation as a site, strictly, with the API reference: build/docs/index.html
	@"$(BIN)/python" .ci/site.py build/docs

release-check: $(READY)  ## Try the built packages in environments of their own, and the tests with the lowest and newest versions
	@$(JAVA) "$(BIN)/python" .ci/release_check.py

lint: $(READY)  ## Style, spelling and import contracts
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/codespell"
	@"$(BIN)/lint-imports"

types: $(READY)  ## Static types
	@"$(BIN)/mypy"

format: $(READY)  ## Format, and fix what can be fixed mechanically
	@"$(BIN)/ruff" check --fix .
	@"$(BIN)/ruff" format .

browser:  ## Install Chromium for the test of the web interface, where that is possible (Debian, as root)
	@if [ -x /usr/bin/chromium ]; then echo "Chromium is there."; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
		|| echo "Chromium could not be installed: the tests of pages will fail." >&2; \
	else echo "Chromium is not installed: the tests of pages will fail." >&2; fi

clean:  ## Remove everything that was made here, .venv too
	rm -rf .venv .demo .benchmarks .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
