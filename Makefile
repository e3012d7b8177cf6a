# Everything is done in .venv, which `make` sets up from pyproject.toml the first time and again
# when that file has changed. For another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-input --editable
READY := $(VENV)/ready
READY_FOR_BENCH := $(VENV)/ready-for-bench

.DEFAULT_GOAL := help
.PHONY: help lab demo test check bench notebooks clean

help:  ## list what make can do
	@echo 'make TARGET, where TARGET is one of'
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s%s\n", $$1, $$2 }'

lab: $(READY)  ## set up .venv and open JupyterLab on the tutorials
	$(RUN) -m jupyterlab notebooks

demo: $(READY)  ## plan, preload and train without a browser; writes demo.png
	$(RUN) demo.py

# In two processes, of one thread each: more would wait for each other. `make test ARGS=-x` stops at
# the first failure.
test: $(READY)  ## run all tests: unit tests, doctests, notebooks, and a browser where Chromium is
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile --nbval tests src notebooks $(ARGS)

check: $(READY)  ## check the style of code and notebooks, and the types
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

bench: $(READY_FOR_BENCH)  ## run all benchmarks, or ARGS="epoch ...", and keep what they print
	$(RUN) tools/bench.py $(ARGS)

notebooks: $(READY)  ## run the notebooks and store their outputs
	$(RUN) tools/notebooks.py $(ARGS)

clean:  ## remove .venv and all that was built or cached
	rm -rf $(VENV) build dist src/*.egg-info demo.png browser-artefacts
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +

$(RUN):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("gpupreload needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name a newer one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(RUN)
	@echo 'Installing into $(VENV), once. On Linux PyTorch brings its CUDA libraries, about 5 GB.'
	$(INSTALL) '.[lab,test]'
	@touch $@

$(READY_FOR_BENCH): $(READY)
	$(INSTALL) '.[bench]'
	@touch $@
