# The two commands of the README are `make demo` and `make test`; both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-all fuzz damage check advisories docs clean

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

# The stamp makes the second run fast: pip runs again only when a pin or a requirement changes.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev,docs,keras,onnx,predict,reproduce]'
	@touch $(STAMP)

setup: $(STAMP)  ## create .venv and install everything, pinned

demo: $(STAMP)   ## convert a real smartwatch network and compare it with Monte Carlo
	$(BIN)/onesigma demo $(DEMO)

test: $(STAMP)   ## run the test suite without its long tests: minutes
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not long' $(TEST)

test-all: test   ## and then the long ones
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m long $(TEST)

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

# An environment of its own, because pip-audit brings two dozen packages. Needs the network, so it is
# not part of what a clean checkout must pass; --strict, because a package it cannot look up is no pass.
advisories:      ## known vulnerabilities of the pinned packages; asks the network
	$(PYTHON) -m venv $(VENV)/advisories
	$(VENV)/advisories/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(VENV)/advisories/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

docs: $(STAMP)   ## build the docs site in out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:           ## remove .venv and everything generated
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
