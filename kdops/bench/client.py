"""The load client on its way: packed as a zipapp, started on the host at low priority, read line by line."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kdops
from kdops.bench.workloads.suite import Stage
from kdops.deploy.pack import archive
from kdops.errors import KdopsError
from kdops.guard.layout import ON_HOST
from kdops.host import HostConnection

_MAIN = b"import sys\n\nfrom kdops.bench.load.main import main\n\nraise SystemExit(main(sys.argv))\n"


def zipapp() -> bytes:
    """Return the client; it needs python3 (3.10 or newer) and nothing else."""
    package = Path(kdops.__file__).parent
    files = {"__main__.py": _MAIN, "kdops/__init__.py": b"", "kdops/bench/__init__.py": b""}
    for path in sorted((package / "bench/load").glob("*.py")):
        files[f"kdops/bench/load/{path.name}"] = path.read_bytes()
    return archive({name: (content, 0o644) for name, content in files.items()})


def job(
    port: int,
    service: str,
    stages: tuple[Stage, ...],
    address: str = "127.0.0.1",
    *,
    key_file: str | None = None,
    gpus: bool = True,
) -> bytes:
    """Return the job file. The API key is read where the client runs, on the host unless key_file says where.

    gpus: sample the GPUs of that machine meanwhile.
    """
    document = {
        "address": address,
        "port": port,
        "key_file": key_file or str(ON_HOST.api_key(service)),
        "gpus": gpus,
        "stages": [stage.document() for stage in stages],
    }
    return json.dumps(document).encode()


# A client that nobody listens to ends at its next line; its folder, with the prompts, goes with it.
_RUN = 'nice -n 10 python3 -IB "$1/load.pyz" "$1/$2.json"; code=$?; rm -rf -- "$1"; exit $code'


def command(folder: str, name: str) -> list[str]:
    """Return what runs the load client in `folder` with the job `name`, and removes the folder."""
    return ["sh", "-c", _RUN, "sh", folder, name]


def run(connection: HostConnection, content: bytes) -> Iterator[Mapping[str, Any]]:
    """Run a job on the host and yield its documents as they come.

    Raises UnreachableError when the link breaks, KdopsError when the client or the engine gave up.
    """
    folder = connection.run(["mktemp", "-d", "-t", "kdops-load.XXXXXXXX"], check=True).text.strip()
    name = uuid.uuid4().hex
    try:
        connection.upload(zipapp(), f"{folder}/load.pyz")
        connection.upload(content, f"{folder}/{name}.json", 0o600)
        yield from parse(connection.stream(command(folder, name)), connection.host.name)
    finally:
        connection.run(["rm", "-rf", "--", folder])


def parse(pieces: Iterable[bytes], host: str) -> Iterator[Mapping[str, Any]]:
    """Yield the documents in a stream of bytes. Raises KdopsError for a line that is none."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            try:
                document = json.loads(line)
            except ValueError:
                document = None
            if not isinstance(document, dict):
                raise _gave_up(host, f"it wrote {line[:200]!r}")
            if "failed" in document:
                raise _gave_up(host, str(document["failed"]))
            yield document


def _gave_up(host: str, cause: str) -> KdopsError:
    return KdopsError(
        f"{host}: the load client gave up",
        cause=cause,
        remedy=f"look at kdops status {host} and kdops logs {host}; then kdops ab resume",
    )
