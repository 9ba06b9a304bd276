# The two commands of the README are `make demo` and `make test`; both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test check clean

help:            ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

# The stamp makes the second run fast: pip runs again only when a pin or a requirement changes.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev,keras,onnx]'
	@touch $(STAMP)

setup: $(STAMP)  ## create .venv and install everything, pinned

demo: $(STAMP)   ## convert a real smartwatch network and compare it with Monte Carlo
	$(BIN)/onesigma demo $(DEMO)

test: $(STAMP)   ## run the test suite
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(TEST)

check: $(STAMP)  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:           ## remove .venv and everything generated
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
