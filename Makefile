# Each target works as the first command after cloning: it creates .venv if that is missing. `help` and `clean` need none.
.PHONY: help setup test test-slow test-gpu check demo docs bench clean
PY := .venv/bin/python
export PYTHONDONTWRITEBYTECODE := # where it is set, each process would compile torch and fairseq anew

help:            ## what there is
	@sed -n 's/^\([a-z-]*:\).*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

setup:           ## create .venv (PYTHON=, TORCH= choose others)
	@bash scripts/setup.sh

check: setup     ## lint, formatting, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -q --numprocesses auto --maxprocesses 8

test: check      ## lint, then the tests that take seconds
	$(PYTEST) --dist worksteal

test-slow: setup ## the rest of the tests: command lines, the widest grids
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m slow

test-gpu: setup  ## the tests that need a GPU, in minutes; without one, a line says so
	@if $(PY) -c "import torch, sys; sys.exit(not torch.cuda.is_available())"; then \
	  OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/gpu; else echo "tests/gpu: skipped, there is no GPU"; fi

demo: setup      ## train plain likelihood, AGG, and a larger β₂ on a small corpus and compare them, in minutes on a CPU
	@bash scripts/ours/demo.sh

docs: setup      ## build/site: the pages and the API reference, from the docstrings
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: setup     ## time and memory beside fairseq's own criterion, and of the factorized layer
	$(PY) -m benchmarks.criterion
	$(PY) -m benchmarks.f2_softmax

clean:           ## remove runs and caches; .venv stays
	rm -rf runs .mypy_cache .pytest_cache .ruff_cache build *.egg-info
