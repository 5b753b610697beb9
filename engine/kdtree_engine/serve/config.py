"""The command line and what is checked in launch.yaml before SGLang reads it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import yaml

from kdtree_engine.options import RefusedError

# SGLang would log these from its arguments; the launcher takes them as systemd credentials.
_SECRET_KEYS = ("api-key", "admin-api-key")
_QUIET_PATHS = ("/health", "/health_generate", "/metrics", "/ping", "/ready", "/server_info")


def config_path(argv: Sequence[str]) -> Path:
    """The file of `--config FILE`, the only argument. Raises SystemExit(2) with usage for anything else."""
    parser = argparse.ArgumentParser(
        prog="kdtree_engine.serve", description="Run SGLang as a systemd service."
    )
    parser.add_argument(
        "--config", type=Path, required=True, help="SGLang's flags as YAML, without leading dashes"
    )
    path: Path = parser.parse_args(argv).config
    return path


def check_file(path: Path) -> None:
    """Refuse a file that SGLang cannot read or that holds a secret. Raises RefusedError."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RefusedError(f"{path} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise RefusedError(f"{path} is not YAML: {line}") from None
    if not isinstance(content, dict):
        raise RefusedError(f"{path} holds no mapping of flags to values")
    for key in content:
        name = str(key).replace("_", "-")
        if name in _SECRET_KEYS:
            raise RefusedError(f"{path} sets {name}: give it as the systemd credential api_key instead")


def quiet_paths(asked: Sequence[str] | None) -> list[str]:
    """Paths kept out of the access log: polls of health and metrics, and what the operator named."""
    return list(dict.fromkeys([*_QUIET_PATHS, *(asked or ())]))
