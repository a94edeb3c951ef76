# Every target brings what it needs. `make help` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
# Absolute, for paths with spaces too; from elsewhere say `make --no-print-directory -C FOLDER TARGET`.
HERE := $(CURDIR)/
PYTHON ?= $(shell for p in python3.11 python3 python; do "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo "$$p" && break; done)
IN := cd "$(HERE)" &&
# Commands run as in the activated environment: what they start (spark-submit, torchrun) is found. Modules are compiled
# once, not by each process, also where the environment says otherwise.
RUN := $(IN) PATH="$(HERE).venv/bin:$$PATH" VIRTUAL_ENV="$(HERE).venv" PYTHONDONTWRITEBYTECODE=
SETUP = $(IN) if [ -z "$(PYTHON)" ]; then echo "error: wanted Python 3.11 on PATH. Found: none. Say 'make PYTHON=/path/to/python3.11 $@'." >&2; exit 1; fi; \
	"$(PYTHON)" -m imagestrata.devstack.environment
# A process for each core. Each takes whole files of tests; tests/conftest.py has one take all that need Spark.
PYTEST := -m pytest -n logical --max-worker-restart 1
DEMO := --extra spark --extra cuda120 --group demo
DEV := --extra spark --extra loader --extra cuda120 --extra train --extra s3 --extra shards --extra looks --extra metrics --extra lightning --extra notebooks --extra service --group dev
MEASURED := schemas formats etl jobs loader training imagestrata
OURS := $(MEASURED) benchmarks
# Their docstrings agree with their signatures.
DOCUMENTED := $(filter-out loader,$(MEASURED))

.PHONY: help demo train-demo setup test test-unit test-e2e test-all coverage check docs format up down service s3-up s3-down status clean-data clean lock deps.zip bench-demo bench-ingest bench-loader bench-server bench-service bench-shards bench-splits bench-tls bench-train

help:  ## list the targets
	@echo "make TARGET, where TARGET is:"; sed -nE 's/^([a-zA-Z][a-zA-Z0-9.-]*):.*## (.*)/  \1\t\2/p' "$(HERE)Makefile" | expand -t 16

demo:  ## everything on real pictures: set-up, Cassandra, ingest, split, two epochs, a report (DATA=/my/tree, PORT=9042)
	@$(SETUP) $(DEMO)
	@$(RUN) imagestrata demo $(if $(DATA),--data "$(DATA)") $(if $(PORT),--port "$(PORT)")

train-demo:  ## train a small network from the demo's batches (brings torch)
	@$(SETUP) $(DEMO) --extra train
	@$(RUN) python -m imagestrata.demo.train

setup:  ## the environment of developers in .venv, jars, Spark's configuration
	@$(SETUP) $(DEV)

test: setup  ## the unit and integration tests
	@$(RUN) imagestrata s3-build >/dev/null
	@$(RUN) python $(PYTEST) tests/unit tests/integration

test-unit: setup  ## the tests that need no services
	@$(RUN) python $(PYTEST) tests/unit

test-e2e: setup  ## the README as a script, trainings, the browser, clusters, kills (ALL=1: also those that take minutes each)
	@$(RUN) imagestrata s3-build >/dev/null
	@$(RUN) imagestrata chromium >/dev/null || true  # then the tests of the page say what they lack
	@$(RUN) python $(PYTEST) tests/e2e $(if $(ALL),,-m "not slow")

coverage: setup  ## the share of lines and branches of each package that `make test` runs (TESTS=folders or files: that these run)
	@$(RUN) imagestrata s3-build >/dev/null
	@$(IN) rm -rf build/coverage && mkdir -p build/coverage
	@$(RUN) python -m coverage run $(PYTEST) $(or $(TESTS),tests/unit tests/integration)
	@$(RUN) python -m coverage combine --quiet 2>/dev/null && rm -f build/coverage/data.*  # of processes that were killed while they wrote
	@$(RUN) bash -c 'for p in $(MEASURED); do echo "$$p $$(python -m coverage report --format=total --precision=1 --include="$$p/*" | grep -E "^[0-9.]+$$" || echo none) %"; done'

docs: setup  ## the documentation as a site, in build/docs/index.html
	@$(RUN) python -m sphinx -E -W --keep-going -n -q docs build/docs
	@echo "$(HERE)build/docs/index.html"

test-all: test  ## all tests
	@$(MAKE) --no-print-directory -C "$(HERE)" test-e2e ALL=1

check: setup  ## lint, format, docstrings and types
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) pydoclint --quiet $(DOCUMENTED)
	@$(RUN) mypy $(OURS)

format: setup  ## put the code into its format, mend what lint can
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

up:  ## start the embedded Cassandra (PORT=9042, NODES=1)
	@$(SETUP) --extra spark
	@$(RUN) imagestrata up $(if $(PORT),--port "$(PORT)") --nodes $(or $(NODES),1)

down:  ## end it; its data stay
	@$(SETUP) --extra spark
	@$(RUN) imagestrata down

service:  ## serve datasets over REST, at http://127.0.0.1:8080 (ROOT=build/service/root, PORT=8080)
	@$(SETUP) --extra service
	@$(RUN) imagestrata serve --root "$(or $(ROOT),build/service/root)" --port $(or $(PORT),8080)

s3-up:  ## start the embedded S3 server (PORT=7070, BUCKET=name); its program is built once, which takes two minutes
	@$(SETUP) --extra spark --extra s3
	@$(RUN) imagestrata s3-up $(if $(PORT),--port "$(PORT)") $(if $(BUCKET),--bucket "$(BUCKET)")

s3-down:  ## end it; its buckets stay
	@$(SETUP) --extra spark
	@$(RUN) imagestrata s3-down

status:  ## say whether Cassandra and the S3 server are up
	@$(SETUP) --extra spark 2>/dev/null
	@$(RUN) imagestrata status || true
	@$(RUN) imagestrata s3-status || true

clean-data:  ## end both and remove their data
	@$(SETUP) --extra spark
	@$(RUN) imagestrata clean-data
	@$(RUN) imagestrata s3-clean-data

deps.zip:  ## build/deps.zip for spark-submit --py-files on a cluster of yours
	@$(SETUP)
	@$(RUN) python -m imagestrata.devstack.archive build/deps.zip

# QUICK=1: less of everything. ONLY=1,memory: these rows, by number or by a regular expression over their texts.
BENCH = $(RUN) python -m benchmarks.$(@:bench-%=%) $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

bench-demo: setup  ## time and memory of the demo from a fresh clone with empty caches (QUICK=1: with yours; ONLY=rows)
	@$(BENCH)

bench-ingest: setup  ## the ingest beside other ways to write, its memory, listing and resuming; 23 minutes (QUICK=1: 4; ONLY=rows)
	@$(BENCH)

bench-loader: setup  ## the loader beside a bare client, files and torch's workers, near and far; half an hour (QUICK=1: 4 minutes; ONLY=rows)
	@$(BENCH)

bench-service: setup  ## the dataset service beside cp and nginx, many clients at once, and killed in mid-upload; 17 minutes (QUICK=1: 2; ONLY=rows)
	@$(BENCH)

bench-shards: setup  ## shards on S3 beside webdataset, MosaicML streaming and LitData, near and far; half an hour (QUICK=1: 4 minutes; ONLY=rows)
	@$(BENCH)

bench-splits: setup  ## splits beside plain Spark and pandas, up to 100 million rows; an hour (QUICK=1: 5 minutes; ONLY=rows)
	@$(BENCH)

bench-tls: setup  ## reading over TLS with each client, near and far; 6 minutes (QUICK=1: 2; ONLY=rows)
	@$(BENCH)

bench-train: setup  ## a training from Cassandra beside one from files, on two CPU ranks; half an hour (QUICK=1: 3 minutes; ONLY=rows)
	@$(BENCH)

bench-server: setup  ## what settings of the server are worth for writing pictures; 11 minutes (QUICK=1: less; ONLY=rows)
	@$(BENCH)

lock:  ## resolve the dependencies again: requirements.lock and those of the set-up
	@$(SETUP)
	@$(RUN) python -m imagestrata.devstack.locks

clean:  ## remove the environment and all that was built (ends the servers; shared downloads stay in the cache)
	@$(IN) if [ -x .venv/bin/python ] && [ -d build/cassandra ]; then .venv/bin/imagestrata clean-data; fi
	@$(IN) if [ -x .venv/bin/python ] && [ -d build/s3 ]; then .venv/bin/imagestrata s3-clean-data; fi
	@$(IN) rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
