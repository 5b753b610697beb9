"""Settings to the files of a release. Pure: the same arguments give the same bytes on every machine."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kdops import paths
from kdops.fleet.changes import expected_server_info
from kdops.fleet.model import Host, unit_of
from kdops.fleet.redact import redacted
from kdops.fleet.settings import PLAIN, SETTINGS, Effect, EngineConfig, address, values
from kdops.guard.layout import ON_HOST
from kdops.render.escape import env_quoted, specifiers
from kdops.render.files import FileSet, RenderedFile
from kdops.render.launch import launch_yaml

STOP_MARGIN = 30
"""Seconds systemd waits beyond the drain deadline before it kills."""

_UNNAMED = "release-id"


def render(config: EngineConfig, host: Host, engine_digest: str, lock_digest: str) -> FileSet:
    """Return the release of `config` for `host`.

    engine_digest, lock_digest: hex sha256 of the engine's wheel and of the environment's lock. The release id
    is the profile and a digest over everything here but the id itself and settings whose change asks for
    nothing. Raises UsageError if a value cannot be written safely.
    """
    unit = unit_of(config.service)
    settings = values(config)
    facts = {
        "profile": config.profile,
        "host": host.name,
        "service": config.service,
        "unit": unit,
        "engine_digest": engine_digest,
        "lock_digest": lock_digest,
        "settings": redacted(settings),
        "expected": expected_server_info(settings),
        "port": config.port,
        "url": _url(config),
        "models": [path for path in _models(config) if path.startswith("/")],
        "smoke": {"tokens": config.smoke_tokens, "timeout": config.smoke_timeout},
    }
    draft = _files(config, unit, _UNNAMED, engine_digest, lock_digest)
    release_id = f"{specifiers(config.profile)}-{_digest(draft, _decisive(facts))[:10]}"
    files = _files(config, unit, release_id, engine_digest, lock_digest)
    manifest = {
        "release_id": release_id,
        **facts,
        "files": {file.path: hashlib.sha256(file.content).hexdigest() for file in files},
    }
    content = (json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    return FileSet(release_id, (*files, RenderedFile("manifest.json", content, 0o644)), manifest)


def _files(
    config: EngineConfig, unit: str, release_id: str, engine_digest: str, lock_digest: str
) -> tuple[RenderedFile, ...]:
    release = ON_HOST.releases / release_id
    caches = ("kdtree/hf", f"kdtree/{lock_digest[:12]}-{engine_digest[:12]}")
    templates = _templates()
    service = templates.get_template("engine.service.j2").render(
        service=config.service,
        profile=config.profile,
        user=config.user,
        venv=ON_HOST.venvs / lock_digest[:12],
        release=release,
        caches=caches,
        api_key=config.api_key_file is not None,
        gpus=config.device == "cuda",
        start_timeout=config.start_timeout,
        start_limit_interval=max(600, 3 * config.start_timeout),
        stop_timeout=config.drain_timeout + STOP_MARGIN,
        watchdog=config.watchdog,
    )
    environment = templates.get_template("engine.env.j2").render(
        environment=_environment(config, release, caches)
    )
    return (
        RenderedFile(unit, service.encode(), 0o644),
        RenderedFile("launch.yaml", launch_yaml(config), 0o644),
        RenderedFile("engine.env", environment.encode(), 0o600),
    )


def _environment(config: EngineConfig, release: Path, caches: tuple[str, str]) -> dict[str, str]:
    hub, compiled = (f"/var/cache/{folder}" for folder in caches)
    own = {
        "HOME": compiled,
        "XDG_CACHE_HOME": compiled,
        "TRITON_CACHE_DIR": f"{compiled}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{compiled}/inductor",
        "CUDA_CACHE_PATH": f"{compiled}/cuda",
        "HF_HOME": hub,
    }
    given = {name.lower() for name in config.environment}
    if given & {"http_proxy", "all_proxy"} and "no_proxy" not in given:
        # The proxy is for downloads: SGLang's warm-up and the launcher ask the engine itself.
        own["no_proxy"] = f"localhost,127.0.0.1,::1,{config.bind}"
    launcher = {row.env: str(getattr(config, name)) for name, row in SETTINGS.items() if row.env is not None}
    return {**own, **config.environment, **launcher, "PYTHONPATH": f"{release}/site"}


def _url(config: EngineConfig) -> str:
    at = address(config)
    return f"http://{f'[{at}]' if ':' in at else at}:{config.port}"


def _models(config: EngineConfig) -> tuple[str, ...]:
    if config.algorithm == PLAIN or config.draft_model is None:
        return (config.model,)
    return (config.model, config.draft_model)


def _decisive(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that make a release another one."""
    settings = {k: v for k, v in facts["settings"].items() if SETTINGS[k].effect is not Effect.NOTHING}
    return {key: value for key, value in {**facts, "settings": settings}.items() if key != "smoke"}


def _digest(files: Iterable[RenderedFile], facts: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for file in files:
        digest.update(f"\0{file.path}\0{file.mode:o}\0{len(file.content)}\0".encode() + file.content)
    return digest.hexdigest()


@functools.cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(paths.data("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(specifiers=specifiers, env_quoted=env_quoted)
    return environment
