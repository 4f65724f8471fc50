# `make demo` and `make test` need nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Bytecode is kept: every worker and every process of a test reads it, and so does the next run.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo check test test-slow coverage lint format docs bench clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(VENV)/installed  ## four algorithms on embedded data: a table, demo.png and a report
	$(BIN)/diamond demo

check: lint  ## a minute: lint, types, and the fastest tests of every folder
	$(BIN)/python -m pytest -m quick -n 2 --dist loadfile $$(grep -rl --include='test_*.py' 'mark\.quick' tests)

test: lint  ## everything that must hold; says at its end what was skipped, and why
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/installed  ## studies that take minutes
	$(BIN)/python -m pytest -m slow

coverage: $(VENV)/installed  ## lines of diamond/ that the tests run, in their processes too; no file below 80 %
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --sort=cover --skip-covered
	$(BIN)/coverage json --quiet -o - | $(BIN)/python tests/support/least_covered.py 80

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed  ## the documentation, as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo site/index.html

bench: $(VENV)/installed  ## speed: beside a hand-written loop, and of sites as processes
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) build dist site *.egg-info
