"""Inventory to frozen, validated hosts and engine settings, each value with where it was written."""

from kdops.fleet.changes import effects, expected_server_info, strongest
from kdops.fleet.fleet import Fleet, load
from kdops.fleet.gpus import CATALOGUE, Gpu
from kdops.fleet.model import Host, Origin, SshTarget
from kdops.fleet.redact import redacted
from kdops.fleet.resolve import engine_config, profile_names
from kdops.fleet.settings import SETTINGS, Effect, EngineConfig, Setting

__all__ = [
    "CATALOGUE",
    "SETTINGS",
    "Effect",
    "EngineConfig",
    "Fleet",
    "Gpu",
    "Host",
    "Origin",
    "Setting",
    "SshTarget",
    "effects",
    "engine_config",
    "expected_server_info",
    "load",
    "profile_names",
    "redacted",
    "strongest",
]
