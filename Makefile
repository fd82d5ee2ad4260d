# Two commands matter: `make demo` and `make test`. Everything runs in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help setup demo test integration lint format bench bench-build bench-load bench-promises gpu-build gpu docs clean

help:
	@echo "make demo         build two kernels, publish them, load them with one line, show the result"
	@echo "make test         unit tests (no network, no compiler, no GPU beyond what setup installs)"
	@echo "make integration  everything that needs compilers, servers and other packages"
	@echo "make lint         ruff, mypy strict, import-linter"
	@echo "make bench        the figures of docs/results, measured here"
	@echo "make bench-load   loads beside the published client, measured here"
	@echo "make bench-build  the figures of CUDA builds, measured here (about 15 minutes of two cores)"
	@echo "make bench-promises  the seeds' promises, measured here (about ten minutes)"
	@echo "make gpu-build    every kernel's CUDA variants, on a machine without a GPU"
	@echo "make gpu          test and time them on the GPU that is here; K='name name' for some"
	@echo "make docs         regenerate the generated pages"

setup: $(STAMP)

$(STAMP): pyproject.toml ci/setup.sh ci/constraints.txt
	@sh ci/setup.sh "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

test: setup
	@$(BIN)/python -m pytest tests/unit

integration: setup
	@sh ci/packages.sh
	@$(BIN)/python -m pytest tests/integration

lint: setup
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache .importlinter >/dev/null || $(BIN)/lint-imports --no-cache .importlinter
	@$(BIN)/python tools/lint_tree.py
	@$(BIN)/python tools/generate_reference.py --check

format: setup
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

bench: setup
	@$(BIN)/python tools/bench_main_job.py

bench-load: setup
	@$(BIN)/python tools/bench_load.py

bench-build: setup
	@$(BIN)/python tools/bench_build.py

bench-promises: setup
	@$(BIN)/python tools/bench_promises.py

# Needs no GPU: nvcc comes from wheels.
gpu-build: setup
	@for kernel in $(if $(K),$(addprefix kernels-community/,$(K)),$(wildcard kernels-community/*)); do \
	  $(BIN)/kernel-builder build "$$kernel" --backend cuda || exit; done

# Needs only a python3 with torch, pytest and pyelftools, no set-up: what it uses of this checkout is
# pure Python. COMMIT=… for kernels that were built outside of git.
gpu:
	@$(PYTHON) tools/gpu.py $(K) $(if $(COMMIT),--commit $(COMMIT))

docs: setup
	@$(BIN)/python tools/generate_reference.py
	@$(BIN)/python tools/draw_figures.py
	@$(BIN)/python tools/fill_figures.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
