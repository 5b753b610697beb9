#!/bin/bash
# Put this process into the host's cgroups, let go of the lab's lock, and become the host's keeper.
# usage: power.sh LOCK_FD KEEPER_CGROUPS MACHINE_CGROUPS IMAGE ...   (cgroup folders joined with ":"; see machine.sh)
set -eu
lock=$1
IFS=: read -ra folders <<<"$2"
shift 2
for folder in "${folders[@]}"; do echo 0 >"$folder/cgroup.procs"; done
exec {lock}>&-
exec unshare --mount --propagation slave --pid --fork --kill-child --mount-proc bash "${0%/*}/machine.sh" "$@"
