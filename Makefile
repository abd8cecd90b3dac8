# Each target makes .venv and installs what it needs, and again only when what it was made from has changed.
# Needed beforehand: Python >= 3.11 with venv, a C++20 compiler, and Node >= 20.19 with npm for the pages.

MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
PYTHONS ?= $(PYTHON)
WORKERS ?= 2

comma := ,
bin := .venv/bin
pip := $(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Everything the compiled module and its metadata are made from.
# The list of packages too: an editable install knows those that were there when it was made.
sources := pyproject.toml constraints.txt CMakeLists.txt $(filter-out csrc/tests/%,$(wildcard csrc/* csrc/*/*)) $(wildcard src/multilayer/*/__init__.py src/multilayer/*/*/__init__.py)

# The pages, and what they are made from.
pages := src/multilayer/pages/built/.built
page_sources := $(wildcard frontend/*.* frontend/plugins/* frontend/engine/* frontend/figure/* frontend/shared/* \
	frontend/explorer/* frontend/explorer/*/* frontend/report/* frontend/report/*/*)

.DEFAULT_GOAL := help
.PHONY: run test soak check interop release docs mutants bench sanitize arm clean help pages

run: .venv/.installed ## train on digits: a model, how good it is, what it costs
	$(bin)/mlp train digits
	$(bin)/mlp cost 64-256:gelu:dropout\(0.1\)-128:gelu:dropout\(0.1\)-10 --batch 32 --optimizer adamw --rows 1438

# The commands that the browser tests look for.
browser := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

test: .venv/.dev ## every test, the documentation's examples among them
	@$(browser) || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
		echo "Chromium is not installed, and only root can install it: the browser tests do not run."
	$(bin)/pytest -q -n $(WORKERS) --no-skips $$($(browser) || echo --ignore=tests/pages/test_report_page.py)
	cd frontend && npm test --silent

check: .venv/.dev ## format, lint, types, import order and public names
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/pyright
	$(bin)/pytest -q tests/test_layout.py tests/test_core_layout.py
	cd frontend && npm run check --silent

interop: .venv-interop/.installed ## tests with the real trackers (wandb, MLflow, Trackio, Lightning), in a separate environment
	.venv-interop/bin/pytest -q --no-skips tests/interop

# The variable only hides a note about other tools.
docs: .venv/.dev ## the documentation site, in build/docs/site; a broken link, reference or example is an error
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet

# The wheel is built from the sdist. --no-compile: bytecode of unused modules is not counted in the size.
release: .venv/.installed ## sdist and wheel, each tested in an empty environment; PYTHONS="python3.11 python3.12" tests several
	rm -rf dist build/release
	$(pip) build
	$(bin)/python -m build --no-isolation
	$(call try_out,$(bin)/python,dist/*.whl)
	@set -e; for python in $(PYTHONS); do $(call try_out,$$python,dist/*.tar.gz); done

try_out = set -e; $(1) -m venv --clear build/release; \
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt build/release/bin/pip install --quiet --no-compile $(2); build/release/bin/pip check; \
	build/release/bin/python tests/release/size.py --limit 450; build/release/bin/python tests/release/smoke.py

mutants: .venv/.dev ## mutation tests: at least 95 % of the bugs added to a copy of the source must fail a test
	PYTHONPATH=tests $(bin)/python -m support.mutants --workers $(WORKERS)

soak: .venv/.dev ## the reliability tables in full, and new random networks
	SOAK=1 $(bin)/pytest -q -n $(WORKERS) tests/training/test_kill.py tests/training/test_reproducibility.py tests/training/test_fit_accuracy.py \
		$(wildcard tests/runs/test_*.py) tests/core/test_tensor_file.py \
		tests/core/test_atomic_files.py tests/nn/test_layers.py tests/costs/test_cost.py tests/spec/test_spec.py tests/costs/test_tool_comparison.py \
		tests/engines/test_fused_kernels.py

# The core's own tests without Python (csrc/tests): built with each sanitizer, and for ARM under an emulator. UBSan's checks
# in unrolled loops take a compiler that optimises four times as long: there it does not.
core_test = cmake -S csrc/tests -B build/$(1) -DOPTIMIZE=-O1 $(2) >/dev/null && cmake --build build/$(1) -j $(WORKERS) >/dev/null

sanitize: .venv/.installed ## the compiled core under ASan and UBSan, then under TSan
	export PATH="$(CURDIR)/$(bin):$$PATH"; \
	$(call core_test,address,-DOPTIMIZE=-O0 -DSANITIZE=address$(comma)undefined) && build/address/core_test && \
	$(call core_test,thread,-DSANITIZE=thread) && build/thread/core_test

arm: .venv/.installed ## the compiled core's tests for AArch64 under qemu; needs g++-aarch64-linux-gnu and qemu-user
	export PATH="$(CURDIR)/$(bin):$$PATH"; \
	$(call core_test,arm,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static) && qemu-aarch64 build/arm/core_test

# Those that need tables or images of others are run where DATA names their folder.
bench_parts := $(addprefix bench/,contest.py peers.py predict_peers.py accuracy_peers.py recipe_torch.py residual_torch.py pytabkit_epochs.py unseen.py \
	compare_commits.py compare_results.py compare_scenarios.py startup.py step_commits.py \
	detector_cases.py detector_facts.py detector_summary.py detector_tables.py detector_truth.py)
bench: .venv/.dev ## every question of bench/, each a script; make bench DATA=FOLDER
	@set -e; for script in $(sort $(filter-out $(bench_parts),$(wildcard bench/*.py))); do echo "== $$script"; case $$script in \
		bench/tables.py|bench/images.py|bench/first_steps.py|bench/tabular.py|bench/accuracy.py) \
			if [ -n "$(DATA)" ]; then $(bin)/python $$script "$(DATA)"; \
			else echo "skipped: it needs data, make bench DATA=FOLDER"; fi;; \
		*) $(bin)/python $$script;; \
	esac; done

pages: $(pages) ## the explorer and the report, from frontend/

clean: ## everything that can be made again
	rm -rf .venv .venv-interop .mutants build dist frontend/node_modules src/multilayer/pages/built .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The build's own tools come first, at the pinned versions: an isolated build would take the newest instead.
.venv/.installed: $(sources) | $(pages)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(pip) scikit-build-core nanobind cmake ninja
	$(pip) --no-build-isolation -e .
	@touch $@

# setuptools: fvcore and iopath have no wheels, and from Python 3.12 on a new environment lacks it.
.venv/.dev: .venv/.installed
	$(pip) setuptools
	$(pip) --no-build-isolation -e '.[dev,docs]'
	@touch $@

# The trackers need other versions of some packages than constraints.txt has.
interop_pip := .venv-interop/bin/python -m pip install --quiet --disable-pip-version-check -c tests/interop/constraints.txt
.venv-interop/.installed: $(sources) tests/interop/constraints.txt | $(pages)
	$(PYTHON) -m venv .venv-interop
	$(interop_pip) scikit-build-core nanobind cmake ninja
	$(interop_pip) --no-build-isolation -e '.[wandb,trackio,mlflow]' lightning pytest hypothesis
	@touch $@

$(pages): $(page_sources) | frontend/node_modules/.installed
	cd frontend && npm run build --silent
	@touch $@

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json
	cd frontend && npm ci --silent
	@touch $@
