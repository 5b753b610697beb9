"""The rendered unit under a real systemd: what was written in the inventory is what the process gets."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from host_service import find

from kdops.fleet import engine_config
from kdops.host import HostConnection
from kdops.locks import lock_digest, lock_file
from kdops.render import FileSet, render

pytestmark = pytest.mark.lab

NASTY = {
    "KD_QUOTES": "a'b\"c`d",
    "KD_LINES": "one\ntwo\\\nthree\r\ttab",
    "KD_PERCENT": "%n %% %h %i",
    "KD_DOLLAR": "$HOME ${HOME} $$ $(id)",
    "KD_BACKSLASH": "\\ \\n \\\\",
    "KD_SPACES": "  around  ",
    "KD_MARKS": "#x ;y = & | > < ! * ? [ ] { } ~",
    "KD_UNICODE": "é ☃ \u2028 \x85 \U0001f600",
    "KD_EMPTY": "",
}
ENGINE = """
import json, os, pathlib, socket, sys, time, yaml
seen = {"environ": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd(), "uid": os.getuid(),
        "launch": yaml.safe_load(open(sys.argv[2])), "api_key": None}
if folder := os.environ.get("CREDENTIALS_DIRECTORY"):
    seen["api_key"] = pathlib.Path(folder, "api_key").read_text()
pathlib.Path(os.environ["CACHE_DIRECTORY"].split(":")[0], "written").touch()
pathlib.Path(os.environ["RUNTIME_DIRECTORY"], "seen.json").write_text(json.dumps(seen))
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    time.sleep(1)
"""


def put(connection: HostConnection, files: FileSet) -> str:
    """Lay out a release with a stand-in engine on the host; return the unit's name."""
    unit = files.files[0].path
    release = f"/opt/kdops/releases/{files.release_id}"
    connection.run(["mkdir", "-p", f"{release}/site/kdtree_engine", "/etc/kdops/credentials"], check=True)
    connection.run(["sh", "-c", "id kdtree || useradd --system kdtree"], check=True)
    for file in files.files:
        connection.upload(file.content, f"{release}/{file.path}")
        connection.run(["chmod", f"{file.mode:o}", f"{release}/{file.path}"], check=True)
    connection.upload(b"", f"{release}/site/kdtree_engine/__init__.py")
    connection.upload(ENGINE.encode(), f"{release}/site/kdtree_engine/serve.py")
    connection.run(["chmod", "-R", "a+rX", f"{release}/site"], check=True)
    connection.upload(files.files[0].content, f"/etc/systemd/system/{unit}")
    connection.run(["systemctl", "daemon-reload"], check=True)
    return unit


def test_values_arrive_unchanged_at_the_process(clean_host: Any) -> None:
    lab = clean_host("lab0")
    host = find(lab, "lab0")
    extra = {"weight-version": "q'\"%h $HOME\n#", "lora-paths": ["a b", "%i"]}
    changes = {"environment": NASTY, "extra_args": extra, "api_key_file": "/unused"}
    config = dataclasses.replace(engine_config(host, "ddtree", changes), service="round-trip")
    files = render(config, host, "e" * 64, lock_digest(lock_file("cpu")))
    with HostConnection(host) as connection:
        unit = put(connection, files)
        connection.upload(b"key-1", "/etc/kdops/credentials/round-trip.api_key")
        connection.run(["systemctl", "start", unit], check=True)
        seen = json.loads(lab.ssh("lab0", "cat /run/kdtree-round-trip/seen.json"))
        cmdline = lab.ssh("lab0", f"tr '\\0' ' ' < /proc/$(systemctl show -P MainPID {unit})/cmdline")
        analysed = lab.ssh(
            "lab0",
            f"systemd-analyze verify --man=no /etc/systemd/system/{unit} 2>&1 | grep {unit}",
            check=False,
        )
    release = f"/opt/kdops/releases/{files.release_id}"
    assert {name: seen["environ"][name] for name in NASTY} == NASTY
    assert seen["argv"] == ["--config", f"{release}/launch.yaml"]
    assert {name: seen["launch"][name] for name in extra} == extra
    assert seen["environ"]["PYTHONPATH"] == f"{release}/site"
    assert seen["cwd"] == "/run/kdtree-round-trip"
    assert seen["uid"] != 0
    assert seen["api_key"] == "key-1"
    assert "key-1" not in cmdline + json.dumps(seen["environ"])
    assert analysed == ""
