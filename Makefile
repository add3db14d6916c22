# Does all the set-up and runs things; needs git, make, a C++ compiler, Python 3.10-3.13 with pip.
#
#   make demo     the whole pipeline on real data, against the stock Trainer
#   make test     the tests, of costly ones one of each kind
#   make test-slow   all others: the remaining combinations of parameters (tests/permutations.py),
#       tests that take many seconds, or start servers and containers
#   make first-hour   what docs/quickstart.md says, done by uv and by pip, about 40 minutes
#   make differential   trainings drawn at random against Keras fit: CASES=200 KERAS=tf_keras SEED=7
#   make differential-input   input candidates on examples drawn at random: CASES=200 SEED=7
#   make lint     the linter and the type checker
#   make test-tfx121   the tests with TFX 1.21, in a root of Debian 13: TESTS=tests/gate
#   make benchmark-input   InputTuner against other input pipelines, about 45 minutes
#   make benchmark-training   OptimizedTrainer against the stock Trainer, about two hours
#   make benchmark-first-run   what a first run costs beside the stock Trainer, about four hours
#   make benchmark-distribution   several workers' steps, plain and planned, about ten minutes
#   make benchmark-gate    how often the gate is wrong, beside other tools, about half an hour
#   make docs     the generated tables of docs/, and the site in .site/html
#   make lock     resolve requirements.lock and constraints.txt again, after a change of setup.py
#   make clean    remove what the set-up made (results of the demo stay)
#
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A uv that is on PATH but does not run (a version manager's shim) counts as missing.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .uv/bin/uv)
OWN_UV := $(filter .uv/bin/uv,$(UV))

# One stamp an interpreter: choosing another one makes the environment anew.
CREATED := $(VENV)/.created-$(subst /,-,$(PYTHON))
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow first-hour differential differential-input lint benchmark-input benchmark-training benchmark-first-run benchmark-distribution benchmark-gate lock clean setup
.DELETE_ON_ERROR:

demo: setup
	$(BIN)/tfx-perf demo

test: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-slow: setup
	$(BIN)/python -m pytest -m slow

first-hour: setup
	$(BIN)/python -m pytest -m slow tests/installing/test_first_hour.py

CASES := 200
KERAS := keras
SEED := $(shell date +%s)
differential: setup
	$(BIN)/python -m tests.differential --shrink --cases $(CASES) --package $(KERAS) --seed $(SEED)

differential-input: setup
	$(BIN)/python -m tests.differential_input --shrink --cases $(CASES) --seed $(SEED)
	$(BIN)/python -m tests.differential_input --memory --cases $(CASES) --seed $(SEED)

# mypy finds packages where their names say, not by the map in setup.py: links put them there.
lint: setup
	$(BIN)/ruff check .
	@rm -rf .types/tfx_perf
	@mkdir -p .types/tfx_perf
	@ln -s $(CURDIR)/tfx_perf/* $(addprefix $(CURDIR)/,components kubeflow pipelines templates) .types/tfx_perf
	$(BIN)/mypy

# The other line of TFX, on a machine whose C library is too old for it.
.PHONY: test-tfx121
TESTS :=
test-tfx121:
	@.ci/debian_13 "$(TESTS)"

# For Fashion-MNIST install Debian's package dataset-fashion-mnist before; else it is skipped.
.PHONY: docs
docs: setup
	$(BIN)/python -m docs.generate
	@NO_MKDOCS_2_WARNING=1 $(UV) run --quiet --no-project --with 'mkdocs-material<10' mkdocs build --strict --quiet
	@echo "The site is .site/html/index.html"

benchmark-input: setup
	$(BIN)/python -m benchmarks.input --json docs/input_benchmark.json

benchmark-training: setup
	$(BIN)/python -m benchmarks.training --json docs/training_benchmark.json

benchmark-first-run: setup
	$(BIN)/python -m benchmarks.first_run --json docs/first_run_benchmark.json

benchmark-distribution: setup
	$(BIN)/python -m benchmarks.distribution --json docs/distribution_benchmark.json

# The other tools' own code, in an environment of its own: their dependencies do not fit TFX's.
GATE_TOOLS := .benchmark-data/gate-tools
benchmark-gate: setup
	@$(UV) venv --quiet --clear --no-python-downloads --python $(BIN)/python $(GATE_TOOLS)
	@$(UV) pip install --quiet --python $(GATE_TOOLS)/bin/python asv==0.6.6 apache-otava==0.8.0
	$(BIN)/python -m benchmarks.gate simulated --rival-python $(GATE_TOOLS)/bin/python
	$(BIN)/python -m benchmarks.gate real

# Here, too, because PYTHONDONTWRITEBYTECODE, set in many images, would have each process compile.
setup: $(INSTALLED)
	@$(BIN)/python -m compileall -q tfx_perf components kubeflow pipelines templates tests

# The lock has no address of a registry in it, unlike uv.lock, so that it works behind a mirror.
# constraints.txt is the same without hashes: with them pip refuses a folder or a wheel.
lock: $(OWN_UV)
	$(UV) pip compile --quiet setup.py --universal --python-version 3.10 --all-extras --no-header \
	    --generate-hashes -o requirements.lock
	sed -e '/--hash=/d' -e '/^ *#/d' -e 's/ \\$$//' requirements.lock > constraints.txt

clean:
	rm -rf $(VENV) .uv .airflow .debian-13 .types .site build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --target, because the Python of a distribution may refuse other installs (PEP 668).
.uv/bin/uv:
	@echo "Installing uv into .uv"
	@PIP_ROOT_USER_ACTION=ignore $(PYTHON) -m pip install --quiet --disable-pip-version-check --target .uv uv

$(CREATED): | $(OWN_UV)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	    || { echo "Expected Python 3.10 to 3.13. Received: PYTHON=$(PYTHON) ($$($(PYTHON) -V 2>&1))." \
	    "Name another one, e.g. make PYTHON=python3.11." >&2; exit 2; }
	@$(UV) venv --quiet --clear --seed --no-python-downloads \
	    --python "$$(command -v $(PYTHON))" $(VENV)
	@touch $@

# TFX packs module files with pip (--seed above); compiled bytecode halves the import time.
$(INSTALLED): $(CREATED) setup.py requirements.lock
	@echo "Installing into $(VENV); the first time takes some minutes"
	@$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode -c requirements.lock \
	    -e '.[dev,kfp]'
	@$(BIN)/tfx-perf tfx --install >/dev/null
	@touch $@
