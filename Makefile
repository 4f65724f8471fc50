# `make demo` and `make test` need nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo check test test-slow lint format docs bench clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(VENV)/installed  ## four algorithms on embedded data: a table, demo.png and a report
	$(BIN)/diamond demo

check: lint  ## a minute: lint, types, and the fastest tests of every folder
	$(BIN)/python -m pytest -m quick -n 2 --dist loadfile

test: lint  ## everything that must hold; says at its end what was skipped, and why
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist loadfile

test-slow: $(VENV)/installed  ## studies that take minutes
	$(BIN)/python -m pytest -m slow

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
