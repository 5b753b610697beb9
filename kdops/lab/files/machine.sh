#!/bin/bash
# PID 1 of a lab host's own PID and mount namespace: mount its disk, run it, run it again when it reboots.
# When this process dies, by whatever signal, the kernel ends the host and takes its mounts and loop device away.
# usage: machine.sh MACHINE_CGROUPS IMAGE ROOT MOUNT_POINT HOST_KEY AUTHORIZED_KEY MACHINE HOSTNAME NETNS
set -eu
umask 022
cgroups=$1 image=$2 root=$3 disk=$4 host_key=$5 authorized=$6 machine=$7 hostname=$8 netns=$9

mkdir -p /run/systemd/nspawn # nspawn's own notes: private too, so that they go with the host
mount -t tmpfs -o mode=755 "$machine" /run/systemd/nspawn
mount -o loop "$image" "$disk"
mkdir -p "$disk/upper" "$disk/work" "$disk/root"
mount -t overlay "$machine" -o "lowerdir=$root,upperdir=$disk/upper,workdir=$disk/work" "$disk/root"
if [ ! -e "$disk/first-boot-done" ]; then
  install -d -m 700 "$disk/root/root/.ssh"
  install -m 600 "$authorized" "$disk/root/root/.ssh/authorized_keys"
  install -m 600 "$host_key" "$disk/root/etc/ssh/ssh_host_ed25519_key"
  echo "$hostname" >"$disk/root/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$hostname" >"$disk/root/etc/hosts"
  touch "$disk/first-boot-done"
fi

run() (
  IFS=: read -ra folders <<<"$cgroups"
  for folder in "${folders[@]}"; do echo 0 >"$folder/cgroup.procs"; done
  exec systemd-nspawn --quiet --directory="$disk/root" --machine="$machine" --hostname="$hostname" \
    --register=no --keep-unit --console=read-only --kill-signal=SIGRTMIN+3 --link-journal=no \
    --resolv-conf=off --timezone=off --network-namespace-path="/run/netns/$netns" /sbin/kdops-lab-init
)
code=133 # nspawn's exit code for "rebooted from inside"
while [ "$code" = 133 ]; do
  code=0
  run || code=$?
done
exit "$code"
