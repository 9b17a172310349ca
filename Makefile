# make ask                      from a checkout to a first answer, in a virtual environment of its own
# make ask Q="any question"     quotes, apostrophes, backticks and dollar signs pass as they are
# make test | test-slow | lint | serve      what the names say
#
# PYTHON=python3.12 picks the interpreter, PIP_FLAGS="..." adds options to `pip install` (such as
# the index of torch's CPU builds, which are far smaller), and ARGS="--stream" adds options to
# `specrag ask` or `specrag serve`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP_FLAGS ?=
ARGS ?=
Q ?= What is mean acceptance length?

VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)

# The question reaches the shell as a variable and never as text of the recipe; `value` keeps make
# itself from expanding what is in it.
unexport Q
export SPECRAG_QUESTION = $(value Q)

.DELETE_ON_ERROR:
.DEFAULT_GOAL := ask
.PHONY: ask serve models test test-slow lint

ask: models
	@$(BIN)/specrag ask $(ARGS) -- "$$SPECRAG_QUESTION"

serve: models
	@$(BIN)/specrag serve $(ARGS)

models: $(VENV)/.installed
	@$(BIN)/specrag models pull >/dev/null

# One process a core, one thread each: threads would only wait for each other.
test: $(VENV)/.installed-dev models lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

# Minutes to half an hour: the embedded target against transformers, the handbook's questions.
# Spec-Bench questions are read from the folder that SPECRAG_DATA names.
test-slow: $(VENV)/.installed-dev models
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A stamp is written when its step is over, so an interrupted one is done again.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed"; echo "hint: make PYTHON=python3.11"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[all,dev]'
	@touch $@
