#!/bin/sh
# Build the Python environment that a lock file names, once, and show it under its final name only when it is whole.
# usage: build_venv.sh LOCK_FILE TARGET_DIR [WHEEL_DIR]
#   LOCK_FILE   exact pins (pip requirements); a line "# python: 3.12" names the interpreter they were resolved for
#   TARGET_DIR  the environment; left alone if it exists
#   WHEEL_DIR   install from these wheels alone, without any network; default: the index that pip is configured for
# Prints "built TARGET_DIR" or "present TARGET_DIR". Any failure leaves nothing behind and exits non-zero.
set -eu

[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: build_venv.sh LOCK_FILE TARGET_DIR [WHEEL_DIR]" >&2; exit 2; }
lock=$1 target=$2 wheels=${3:-}
[ -s "$lock" ] || { echo "build_venv: the lock $lock is missing or empty" >&2; exit 2; }
case $target in /*) ;; *) echo "build_venv: TARGET_DIR must be an absolute path, not $target" >&2; exit 2 ;; esac
[ -z "$wheels" ] || [ -d "$wheels" ] || { echo "build_venv: the wheel folder $wheels does not exist" >&2; exit 2; }
if [ -d "$target" ]; then
  echo "present $target"
  exit 0
fi

version=$(sed -n 's/^# python: *\([0-9.]*\) *$/\1/p' "$lock" | head -n 1)
python=python${version:-3}
command -v "$python" >/dev/null || { echo "build_venv: $lock needs $python, which this host lacks" >&2; exit 1; }
"$python" -c 'import ensurepip' 2>/dev/null || { echo "build_venv: $python cannot make environments; install $python-venv" >&2; exit 1; }

mkdir -p "$(dirname "$target")"
for stale in "$target".partial-*; do # of a build that was killed: its process is gone
  [ -d "$stale" ] && ! kill -0 "${stale##*-}" 2>/dev/null && rm -rf "$stale"
done
partial=$target.partial-$$
trap 'rm -rf "$partial"' EXIT
trap 'exit 1' HUP INT TERM

"$python" -m venv "$partial"
pip() {
  if [ -n "$wheels" ]; then
    "$partial/bin/python" -m pip --disable-pip-version-check "$@" --no-index --find-links "$wheels"
  else
    "$partial/bin/python" -m pip --disable-pip-version-check "$@"
  fi
}
pip install --quiet --no-deps --requirement "$lock"
# A torch build may need libraries of its own (CUDA runtimes) that a lock made with another build does not name.
torch=$(grep -m 1 '^torch==' "$lock" || true)
[ -z "$torch" ] || pip install --quiet --constraint "$lock" "$torch"

# pip wrote the temporary path into scripts; the environment lives under its final name.
grep -rlIF "$partial" "$partial/bin" "$partial/pyvenv.cfg" | while IFS= read -r file; do
  sed -i "s|$partial|$target|g" "$file"
done
sync -f "$partial"
if mv -T "$partial" "$target" 2>/dev/null; then
  echo "built $target"
elif [ -d "$target" ]; then
  echo "present $target" # another build of the same lock was faster
else
  echo "build_venv: cannot rename $partial to $target" >&2
  exit 1
fi
