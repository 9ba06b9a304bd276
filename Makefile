# The two commands of the README are `make demo` and `make test`; both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help setup engines demo test test-all fuzz damage check lock sbom advisories docs release clean

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

# The stamp makes the second run fast: pip runs again only when a pin or a requirement changes.
# Only files whose hash stands in the lock are installed. The exception is torch, whose builds differ by
# platform: it comes last, when the lock has installed all that it needs except the libraries of a GPU.
$(STAMP): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install -c constraints.txt torch
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) check
	@touch $(STAMP)

setup: $(STAMP)  ## create .venv and install everything, pinned

engines: $(STAMP) ## install Ray and Spark, too: half a gigabyte
	$(PIP) install --require-hashes --no-deps -r engines.lock

demo: $(STAMP)   ## fit a real smartwatch network and compare it with Monte Carlo
	$(BIN)/onesigma demo $(DEMO)

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder
test: $(STAMP)   ## run the test suite without its long tests: minutes
	$(PYTEST) -m 'not long' $(TEST)

test-all: $(STAMP) ## run the test suite with its long tests
	$(PYTEST) $(TEST)

EFFORT ?= 20
fuzz: $(STAMP)   ## look EFFORT times as long as the suite for input that breaks something
	ONESIGMA_FUZZ=$(EFFORT) $(BIN)/python -m pytest -n 2 tests/fuzz $(TEST)

damage: $(STAMP) ## read 1,200 damaged variants of every kind of file, and say what came of them
	ONESIGMA_FUZZ=30 $(BIN)/python -m pytest -n 2 -rP --show-capture=stdout \
	  -p no:logging tests/fuzz/test_damaged_files.py $(TEST)

check: $(STAMP)  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The pins that make setup does not install, or not from the lock. An environment of its own for uv.
UNLOCKED := torch nvidia-ml-py openvino openvino-telemetry
# Those of make engines have a lock of their own.
ENGINES := attrs jsonschema jsonschema-specifications msgpack pandas py4j pyspark pytz ray referencing rpds-py
COMPILE := $(VENV)/lock/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate
lock:            ## write requirements.lock and engines.lock from constraints.txt; asks the network
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet --disable-pip-version-check uv==0.13.7
	$(COMPILE) $(patsubst %,--no-emit-package %,$(UNLOCKED) $(ENGINES)) constraints.txt -o requirements.lock
	grep -E $(ENGINES:%=-e '^%==') constraints.txt > $(VENV)/lock/engines.txt
	$(COMPILE) $(VENV)/lock/engines.txt -o engines.lock

sbom: $(STAMP)   ## list the pinned packages and their licences in out/
	$(BIN)/python tools/sbom.py out

# An environment of its own, because pip-audit brings two dozen packages. Needs the network, so it is
# not part of what a clean checkout must pass; --strict, because a package it cannot look up is no pass.
advisories:      ## known vulnerabilities of the pinned packages; asks the network
	$(PYTHON) -m venv $(VENV)/advisories
	$(VENV)/advisories/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(VENV)/advisories/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

docs: $(STAMP)   ## build the docs site in out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# An environment of its own. The sources are not beside it, so that what is missing in a package shows.
RELEASE := $(VENV)/release
release:         ## build wheel and sdist in dist/, and try each in a clean environment
	rm -rf dist $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt hatchling numpy safetensors torch
	$(RELEASE)/bin/python -m hatchling build
	for file in dist/*; do \
	  $(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall $$file \
	  && $(RELEASE)/bin/python tools/try_package.py || exit 1; done

clean:           ## remove .venv and everything generated
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
