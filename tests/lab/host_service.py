"""A small real service under the name of a deployed engine: Type=notify, load phases, a drain, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from kdops import fleet
from kdops.fleet import Host
from kdops.host import HostConnection

UNIT = "kdtree-{service}.service"
# `/root/fail` makes the load fail, `/root/hang` keeps it from ever being ready.
ENGINE = """
import http.server, os, signal, socket, sys, threading, time
ANSWERS = {
    "/ping": b"",
    "/metrics": b'sglang:gen_throughput{a="b"} 237.5\\nsglang:num_running_reqs{a="b"} 1.0\\n',
    "/server_info": b'{"version": "0.5.23", "api_key": "open-sesame", "internal_states": [{}]}',
}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ANSWERS[self.path])
    def log_message(self, *words):
        pass
def tell(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
def drain(*_):
    for left in (2, 1):
        tell(f"STOPPING=1\\nSTATUS=draining 1 request, {left} s left")
        time.sleep(1)
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
tell("STATUS=phase=weights 1 s")
time.sleep(0.7)
if os.path.exists("/root/fail"):
    print("torch.OutOfMemoryError: no \\x1b[31mmemory", flush=True)
    sys.exit(70)
while os.path.exists("/root/hang"):
    time.sleep(0.05)
serving = http.server.ThreadingHTTPServer(("127.0.0.1", 30000), Handler)
threading.Thread(target=serving.serve_forever, daemon=True).start()
tell("READY=1\\nSTATUS=running=1 queued=2 al=4.38")
while True:
    time.sleep(0.05)
"""
SERVICE = """[Service]
Type=notify
ExecStart=/usr/bin/python3 -u /root/engine.py
Restart=on-failure
RestartSec=1
KillMode=mixed
LogRateLimitIntervalSec=0
"""


def find(lab: Any, name: str) -> Host:
    """Return the host as `kdops` sees it through the lab's inventory."""
    return fleet.load(lab.inventory).one(name)


def install(lab: Any, name: str, program: str = ENGINE, service: str = SERVICE) -> str:
    """Put the service on the host, stopped; return its unit's name."""
    host = find(lab, name)
    unit = UNIT.format(service=host.service)
    with HostConnection(host) as connection:
        connection.upload(program.encode(), "/root/engine.py")
        connection.upload(service.encode(), f"/etc/systemd/system/{unit}")
        connection.run(["systemctl", "daemon-reload"], check=True)
        connection.run(["rm", "-f", "/root/fail", "/root/hang"], check=True)
    return unit


def kdops(lab: Any, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the kdops command line on the lab's inventory."""
    return subprocess.run(
        command(*arguments),
        env=environment(lab),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kdops.cli.main", *arguments]


def environment(lab: Any) -> dict[str, str]:
    return {**os.environ, "KDOPS_INVENTORY": str(lab.inventory)}
