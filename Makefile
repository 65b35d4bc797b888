# kerneljudge: everything that a person or a CI does with this checkout. `make help` lists it.
#
# Targets work in a virtual environment of their own (VENV), made on first use from requirements.lock.
# With VENV= they use PYTHON as it is and install nothing, for machines without a network:
#     make test-gpu VENV= PYTHON=python3

VENV ?= .venv
PYTHON ?= python3
ARGS ?=

ifeq ($(strip $(VENV)),)
RUN := $(PYTHON)
READY :=
PREPARED :=
LINT_IMPORTS := $(PYTHON) -c "from importlinter.cli import lint_imports_command as main; main()"
else
RUN := $(VENV)/bin/python
READY := $(VENV)/.installed
PREPARED := $(VENV)/.prepared
LINT_IMPORTS := $(VENV)/bin/lint-imports
endif

# What is started here finds this checkout by its name, and not because it is the folder that somebody works in.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
export PYTHONSAFEPATH := 1

KERNELJUDGE := $(RUN) -m kerneljudge
MEASURED := api kerneljudge kerneljudge_server runtime storage worker evaluator
SOURCES := $(MEASURED) reference_models
# What torch's CUDA builds bring along: it differs by machine, and torch pins it by itself.
COMES_WITH_TORCH := nvidia-.*-cu[0-9]*|nvidia-cu.*|nvidia-nv.*|cuda-.*|triton

# A process for each processor, up to four: each starts servers of its own. ARGS="-n 0" is one, as a debugger needs it.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install prepare serve dev demo test test-slow test-all test-gpu coverage redteam check structure format hooks bench wheels lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(READY) ## Make the virtual environment (the other targets do it by themselves)

prepare: $(READY) ## Make what fast builds need, once for this torch and these compilers (minutes, 4.9 GB)
	$(KERNELJUDGE) prepare

serve: $(READY) $(PREPARED) ## Start the service on http://127.0.0.1:8000 (ARGS="--port 9000"); Ctrl-C stops it
	$(KERNELJUDGE) serve $(ARGS)

dev: $(READY) ## Start the service, and anew after each change of a source (ARGS="--port 9000"); Ctrl-C stops it
	$(RUN) -m watchfiles --filter default --sigint-timeout 60 "$(KERNELJUDGE) serve $(ARGS)" $(SOURCES)

demo: $(READY) $(PREPARED) ## Start the service, grade ten candidates, show the leaderboard; Ctrl-C stops it
	$(RUN) -m demo.run $(ARGS)

test: $(READY) $(PREPARED) ## Run the core of the tests, some minutes (ARGS="-k candidate")
	$(RUN) -m pytest -m "not gpu and not slow" $(SIDE_BY_SIDE) $(ARGS)

test-slow: $(READY) $(PREPARED) ## Run the tests that `make test` leaves out
	$(RUN) -m pytest -m "slow and not gpu" $(SIDE_BY_SIDE) $(ARGS)

test-all: $(READY) $(PREPARED) ## Run every test that needs no GPU (ARGS="tests/storage -k claim")
	$(RUN) -m pytest -m "not gpu" $(SIDE_BY_SIDE) $(ARGS)

test-gpu: $(READY) ## Run the tests that need a GPU
	$(RUN) -m pytest -m gpu tests/evaluator $(ARGS)

coverage: $(READY) ## Run the tests that need no GPU, and print the lines that they leave out (ARGS="tests/storage")
	$(RUN) -m pytest -m "not gpu" $(SIDE_BY_SIDE) $(addprefix --cov=,$(MEASURED)) --cov-report=term:skip-covered $(ARGS)

redteam: $(READY) ## Try every attack of the corpus and print a table by class (ARGS="--device cuda:0 --shard 1/2")
	$(RUN) -m tests.redteam $(ARGS)

check: $(READY) ## Lint, check the format, the types and the dependency rule
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m mypy --python-version 3.10 --follow-imports=silent --package kerneljudge
	$(LINT_IMPORTS)

structure: $(READY) ## Print modules, lines and imports of each package
	$(RUN) -m tests.structure

format: $(READY) ## Format the code and repair what ruff can repair
	$(RUN) -m ruff format
	$(RUN) -m ruff check --fix

hooks: $(READY) ## Have git check each commit (.pre-commit-config.yaml)
	$(RUN) -m pre_commit install

bench: $(READY) ## Measure what our performance claims rest on (benchmarks/README.md)
	$(RUN) -m benchmarks.run $(ARGS)

wheels: ## Build the wheels of both distributions into dist/
	rm -rf build/lib kerneljudge/.build # a module that is gone would get into the wheel
	$(PYTHON) -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist ./kerneljudge .

lock: ## Resolve the dependencies anew and rewrite requirements.lock
	rm -rf build/lock && mkdir -p build
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade pip
	build/lock/bin/python -m pip install --quiet --editable ./kerneljudge --editable '.[dev]'
	{ sed -n '/^#/p' requirements.lock; \
	  build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip --exclude wheel \
	  | sed 's/+cpu$$//' | grep -Ev '^($(COMES_WITH_TORCH))=='; } > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock

clean: ## Remove the virtual environment, caches and the service's data folder
	rm -rf $(VENV) build kerneljudge/.build dist .coverage* .kerneljudge .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

ifneq ($(READY),)
$(READY): requirements.lock pyproject.toml setup.py kerneljudge/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --requirement requirements.lock
	$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation \
	    --editable ./kerneljudge --editable .
	@touch $@

# Builds are right without it, so that its failure is no reason to stop, and the next target tries again. CUDA sources
# are built where there is a GPU.
$(PREPARED): $(READY) evaluator/builder/recipes/headers.py evaluator/builder/recipes/instantiating.py
	@if $(KERNELJUDGE) prepare instantiated precompiled $(if $(wildcard /dev/nvidia0),split); then touch $@; \
	else echo 'not all of it is prepared: extensions build all the same, and slower'; fi
endif
