# Every target installs what it needs. `make help` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
# Absolute, also for paths with spaces. From another folder, use `make --no-print-directory -C FOLDER TARGET`.
HERE := $(CURDIR)/
IN := cd "$(HERE)" &&
# The folder of the virtual environment. Tests with other versions use separate ones in build.
VENV := .venv
# The first Python of a list that works here. PATH may have a shim of pyenv's for one that it cannot run.
WANTED := Python 3.11, 3.12 or 3.13
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
FIRST = $(shell for p in $(1); do "$$p" -c '$(SUPPORTED)' 2>/dev/null && echo "$$p" && break; done)
ifndef PYTHON
# The one that the environment was made with, so that all targets agree on it, else the newest.
MADE_WITH := $(shell $(IN) [ -f "$(VENV)/imagestrata.json" ] && "$(VENV)/bin/python" -c 'import sys; print(sys._base_executable)' 2>/dev/null)
PYTHON := $(call FIRST,$(MADE_WITH) python3.13 python3.12 python3.11 python3 python)
endif
# It belongs to another Python. With it, ours would not find its own modules.
unexport PYTHONHOME
# Commands run as in the activated environment, so that they find spark-submit and torchrun. Modules are compiled once
# and not by each process, even if the environment sets PYTHONDONTWRITEBYTECODE.
RUN = $(IN) PATH="$(HERE)$(VENV)/bin:$$PATH" VIRTUAL_ENV="$(HERE)$(VENV)" PYTHONDONTWRITEBYTECODE=
CHECKED = $(IN) if ! "$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null; then \
	echo "error: wanted $(WANTED). Found: $$("$(or $(PYTHON),python3)" --version 2>/dev/null || echo "no $(or $(PYTHON),python3)"). Run 'make PYTHON=/path/to/python $(strip $(or $(MAKECMDGOALS),$@) $(filter-out PYTHON=%,$(MAKEOVERRIDES)))'." >&2; exit 1; fi;
SETUP = $(CHECKED) "$(PYTHON)" -m imagestrata.devstack.environment --folder "$(VENV)" $(if $(LOCK),--lock $(LOCK))
# To stop servers that were never started, nothing is installed.
IF_STARTED = $(IN) if [ ! -d build/cassandra ] && [ ! -d build/s3 ]; then echo "No server was started here."; exit; fi; $(SETUP) --extra spark || exit;
# Each process runs whole files of tests; tests/conftest.py gives the tests of a Spark session to one of them. `auto` is
# two processes more than cores; the end-to-end tests start many processes themselves.
PYTEST := -m pytest --max-worker-restart 1
DEMO := --extra spark --extra cuda120 --group demo
DEV := --extra spark --extra loader --extra cuda120 --extra train --extra s3 --extra shards --extra looks --extra onnx --extra lineage --extra metrics --extra lightning --extra notebooks --extra service --extra secure --group dev
MEASURED := schemas formats etl jobs loader training imagestrata
OURS := $(MEASURED) benchmarks

.PHONY: help demo train-demo setup test test-unit histories simulate fuzz drill test-e2e test-pythons test-spark3 test-lowest test-all coverage check docs notebooks format up down service s3-up s3-down status clean-data clean lock wheel inventory deps.zip bench-demo bench-features bench-ingest bench-loader bench-order bench-server bench-service bench-shards bench-splits bench-tls bench-train

## First steps

help:  ## list the targets
	@echo "usage: make TARGET [VARIABLE=value ...]"; sed -nE -e 's/^## (.*)/\n\1:/p' -e 's/^([a-zA-Z][a-zA-Z0-9.-]*):.*## (.*)/  \1\t\2/p' "$(HERE)Makefile" | expand -t 16

DEMO_OPTIONS = $(if $(DATA),--data "$(DATA)") $(if $(PORT),--port "$(PORT)")

demo:  ## run everything on real images, from the set-up to a report (DATA=/my/tree, PORT=9042)
	@$(CHECKED) "$(PYTHON)" -c 'from imagestrata.demo.command import parse_args; parse_args()' $(DEMO_OPTIONS)
	@$(SETUP) $(DEMO)
	@$(RUN) imagestrata demo $(DEMO_OPTIONS)

train-demo:  ## train a small network on the demo's images (installs torch)
	@$(SETUP) $(DEMO) --extra train
	@$(RUN) python -m imagestrata.demo.train

## Development

setup:  ## install the developers' environment in .venv, the jars and Spark's configuration
	@$(SETUP) $(DEV)

test: setup  ## run the unit and integration tests
	@$(RUN) imagestrata s3-build >/dev/null
	@$(RUN) python $(PYTEST) -n auto tests/unit tests/integration

test-unit: setup  ## run the tests that need no services
	@$(RUN) python $(PYTEST) -n auto tests/unit $(LESS)

histories: setup  ## play 100,000 random histories of tables, with kills and runs at once; 10 minutes (COUNT=1000)
	@$(RUN) python -m tests.support.histories $(if $(COUNT),--count $(COUNT))

simulate: setup  ## load 100,000 epochs from a simulated cluster and shards, and push to a service, in bad weather, on virtual time; 20 minutes (COUNT=1000 of each kind)
	@$(RUN) python -m tests.support.simulation $(if $(COUNT),--count $(COUNT))

drill: setup  ## kill, fill and break servers while jobs run, and judge the results (SEED=0, ROUNDS=1, ONLY=text, SECURE=1 with TLS; TABLE=file and UNTIL=N: see docs/reliability.md)
	@$(RUN) python -m tests.support.drills $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only "$(ONLY)") $(if $(SECURE),--secure) $(if $(TABLE),--table "$(TABLE)") $(if $(UNTIL),--until $(UNTIL))

fuzz: setup  ## read damaged files of every format for 30 minutes (MINUTES=5)
	@$(RUN) python -m tests.support.fuzzing $(if $(MINUTES),--minutes $(MINUTES))

test-e2e: setup  ## run the end-to-end tests: README, trainings, browser, clusters, kills (ALL=1: also the slow ones)
	@$(RUN) imagestrata s3-build >/dev/null
	@$(RUN) imagestrata chromium >/dev/null || true  # the tests of the page then say what is missing
	@$(RUN) python -m tests.support.spark_start
	@$(RUN) python $(PYTEST) -n $$(($$(nproc) + 1)) tests/e2e $(if $(ALL),,-m "not slow")

test-lowest: setup  ## run tests with the lowest versions that pyproject.toml allows, in a separate environment (TESTS=folders or files)
	@$(RUN) imagestrata s3-build >/dev/null
	@$(RUN) python -m imagestrata.devstack.packaging lowest $(TESTS)

test-pythons:  ## run the unit tests with each other Python on PATH or in pyenv, each in a separate environment (PYTHONS=python3.13)
	@$(CHECKED) mine=$$("$(PYTHON)" -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	for v in $(or $(PYTHONS),python3.11 python3.12 python3.13); do [ "$$v" != "$$mine" ] || continue; found=; \
		for p in "$$v" "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$${v#python}.*/bin/$$v; do \
			if "$$p" -c '$(SUPPORTED)' 2>/dev/null; then found=$$p; break; fi; done; \
		echo "== $$v: $${found:-none found, skipped}"; [ -z "$$found" ] || \
		$(MAKE) --no-print-directory test-unit PYTHON="$$found" VENV="build/$$v/.venv" LESS='$(SAME)' || exit 1; done

# What no Python changes: texts and the form of the code, whether tests find faults that are planted, what kills and runs
# at once leave on disk, and most examples of property tests.
SAME = --hypothesis-profile few --ignore tests/unit/docs --ignore tests/unit/deploy --ignore tests/unit/etl/writing \
	--ignore tests/unit/formats/test_durability.py --ignore-glob "tests/unit/test_*.py" -k "not planted and not two_runs_at_once"

# Spark 3.5 supports no later Python.
test-spark3: WANTED = Python 3.11
test-spark3: SUPPORTED = import sys; sys.exit(sys.version_info[:2] != (3, 11))
test-spark3: PYTHON = $(call FIRST,python3.11)
test-spark3: VENV = build/spark3/.venv
test-spark3: LOCK = spark3.lock
test-spark3: setup  ## run the integration tests of the jobs with Spark 3.5 on Python 3.11, in a separate environment (TESTS=folders or files)
	@$(RUN) python $(PYTEST) $(or $(TESTS),tests/integration/etl tests/integration/jobs)

coverage: setup  ## print the share of lines and branches of each package that `make test` runs (TESTS=folders or files)
	@$(RUN) imagestrata s3-build >/dev/null
	@$(IN) rm -rf build/coverage && mkdir -p build/coverage
	@$(RUN) python -m coverage run $(PYTEST) -n logical $(or $(TESTS),tests/unit tests/integration)
	@$(RUN) python -m coverage combine --quiet 2>/dev/null && rm -f build/coverage/data.*  # of processes that were killed while they wrote
	@$(RUN) bash -c 'for p in $(MEASURED); do echo "$$p $$(python -m coverage report --format=total --precision=1 --include="$$p/*" | grep -E "^[0-9.]+$$" || echo none) %"; done'

docs: setup  ## build the documentation as a site, build/docs/index.html
	@$(RUN) python -m sphinx -E -W --keep-going -n -q docs build/docs
	@echo "$(HERE)build/docs/index.html"

notebooks: setup  ## run the notebooks and store them with their outputs
	@$(RUN) python -m tests.support.notebooks

test-all: test  ## run all tests
	@$(MAKE) --no-print-directory -C "$(HERE)" test-e2e ALL=1

check: setup  ## check lint, format, docstrings and types
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) pydoclint --quiet $(MEASURED)
	@$(RUN) mypy $(OURS)

format: setup  ## format the code and apply automatic fixes
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

## Servers

up:  ## start the embedded Cassandra (PORT=9042, NODES=1, SECURE=1 with TLS and roles)
	@$(SETUP) --extra spark $(if $(SECURE),--extra secure)
	@$(RUN) imagestrata up $(if $(PORT),--port "$(PORT)") --nodes $(or $(NODES),1) $(if $(SECURE),--secure)

down:  ## stop it and keep its data
	@$(IF_STARTED) $(RUN) imagestrata down

service:  ## serve datasets over REST at http://127.0.0.1:8080 (ROOT=build/service/root, PORT=8080)
	@$(SETUP) --extra service
	@$(RUN) imagestrata serve --root "$(or $(ROOT),build/service/root)" --port $(or $(PORT),8080)

s3-up:  ## start the embedded S3 server (PORT=7070, BUCKET=name); the first start on a machine takes two minutes
	@$(SETUP) --extra spark --extra s3
	@$(RUN) imagestrata s3-up $(if $(PORT),--port "$(PORT)") $(if $(BUCKET),--bucket "$(BUCKET)")

s3-down:  ## stop it and keep its buckets
	@$(IF_STARTED) $(RUN) imagestrata s3-down

status:  ## show whether Cassandra and the S3 server are running
	@$(IF_STARTED) { $(RUN) imagestrata status; $(RUN) imagestrata s3-status; true; }

clean-data:  ## stop both and delete their data
	@$(IF_STARTED) { $(RUN) imagestrata clean-data && imagestrata s3-clean-data; }

## Packages

deps.zip:  ## write build/deps.zip for spark-submit --py-files on your cluster
	@$(SETUP)
	@$(RUN) python -m imagestrata.devstack.packaging archive build/deps.zip

wheel:  ## build build/dist/imagestrata-VERSION-py3-none-any.whl
	@$(SETUP)
	@$(RUN) python -m imagestrata.devstack.packaging wheel

inventory: setup  ## write an SBOM, a list of licenses and an audit of the installed packages to build/inventory
	@$(RUN) python -m imagestrata.devstack.packaging inventory

# QUICK=1: less of everything. ONLY=1,memory: some rows, by number or by a regular expression over their texts.
BENCH = $(RUN) python -m benchmarks.$(@:bench-%=%) $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

## Benchmarks (QUICK=1: less of everything; ONLY=1,memory: some rows)

bench-demo: setup  ## time and memory of the demo from a fresh clone with empty caches (QUICK=1: with your caches)
	@$(BENCH)

bench-features: setup  ## computing, storing and reading features compared with plain ways; as-of and point-in-time joins; 30 minutes (QUICK=1: 4)
	@$(BENCH)

bench-ingest: setup  ## ingest compared with other ways to write, its memory, listing and resuming; 23 minutes (QUICK=1: 4)
	@$(BENCH)

bench-loader: setup  ## the loader compared with a bare client, files and torch's workers, near and far; 30 minutes (QUICK=1: 4)
	@$(BENCH)

bench-order: setup  ## how exact orders, mixtures and crops by key are, what they cost, and what balance does to a training; 29 minutes (QUICK=1: 8)
	@$(BENCH)

bench-service: setup  ## the dataset service compared with cp and nginx, many clients, killed uploads; 17 minutes (QUICK=1: 2)
	@$(BENCH)

bench-shards: setup  ## shards on S3 compared with webdataset, MosaicML streaming and LitData; 30 minutes (QUICK=1: 4)
	@$(BENCH)

bench-splits: setup  ## splits compared with plain Spark and pandas, up to 100 million rows; 1 hour (QUICK=1: 5 minutes)
	@$(BENCH)

bench-tls: setup  ## reads over TLS with each client, near and far; 6 minutes (QUICK=1: 2)
	@$(BENCH)

bench-train: setup  ## training from Cassandra compared with files, on two CPU ranks; 30 minutes (QUICK=1: 3)
	@$(BENCH)

bench-server: setup  ## the effect of server settings on writing pictures; 11 minutes (QUICK=1: fewer)
	@$(BENCH)

## Maintenance

lock:  ## resolve the dependencies again and write the lock files
	@$(SETUP)
	@$(RUN) python -m imagestrata.devstack.packaging locks

clean:  ## stop the servers, delete their data, and remove the environment and everything that was built (shared downloads stay)
	@$(IN) if [ -x .venv/bin/python ] && [ -d build/cassandra ]; then .venv/bin/imagestrata clean-data; fi
	@$(IN) if [ -x .venv/bin/python ] && [ -d build/s3 ]; then .venv/bin/imagestrata s3-clean-data; fi
	@$(IN) rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
