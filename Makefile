# `make demo`, `make test`, `make nightly`. All set up what they need in .venv/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What the simulated board and the benches need from the distribution.
APT_PACKAGES := iverilog verilator ccache g++ make perl liblz4-dev zlib1g-dev python3-venv libpython3.11

# cocotb embeds Python in the simulator: the shared library must be there, with the interpreter or the system.
LOAD_LIBPYTHON := import ctypes, os, sysconfig; get = sysconfig.get_config_var; \
    path = os.path.join(get("LIBDIR"), get("INSTSONAME")); \
    ctypes.CDLL(path if os.path.exists(path) else get("INSTSONAME"))

# Yosys comes from the Amaranth wheel, whatever the system has: the same Verilog everywhere.
export AMARANTH_USE_YOSYS := builtin
export PYTHONHASHSEED := 0

.PHONY: demo test nightly check setup system clean

demo: setup
	$(BIN)/python examples/digits/demo.py

test: setup check
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Everything that `make test` runs a little of, at length: bug reports, random networks, real files (MODELS=FOLDER
# adds yours to those of the onnx package), damaged files.
MODELS ?= tests/models examples
nightly: setup
	$(BIN)/python -m pytest -q tests/unit -k "test_u0 or test_u1 or test_u2 or test_u3 or test_u4 or test_u5 or test_u6" -n 2
	$(BIN)/python tests/networks/nightly.py --count 1000 --seed 1
	$(BIN)/python tests/models/table.py $(MODELS) --output build/models.md
	$(BIN)/python tests/fuzz/fuzz.py --minutes 10 --seed 1 --output build/fuzz

# Style and types; type checkers do not follow editable installs that map folders, so give them a tree.
check: setup
	$(BIN)/ruff check .
	@mkdir -p build/types/almac
	@for folder in boards compiler hdl host sim; do ln -sfn "../../../$$folder" "build/types/almac/$$folder"; done
	$(BIN)/mypy

setup: system $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

system:
	@missing=; for tool in iverilog verilator ccache g++ perl; do \
	    command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c '$(LOAD_LIBPYTHON)' 2>/dev/null || missing="$$missing libpython3.11"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then \
	    echo "installing$$missing and what goes with it"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(APT_PACKAGES) >/dev/null; \
	else \
	    echo "missing:$$missing. As root, type:"; \
	    echo "  apt-get install -y --no-install-recommends $(APT_PACKAGES)"; exit 1; \
	fi

clean:
	rm -rf build $(VENV) *.egg-info
