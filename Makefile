# The two commands of the README are `make demo` and `make test`; both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Python compiles what it imports; all of it takes longer than the download. Then it must keep what it
# compiled, or every process would do so again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PIP) install --no-compile

.PHONY: help setup engines demo test test-all fuzz damage check lock sbom advisories screenshots docs release clean

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

# The stamps make the second run fast: pip runs again only when a pin or a requirement changes.
# Only files whose hash stands in a lock are installed. The exception is torch, whose builds differ by
# platform: it comes last, when the lock has installed all that it needs except the libraries of a GPU.
$(STAMP): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes --no-deps -r requirements.lock
	$(INSTALL) -c constraints.txt torch
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# What tests, types and docs need besides; then nothing is missing that any of it asks for.
$(DEV): $(STAMP) dev.lock
	$(INSTALL) --require-hashes --no-deps -r dev.lock
	$(PIP) check
	@touch $(DEV)

setup: $(DEV)    ## create .venv and install everything, pinned

engines: $(DEV)  ## install Ray and Spark, too: half a gigabyte
	$(INSTALL) --require-hashes --no-deps -r engines.lock

demo: $(STAMP)   ## fit a real smartwatch network and compare it with Monte Carlo
	$(BIN)/onesigma demo $(DEMO)

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder
test: $(DEV)     ## run the test suite without its long tests: minutes
	$(PYTEST) -m 'not long' $(TEST)

test-all: $(DEV) ## run the test suite with its long tests
	$(PYTEST) $(TEST)

EFFORT ?= 20
fuzz: $(DEV)     ## look EFFORT times as long as the suite for input that breaks something
	ONESIGMA_FUZZ=$(EFFORT) $(BIN)/python -m pytest -n 2 tests/fuzz $(TEST)

damage: $(DEV)   ## read 1,200 damaged variants of every kind of file, and say what came of them
	ONESIGMA_FUZZ=30 $(BIN)/python -m pytest -n 2 -rP --show-capture=stdout \
	  -p no:logging tests/fuzz/test_damaged_files.py $(TEST)

check: $(DEV)    ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The pins that make setup does not install, or not from a lock. An environment of its own for uv.
UNLOCKED := torch nvidia-ml-py openvino openvino-telemetry
# What make demo needs, torch's own needs and the build of the package included. Of seglearn only its recordings.
DEMO_NEEDS := contourpy cycler editables filelock flatbuffers fonttools fsspec hatchling jinja2 kiwisolver markupsafe \
  matplotlib ml-dtypes mpmath networkx numpy onnx onnx-ir onnxruntime onnxscript packaging pathspec pillow pluggy \
  protobuf pyparsing python-dateutil safetensors seglearn setuptools sympy tqdm trove-classifiers typing-extensions
# Those of make engines have a lock of their own, too.
ENGINES := attrs jsonschema jsonschema-specifications msgpack pandas py4j pyspark pytz ray referencing rpds-py
COMPILE := $(VENV)/lock/bin/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate
SOME = sed 's/_/-/g' constraints.txt | grep -iE $(1:%=-e '^%==') > $(VENV)/lock/some.txt && $(COMPILE) $(VENV)/lock/some.txt
lock:            ## write the three lock files from constraints.txt; asks the network
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet --disable-pip-version-check uv==0.13.7
	$(call SOME,$(DEMO_NEEDS)) -o requirements.lock
	$(call SOME,$(ENGINES)) -o engines.lock
	$(COMPILE) $(patsubst %,--no-emit-package %,$(UNLOCKED) $(DEMO_NEEDS) $(ENGINES)) constraints.txt -o dev.lock

sbom: $(DEV)     ## list the pinned packages and their licences in out/
	$(BIN)/python tools/sbom.py out

# An environment of its own, because pip-audit brings two dozen packages. Needs the network, so it is
# not part of what a clean checkout must pass; --strict, because a package it cannot look up is no pass.
advisories:      ## known vulnerabilities of the pinned packages; asks the network
	$(PYTHON) -m venv $(VENV)/advisories
	$(VENV)/advisories/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(VENV)/advisories/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# With DEMO_FOLDER=out, of a demo that was run already.
screenshots: $(DEV) ## take the pictures of the docs from the demo; needs a Chromium
	$(BIN)/python tools/screenshots.py $(DEMO_FOLDER)

docs: $(DEV)     ## build the docs site in out/site
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
