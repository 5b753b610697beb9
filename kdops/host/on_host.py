"""Runs on the host, piped to `python3 - PLACES UNIT PORT`: reads one service's state, prints a JSON document.

PLACES is a JSON object: the paths of `current`, `transaction`, `lease` and `api_key` (kdops.guard.layout).
With `INTERVAL PREFIXES` after those it prints one a line every INTERVAL seconds until its reader is gone,
with only the metrics whose names begin with one of PREFIXES (comma-separated). While a load client of kdops
measures, it asks nothing but whether that is so.

Standard library only (Python 3.9 or newer) and read-only, so that it works before anything is deployed.
Every part fails alone: what cannot be read is null, with the reason under "errors".
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,StatusText,InvocationID,NRestarts,Result,ExecMainCode,"
    "ExecMainStatus,MainPID,NeedDaemonReload,DropInPaths,FragmentPath,MemoryCurrent,"
    "StateChangeTimestampMonotonic,Job"
)
GPU_FIELDS = "index,name,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw,clocks.sm"
THROTTLE_FIELD = "clocks_throttle_reasons.active"
# An allow-list: /server_info also tells the API key.
SERVER_INFO = """
    version model_path served_model_name speculative_algorithm speculative_num_draft_tokens
    speculative_dflash_block_size speculative_draft_window_size ddtree_budget ddtree_topk_cap
    context_length page_size mem_fraction_static attention_backend kv_cache_dtype tp_size
    max_running_requests max_total_num_tokens chunked_prefill_size decode_log_interval
"""
HTTP_SECONDS, COMMAND_SECONDS = 1.0, 3.0
MOST_BYTES = 1 << 22

Places = dict[str, Path]
errors: dict[str, str] = {}


def part(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments); on failure None, and why in `errors` (a missing file is no failure)."""
    try:
        return function(*arguments)
    except FileNotFoundError:
        return None
    except Exception as error:
        errors[name] = f"{type(error).__name__}: {error}"[:300]
        return None


def output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, timeout=COMMAND_SECONDS, check=False)
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        raise RuntimeError((done.stderr.decode(errors="replace").strip() or text.strip())[:300])
    return text


def show(unit: str) -> dict[str, str]:
    lines = output("systemctl", "show", unit, "-p", PROPERTIES).splitlines()
    return {key: value for key, mark, value in (line.partition("=") for line in lines) if mark}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def document(path: Path) -> Any:
    with path.open("rb") as file:
        return json.loads(file.read(MOST_BYTES).decode(errors="replace"))


def changed_files(release: Path, manifest: Any) -> list[str]:
    files = manifest.get("files") if isinstance(manifest, dict) else None
    changed = []
    for name, digest in (files if isinstance(files, dict) else {}).items():
        try:
            if sha256(release / name) != digest:
                changed.append(name)
        except OSError:
            changed.append(name)
    return changed


def fetch(address: str, port: int, path: str, key: str | None) -> tuple[int | None, str]:
    """Return (status, body); (None, reason) when no HTTP answer came."""
    connection = http.client.HTTPConnection(address, port, timeout=HTTP_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return None, str(error) or type(error).__name__
    finally:
        connection.close()


def engine(api_key: Path, manifest: Any, port: int) -> dict[str, Any]:
    settings = manifest.get("settings") if isinstance(manifest, dict) else None
    settings = settings if isinstance(settings, dict) else {}
    port = settings.get("port", port)
    address = settings.get("bind") or "127.0.0.1"
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    try:
        key = api_key.read_text().strip()
    except OSError:
        key = None
    # Not /health: that one generates a token and takes a second by design (SGLang 0.5.23, http_server.py).
    paths = ("/ping", "/metrics", "/server_info")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        health, metrics, info = pool.map(lambda path: fetch(address, port, path, key), paths)
    return {
        "address": address,
        "port": port,
        "health": health[0],
        "health_error": health[1] if health[0] is None else None,
        "metrics": metrics[1] if metrics[0] == 200 else None,
        "server_info": part("server_info", known_info, info[1]) if info[0] == 200 else None,
    }


def known_info(text: str) -> dict[str, Any]:
    told = json.loads(text)
    known = {name: told[name] for name in SERVER_INFO.split() if name in told}
    states = told.get("internal_states")
    if isinstance(states, list) and states and isinstance(states[0], dict):
        known["avg_spec_accept_length"] = states[0].get("avg_spec_accept_length")
    return known


def gpus() -> list[list[str]]:
    if not shutil.which("nvidia-smi"):
        return []
    try:
        text = query(f"{GPU_FIELDS},{THROTTLE_FIELD}")
    except RuntimeError:  # a driver that does not know the newer or older name of that field
        text = query(GPU_FIELDS)
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]


def query(fields: str) -> str:
    return output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")


def disk(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def report(places: Places, unit: str, port: int) -> dict[str, Any]:
    errors.clear()
    current = places["current"]
    release = current.resolve() if current.is_symlink() else None
    manifest = part("manifest", document, release / "manifest.json") if release else None
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        later_gpus = pool.submit(part, "gpus", gpus)
        later_engine = pool.submit(part, "engine", engine, places["api_key"], manifest, port)
        properties = part("systemd", show, unit) or {}
        fragment = properties.get("FragmentPath")
        return {
            "unit": unit,
            "properties": properties,
            "unit_sha256": part("unit", sha256, Path(fragment)) if fragment else None,
            "current": release.name if release else None,
            "manifest": manifest,
            "changed_files": part("files", changed_files, release, manifest) if release else None,
            "txn": part("txn", document, places["transaction"]),
            "lease": part("lease", document, places["lease"]),
            "boot_id": part("boot", Path("/proc/sys/kernel/random/boot_id").read_text),
            "time": time.time(),
            "monotonic": time.clock_gettime(time.CLOCK_MONOTONIC),
            "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
            "disk_free": part("disk", disk, current.parent),
            "load": part("load", os.getloadavg),
            "gpus": later_gpus.result(),
            "engine": later_engine.result(),
            "errors": errors,
        }


def measuring(transaction: Path) -> bool:
    """Does kdops measure here: is a leg of `kdops ab` up, or a load client (bench/client.py) at work?"""
    txn = part("txn", document, transaction)
    leg = txn.get("transaction") if isinstance(txn, dict) else None
    if isinstance(leg, dict) and leg.get("tried") and leg.get("phase") == "smoked":
        return True
    folders = [os.fsencode(path) for path in Path(tempfile.gettempdir()).glob("kdops-load.*")]
    if not folders:
        return False
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
            if any(folder in command for folder in folders):
                return True
        except OSError:
            continue  # it has just ended
    return False


def sample(places: Places, unit: str, port: int, prefixes: tuple[str, ...]) -> dict[str, Any]:
    if measuring(places["transaction"]):
        return {"paused": True, "time": time.time()}
    told = report(places, unit, port)
    found = told["engine"] or {}
    if found.get("metrics"):
        kept = (line for line in found["metrics"].splitlines() if line.startswith(prefixes))
        found["metrics"] = "\n".join(kept) + "\n"
    return told


def sample_for_ever(places: Places, unit: str, port: int, interval: float, prefixes: tuple[str, ...]) -> None:
    due = time.monotonic()
    while True:
        print(json.dumps(sample(places, unit, port, prefixes)), flush=True)
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    try:
        told_places, told_unit, told_port, *more = sys.argv[1:]
        known = {name: Path(path) for name, path in json.loads(told_places).items()}
        if more:
            sample_for_ever(known, told_unit, int(told_port), float(more[0]), tuple(more[1].split(",")))
        else:
            print(json.dumps(report(known, told_unit, int(told_port))))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone; so is the wish to flush
