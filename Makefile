# Every target sets up all that it needs; a machine with Python 3.11+, pip and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Packages that tests and benchmarks use only for the ONNX files inside them; their own
# dependencies (torch, opencv) are large and not needed for that.
MODEL_PACKAGES := rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3

.PHONY: setup demo test test-cuda test-gpu lint conformance fuzz fuzz-graphs replay replay-diff docs lower-bounds clean

setup: $(STAMP)

$(STAMP): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,rules]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MODEL_PACKAGES)
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2

# What needs NVRTC, which compiles for GPUs without one; and what needs a GPU.
test-cuda: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	$(BIN)/pytest -n 2 -m cuda

test-gpu: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	$(BIN)/pytest -m 'cuda or gpu'

# All of ONNX's own node tests, in the interpreter and as native code for TARGET; `make test` runs
# a sample of them.
conformance: $(STAMP)
	$(BIN)/python tools/conformance.py
	$(BIN)/python tools/conformance.py --target $(or $(TARGET),cpu)

# Random kernels against the interpreter; `make test` runs a sample of them.
fuzz: $(STAMP)
	$(BIN)/python tools/fuzz.py

# Random models against the interpreter, on all targets; `make test` runs a sample of them.
#   make fuzz-graphs COUNT=50000 SEED=1 TARGET=x86-64-v3 JOBS=16
COUNT ?= 1000
SEED ?= 0
fuzz-graphs: $(STAMP)
	$(BIN)/python tools/fuzz_graphs.py --count $(COUNT) --seed $(SEED) \
	  $(if $(TARGET),--target $(TARGET)) $(if $(JOBS),--jobs $(JOBS))

# Tasks, candidates, loop programs and LLVM modules of all kernels of the benchmarks' models, as text;
# and what of them has changed since a commit, kernel by kernel.
#   make replay-diff REV=HEAD~1 ONLY=resnet
OUT ?= build/replay/work
replay: $(STAMP)
	$(BIN)/python tools/replay.py write $(OUT) $(if $(ONLY),--only '$(ONLY)')

REV ?= HEAD
replay-diff: $(STAMP)
	$(BIN)/python tools/replay.py since $(REV) $(if $(ONLY),--only '$(ONLY)')

# Writes the generated pages of docs/ anew.
docs: $(STAMP)
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/onnx_table.py

# Installs the oldest versions that pyproject.toml allows and runs a smoke test on them.
lower-bounds: $(STAMP)
	$(BIN)/python tools/lower_bounds.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
