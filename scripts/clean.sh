#!/usr/bin/env bash
# Take every lab down, then remove the cache folder: nothing of kdops stays on this machine but the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${KDOPS_CACHE:?}
if [ ! -d "$cache" ]; then
  echo "nothing to remove: $cache does not exist"
  exit 0
fi
scripts/prune_venvs.sh "$cache"
kdops=
for candidate in "$cache"/dev-*/bin/kdops; do # one that is half built cannot take a lab down
  if "$candidate" --version >/dev/null 2>&1; then kdops=$candidate; break; fi
done
for lab in "$cache"/lab/*/; do
  name=$(basename "$lab")
  case $name in '*' | root-*) continue ;; esac # no lab at all, or a root file system that labs share
  [ -n "$kdops" ] || { echo "the lab $name needs kdops to take it down: make setup, then make clean" >&2; exit 1; }
  KDOPS_LAB=$name "$kdops" lab down
done
if grep -q " $cache/" /proc/self/mounts; then
  echo "something is still mounted below $cache; not removing it:" >&2
  grep " $cache/" /proc/self/mounts >&2
  exit 1
fi
size=$(du -sh "$cache" | cut -f1)
rm -rf "$cache"
echo "removed $cache ($size)"
