#!/usr/bin/env bash
# Remove the Python environments of checkouts that are gone; one that is still being built is left alone.
# usage: scripts/prune_venvs.sh CACHE
set -euo pipefail
for venv in "${1:?}"/dev-*/; do
  [ -e "$venv/.complete" ] || continue
  for note in "$venv"lib/python3*/site-packages/_kdops.pth; do # where the editable install leads
    checkout=$(cat "$note" 2>/dev/null) || continue
    [ -n "$checkout" ] && [ ! -d "$checkout" ] || continue
    echo "removing $venv: its checkout $checkout is gone" >&2
    rm -rf "$venv"
  done
done
