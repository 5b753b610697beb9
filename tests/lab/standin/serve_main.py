"""Stands in for the engine in fault tests: the same contract with systemd and kdops, without loading a model.

$STANDIN says how it fails: die (while loading), hang (never ready), held (loads until
/run/standin-go exists), wrong (serves with another page size than asked for), crash (dies once it is ready).
Whatever it says, it is refused (65, no restart) while /run/standin-broken exists.
"""

import http.server
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import sdnotify
import yaml

config = Path(sys.argv[sys.argv.index("--config") + 1])
options = yaml.safe_load(config.read_text())
mode = os.environ.get("STANDIN", "")
tell = sdnotify.SystemdNotifier().notify
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(f"stand-in starts as {mode or 'healthy'}", flush=True)
tell("STATUS=phase=weights 0 s")

if Path("/run/standin-broken").exists():
    sys.exit(65)
if mode == "die":
    print("RuntimeError: CUDA out of memory (stand-in)", flush=True)
    sys.exit(70)
if mode == "hang":
    time.sleep(10_000)
while mode == "held" and not Path("/run/standin-go").exists():
    time.sleep(0.1)

produced = requests = 0
credentials = os.environ.get("CREDENTIALS_DIRECTORY")
bearer = credentials and "Bearer " + Path(credentials, "api_key").read_text().strip()
commit = 2 if options.get("speculative-algorithm") else 1


def server_info() -> dict[str, object]:
    told = json.loads(config.with_name("manifest.json").read_text())["expected"]
    return {**told, "page_size": 64} if mode == "wrong" else told


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.refused():
            return
        if self.path == "/server_info":
            self.answer(json.dumps(server_info()).encode())
        elif self.path == "/metrics":
            lines = f"sglang:generation_tokens_total {produced}.0\nsglang:num_requests_total {requests}.0\n"
            self.answer(lines.encode())
        else:
            self.answer(b"{}")

    def do_POST(self) -> None:
        global produced, requests
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.refused():
            return
        if self.path != "/generate":
            self.answer(json.dumps({"tokens": [ord(c) for c in asked.get("prompt", "")]}).encode())
            return
        requests += 1
        if asked.get("stream"):
            self.stream(asked)
            return
        tokens = asked["sampling_params"]["max_new_tokens"]
        produced += tokens
        meta = {"completion_tokens": tokens, "cached_tokens": 0}
        self.answer(json.dumps({"text": " word" * tokens, "meta_info": meta}).encode())

    def refused(self) -> bool:
        """Without the key only the health paths are open, as in SGLang."""
        refused = self.path not in ("/health", "/ping") and self.headers["Authorization"] != bearer
        if bearer and refused:
            self.send_error(401)
        return bool(bearer) and refused

    def stream(self, asked: dict[str, Any]) -> None:
        """Send one event a step, `commit` tokens each, as SGLang does."""
        self.send_response(200)
        self.end_headers()
        tokens, done, steps = asked["sampling_params"]["max_new_tokens"], 1, 0
        prompt = len(asked.get("input_ids") or asked["text"])
        while True:
            meta = {"prompt_tokens": prompt, "cached_tokens": 0, "completion_tokens": done}
            if commit > 1 and steps:
                meta |= {"spec_verify_ct": steps, "spec_num_correct_drafts": steps * (commit - 1)}
                meta |= {"spec_correct_drafts_histogram": [0] * (commit - 1) + [steps]}
                meta |= {"spec_num_proposed_drafts": steps * 7}
            event = {"text": "", "output_ids": list(range(10, 10 + done)), "meta_info": meta}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            if done == tokens:
                return
            time.sleep(0.004)
            done, steps = min(tokens, done + commit), steps + 1

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
