#!/bin/sh
# Turn a fresh Debian tree into the root that all lab hosts share: no identity of its own, no services a lab cannot use.
# usage: rootfs.sh ROOT INIT_SCRIPT
set -eu
root=$1
rm -f "$root/etc/hostname" "$root/etc/resolv.conf" "$root"/etc/ssh/ssh_host_*_key*
: >"$root/etc/machine-id"
: >"$root/etc/default/locale"
for unit in console-getty.service getty.target systemd-networkd.service systemd-resolved.service \
  systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
  dev-hugepages.mount sys-fs-fuse-connections.mount systemd-update-utmp.service systemd-update-utmp-runlevel.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
mkdir -p "$root/var/log/journal"
install -m 755 "$2" "$root/sbin/kdops-lab-init"
