"""Stands in for the engine in fault tests: the same contract with systemd and kdops, without loading a model.

$STANDIN says how it fails: die (while loading), hang (never ready), held (loads until
/run/standin-go exists), wrong (serves with another page size than asked for), crash (dies once it is ready).
"""

import http.server
import json
import os
import signal
import sys
import time
from pathlib import Path

import sdnotify
import yaml

config = Path(sys.argv[sys.argv.index("--config") + 1])
options = yaml.safe_load(config.read_text())
mode = os.environ.get("STANDIN", "")
tell = sdnotify.SystemdNotifier().notify
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(f"stand-in starts as {mode or 'healthy'}", flush=True)
tell("STATUS=phase=weights 0 s")

if mode == "die":
    print("RuntimeError: CUDA out of memory (stand-in)", flush=True)
    sys.exit(70)
if mode == "hang":
    time.sleep(10_000)
while mode == "held" and not Path("/run/standin-go").exists():
    time.sleep(0.1)

produced = 0


def server_info() -> dict[str, object]:
    told = json.loads(config.with_name("manifest.json").read_text())["expected"]
    return {**told, "page_size": 64} if mode == "wrong" else told


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/server_info":
            self.answer(json.dumps(server_info()).encode())
        elif self.path == "/metrics":
            self.answer(f'sglang:generation_tokens_total{{model_name="x"}} {produced}.0\n'.encode())
        else:
            self.answer(b"{}")

    def do_POST(self) -> None:
        global produced
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = asked["sampling_params"]["max_new_tokens"]
        produced += tokens
        meta = {"completion_tokens": tokens, "cached_tokens": 0}
        self.answer(json.dumps({"text": " word" * tokens, "meta_info": meta}).encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer((options["host"], options["port"]), Handler)
tell("READY=1\nSTATUS=running=0 queued=0")
if mode == "crash":
    os._exit(71)
server.serve_forever()
