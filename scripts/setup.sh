#!/usr/bin/env bash
# Prepare this checkout: system packages (root only), the Python environment, and a line saying where they are.
# usage: scripts/setup.sh [plain|lab]   plain: the Python environment alone; lab: what the systemd lab needs too
set -euo pipefail
cd "$(dirname "$0")/.."
want=${1:-plain}
cache=${KDOPS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kdops}
say() { printf '%s\n' "$*" >&2; }

if [ "$want" = lab ]; then
  if [ "$(uname -s)" != Linux ] || ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    say "The lab (make demo, make test) boots systemd hosts with systemd-nspawn: it needs root on Debian or Ubuntu."
    say "Here, without that, these work: kdops config, kdops render, and kdops plan against a remote host."
    say "  make setup      installs kdops into $cache and prints how to call it"
    exit 2
  fi
  missing=()
  for package in mmdebstrap systemd-container openssh-client iproute2 util-linux e2fsprogs python3-venv tmux chromium; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "Installing Debian packages (as root): ${missing[*]}"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
  fi
fi

python=
for candidate in python3.11 python3.12 python3.13 python3; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { say "kdops needs Python 3.11 or newer; none is on the PATH."; exit 2; }
"$python" -c 'import ensurepip' 2>/dev/null || { say "$python has no ensurepip: apt-get install python3-venv"; exit 2; }

venv=$cache/dev-$({ cat requirements.lock pyproject.toml; pwd; } | sha256sum | cut -c1-12)
if [ ! -e "$venv/.complete" ]; then
  scripts/prune_venvs.sh "$cache"
  say "Building the Python environment in $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -qq --disable-pip-version-check --requirement requirements.lock
  "$venv/bin/pip" install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
  touch "$venv/.complete"
fi
printf '%s\n' "$venv"
