#!/usr/bin/env bash
# Take every lab down, then remove the cache folder: nothing of kdops stays on this machine but the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${KDOPS_CACHE:?}
if [ ! -d "$cache" ]; then
  echo "nothing to remove: $cache does not exist"
  exit 0
fi
for kdops in "$cache"/dev-*/bin/kdops; do
  for lab in "$cache"/lab/*/; do
    [ -x "$kdops" ] && [ -d "$lab" ] && KDOPS_LAB=$(basename "$lab") "$kdops" lab down
  done
  break
done
if grep -q " $cache/" /proc/self/mounts; then
  echo "something is still mounted below $cache; not removing it:" >&2
  grep " $cache/" /proc/self/mounts >&2
  exit 1
fi
size=$(du -sh "$cache" | cut -f1)
rm -rf "$cache"
echo "removed $cache ($size)"
