#!/bin/bash
# Put this process into the host's cgroups, let go of what its caller had open, and become the host's keeper.
# usage: power.sh KEEPER_CGROUPS MACHINE_CGROUPS IMAGE ...   (cgroup folders joined with ":"; see machine.sh)
set -eu
IFS=: read -ra folders <<<"$1"
shift
for folder in "${folders[@]}"; do echo 0 >"$folder/cgroup.procs"; done
# The lab's lock, and any lock or pipe of the caller: a host outlives them. 255 is bash's own and ends with exec.
for open in /proc/self/fd/*; do
  descriptor=${open##*/}
  if ((descriptor > 2 && descriptor != 255)); then exec {descriptor}>&-; fi
done
exec unshare --mount --propagation slave --pid --fork --kill-child --mount-proc bash "${0%/*}/machine.sh" "$@"
