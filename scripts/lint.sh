#!/usr/bin/env bash
# Style, types and the import contract; the tools come from the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
mypy
mypy scripts/*.py
(cd engine && mypy)
lint-imports | tail -n 8
