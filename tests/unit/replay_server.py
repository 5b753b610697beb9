"""The replay server: answers as SGLang 0.5.23 streams, at a given pace, from recorded acceptance.

`python replay_server.py SECONDS_A_STEP TOKENS_A_STEP` prints its port, then serves until stdin ends.
It stands in for an engine only where the client itself is measured: the real one here is too slow to tell.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


class Replay:
    def __init__(self, seconds: float, tokens: int) -> None:
        self.seconds, self.tokens = seconds, tokens
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(x.split(":")[1]) for x in head.split("\r\n") if x.lower().startswith("content-l")), 0
            )
            body: dict[str, Any] = json.loads(await reader.readexactly(length) or b"{}") if length else {}
            await self._answer(head.split()[1], body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path != "/generate":
            tokens = json.dumps({"tokens": [ord(c) for c in body.get("prompt", "")]})
            metrics = f"sglang:num_requests_total {self.requests}.0\n"
            self._plain(writer, {"/tokenize": tokens, "/metrics": metrics}.get(path, "flushed"))
            return
        self.requests += 1
        if body.get("text") == "broken":
            self._plain(writer, '{"error": {"message": "longer than the context"}}', "400 Bad Request")
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self._events(body, writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _events(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        wanted, done, steps = body["sampling_params"]["max_new_tokens"], 1, 0
        prompt = len(body.get("input_ids") or body["text"])
        plain = 3 if body.get("text") == "auto" else 0
        due = asyncio.get_running_loop().time()
        while True:
            meta = {"prompt_tokens": prompt, "cached_tokens": 0, "completion_tokens": done}
            meta |= {"finish_reason": {"type": "length"} if done == wanted else None}
            if plain:
                meta |= {"spec_plain_steps": min(steps, plain)}
            if verified := max(0, steps - plain):
                accepted = self.tokens - 1
                histogram = [0] * accepted + [verified]
                meta |= {"spec_verify_ct": verified, "spec_correct_drafts_histogram": histogram}
                meta |= {"spec_num_correct_drafts": verified * accepted}
            if body.get("return_logprob") and body.get("top_logprobs_num") == 2:
                meta |= {"output_top_logprobs": [[[-0.5, 7, None], [-0.75, 8, None]]] * done}
            if body["text" if "text" in body else "input_ids"] == "bare":
                meta = {}
            event = {"text": "x" * done, "output_ids": list(range(done)), "meta_info": meta}
            piece = b"data: " + json.dumps(event).encode() + b"\n\n"
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if done >= wanted:
                end = b"data: [DONE]\n\n"
                writer.write(f"{len(end):x}\r\n".encode() + end + b"\r\n")
                return
            await writer.drain()
            due += self.seconds
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            steps, done = steps + 1, min(wanted, done + (1 if steps < plain else self.tokens))

    def _plain(self, writer: asyncio.StreamWriter, text: str, status: str = "200 OK") -> None:
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()
        )


async def main(seconds: float, tokens: int) -> None:
    server = await asyncio.start_server(Replay(seconds, tokens).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
