#!/bin/bash
# Build the engine's environment inside a root file system, with the script that real hosts use. Mounts are private to
# the caller's mount namespace and end with it.
# usage: chroot.sh ROOT WHEEL_DIR LOCK_FILE BUILD_VENV_SCRIPT TARGET_DIR
set -eu
root=$1 wheels=$2 lock=$3 script=$4 target=$5
inputs=$root/mnt
mount -t tmpfs none "$inputs"
mkdir "$inputs/wheels"
cp "$lock" "$inputs/lock.txt"
cp "$script" "$inputs/build_venv.sh"
mount --bind "$wheels" "$inputs/wheels"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 PIP_NO_CACHE_DIR=1 \
  sh /mnt/build_venv.sh /mnt/lock.txt "$target" /mnt/wheels
