# make demo   the main job on a real systemd host on this machine (Debian, root)
# make test   everything CI runs; make test-all adds the full fault matrix
# make matrix the fault matrix alone, file by file; writes docs/benchmarks/test-matrix.md
# make bench  how long the commands take, against their limits; writes docs/benchmarks/commands.md
# make bench-tui  the dashboard under load; writes docs/benchmarks/tui.md
KDOPS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kdops
export KDOPS_CACHE

.PHONY: help demo test test-all matrix bench bench-tui lint format setup clean

help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST))
	@echo 'make setup  install kdops into the cache folder and print how to call it (no root needed)'
	@echo 'make lint   ruff, mypy, import contracts; make format rewrites'
	@echo 'make clean  take the lab down and remove the cache folder $(KDOPS_CACHE)'

demo:
	@venv=$$(scripts/setup.sh lab) && PATH="$$venv/bin:$$PATH" "$$venv/bin/python" scripts/demo.py

test:
	@.ci/run

test-all:
	@.ci/run all

bench:
	@venv=$$(scripts/setup.sh lab) && mkdir -p docs/benchmarks && PATH="$$venv/bin:$$PATH" \
	  "$$venv/bin/python" scripts/bench_cli.py >docs/benchmarks/commands.md; code=$$?; cat docs/benchmarks/commands.md; exit $$code

matrix:
	@venv=$$(scripts/setup.sh lab) && PATH="$$venv/bin:$$PATH" KDOPS_LAB=test \
	  "$$venv/bin/python" scripts/test_matrix.py $(FILES)

bench-tui:
	@venv=$$(scripts/setup.sh) && PATH="$$venv/bin:$$PATH" \
	  "$$venv/bin/python" scripts/bench_tui.py --replay 600 >docs/benchmarks/tui.md; code=$$?; cat docs/benchmarks/tui.md; exit $$code

lint:
	@venv=$$(scripts/setup.sh) && PATH="$$venv/bin:$$PATH" scripts/lint.sh

format:
	@venv=$$(scripts/setup.sh) && "$$venv/bin/ruff" check --fix . && "$$venv/bin/ruff" format .

setup:
	@venv=$$(scripts/setup.sh) && echo "export PATH=$$venv/bin:\$$PATH"

clean:
	@scripts/clean.sh
