"""The host side of a deploy: one small state machine, standard library only, shared by client and timer.

Packed into `kdops_guard.pyz` by the client (`kdops.deploy.pyz`) and run on the host by its own python3 (3.11
or newer).
Every command prints one JSON document; exit codes are those of `kdops.errors.ExitCode`.
"""
