# One verb each; `make demo` and `make test` set up whatever they need first.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := noidle routing engines tensor_llm workers ops
TEXT ?=

.PHONY: install demo test check format bench bench-cpu bench-reality bench-routing up

install: .venv/kernels

.venv/cluster: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noidle needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing noidle's packages into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	@touch $@

.venv/kernels: .venv/cluster $(wildcard tensor_llm/kernels/native/*)
	@echo "Building the CPU's kernels, once for this machine …"
	@$(BIN)/python -m tensor_llm.kernels
	@touch $@

.venv/dev: .venv/kernels
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
		-e '.[cluster,dev]'
	@touch $@

demo: .venv/kernels
	$(BIN)/noidle demo $(if $(TEXT),--text '$(TEXT)')

up: .venv/kernels
	$(BIN)/noidle up

test: .venv/dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# the header mends what g++ 12 makes of its tile code
LLAMA_FLAGS := -DCMAKE_CXX_FLAGS=-include$(CURDIR)/tests/bench/cpu/tile_config.h

.venv/bench: .venv/dev
	@echo "Building llama.cpp into .venv, which takes some minutes …"
	@CMAKE_ARGS="$(LLAMA_FLAGS)" $(BIN)/python -m pip install --quiet --no-cache-dir \
		--disable-pip-version-check -c constraints.txt -e '.[cluster,dev,bench]'
	@touch $@

bench: .venv/dev
	$(BIN)/python -m tests.bench $(ARGS)

bench-cpu: .venv/bench
	$(BIN)/python -m tests.bench.cpu $(ARGS)

bench-reality: .venv/dev
	$(BIN)/python -m tests.bench.reality $(ARGS)

bench-routing: .venv/dev
	$(BIN)/python -m tests.bench.routing $(ARGS)
