# `make demo` and `make test` need nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
LOWEST = build/lowest
TORCH = build/torch
QUICK_FILES = $$(grep -rl --include='test_*.py' 'mark\.quick' tests)
# Bytecode is kept: every worker and every process of a test reads it, and so does the next run.
export PYTHONDONTWRITEBYTECODE =

# Bytecode is compiled at the first import, so only for modules that are used.
INSTALL = -m pip install --quiet --disable-pip-version-check --no-compile
# uv installs the same packages in a sixth of the time; without it pip does.
UV = $(BIN)/python $(INSTALL) uv && VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --editable

.PHONY: demo check test pytest test-slow test-changed test-lowest test-torch coverage lint format docs bench clean

# Only what the demo needs: a newcomer waits for no package of development.
$(VENV)/installed-demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(UV) '.[plot]' || $(BIN)/python $(INSTALL) --editable '.[plot]'
	touch $@

# All packages of development, those of the demo among them.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(UV) '.[dev]' || $(BIN)/python $(INSTALL) --editable '.[dev]'
	touch $(VENV)/installed-demo $@

demo: $(VENV)/installed-demo  ## four algorithms on embedded data: a table, demo.png and a report
	$(BIN)/diamond demo

check: lint  ## a minute: lint, types, and the fastest tests of every folder
	$(BIN)/python -m pytest -m quick -n 2 --dist loadfile $(QUICK_FILES)

test: $(VENV)/installed  ## lint, and all but wide and slow tests; says at its end what was skipped, and why
	$(MAKE) --jobs 2 lint pytest

pytest: $(VENV)/installed
	$(BIN)/python -m pytest -m 'not slow and not wide' -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/installed  ## studies that take minutes, and all combinations of methods, networks and runtimes
	$(BIN)/python -m pytest -m wide -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m 'slow and not wide'

test-changed: $(VENV)/installed  ## all combinations in folders that changed since BASE, one day ago by default
	tests=$$(bash .ci/changed_folders $(BASE)); \
	[ -z "$$tests" ] || $(BIN)/python -m pytest -m wide -n 2 --dist loadfile --minutes 2 $$tests

# Old packages may use what their newer dependencies deprecate: that warning is no failure.
test-lowest:  ## the demo and the fastest tests with the oldest supported versions
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra all \
	  --python $(LOWEST)/bin/python --output-file $(LOWEST)/versions.txt pyproject.toml
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python \
	  --constraint $(LOWEST)/versions.txt --editable '.[all,dev]'
	cd $$(mktemp -d) && $(abspath $(LOWEST))/bin/diamond demo --quiet
	$(LOWEST)/bin/python -m pytest -m quick -n 2 --dist loadfile -W ignore::DeprecationWarning $(QUICK_FILES)
	$(LOWEST)/bin/python -m pytest -W ignore::DeprecationWarning $$(find tests -name 'test_callbacks*.py')

# PyTorch has an environment of its own: it is large, and its versions are pinned.
$(TORCH)/installed: pyproject.toml
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python $(INSTALL) --editable '.[torch,net]' 'torch==2.13.0' \
	  'torchax==0.0.14.dev20261026' pytest pytest-xdist hypothesis transformers peft
	touch $@

test-torch: $(TORCH)/installed  ## diamond.torch, with the versions of the extra
	$(TORCH)/bin/python -m pytest -n 2 --dist load tests/pytorch

coverage: $(VENV)/installed  ## lines of diamond/ that all but slow tests run, in their processes too; no file below 80 %
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --sort=cover --skip-covered
	$(BIN)/coverage json --quiet -o - | $(BIN)/python tests/support/coverage_check.py 80

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed  ## the documentation, as a site in site/
	$(BIN)/python -m zensical build --strict --clean
	@echo site/index.html

bench: $(VENV)/installed  ## speed: beside a hand-written loop, and of sites as processes
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) build dist site *.egg-info
