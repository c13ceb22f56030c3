# One verb each; `make demo` and `make test` set up whatever they need first.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := noidle routing engines tensor_llm workers ops
TEXT ?=

.PHONY: install demo test check format bench up

install: .venv/cluster

.venv/cluster: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noidle needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing noidle's packages into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	@touch $@

.venv/dev: .venv/cluster
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,dev]'
	@touch $@

demo: .venv/cluster
	$(BIN)/noidle demo $(if $(TEXT),--text '$(TEXT)')

up: .venv/cluster
	$(BIN)/noidle up

test: .venv/dev
	$(BIN)/python -m pytest $(ARGS)

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev
	$(BIN)/python -m tests.bench $(ARGS)
