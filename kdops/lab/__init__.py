"""Systemd hosts on this machine: each with its own PID 1, journald, sshd, network and disk.

One shared root file system (built once, cached) lies below a writable disk image per host. All mounts of a
host live in a mount and PID namespace of its own, so that a host is destroyed by killing it: nothing of it
can stay behind.
"""
