#!/bin/sh
# PID 1 of a lab host, for a moment: nspawn mounts cgroup v1 controllers read-only, but this host owns its part of each.
for controller in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$controller" 2>/dev/null; done
exec /lib/systemd/systemd --system "$@"
