"""The client against a real HTTP server on loopback."""

import http.server
import json
import threading

import pytest

from kdops.errors import KdopsError, UnreachableError
from kdops.serving import generate

pytestmark = pytest.mark.unit


@pytest.fixture
def server():
    """A server that gives `answers[path]` = (status, body) and keeps what it was asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers.get("Content-Length", 0))
            self.server.asked.append((self.path, dict(self.headers), self.rfile.read(length)))
            status, body = self.server.answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *words):
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.answers, made.asked = {}, []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server, prompt="x", **rest):
    return generate(server.server_address[1], prompt, **{"max_new_tokens": 1, "timeout": 5, **rest})


def test_generate_asks_greedily_and_sends_the_key_in_a_header(server):
    answer = {
        "text": "hi",
        "output_ids": [1, 2],
        "meta_info": {"completion_tokens": 2, "finish_reason": {"type": "stop"}},
    }
    server.answers["/generate"] = (200, json.dumps(answer).encode())
    found = ask(server, 'quote " and 漢', max_new_tokens=7, api_key="sesame")
    assert (found.text, found.output_ids, found.completion_tokens, found.finish_reason) == (
        "hi",
        (1, 2),
        2,
        "stop",
    )
    assert found.tokens_per_second == pytest.approx(2 / found.seconds)
    path, headers, body = server.asked[0]
    assert headers["Authorization"] == "Bearer sesame"
    assert "sesame" not in path
    assert json.loads(body) == {
        "text": 'quote " and 漢',
        "sampling_params": {"max_new_tokens": 7, "temperature": 0.0},
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "no"}', "no"),
        (b'{"detail": "bad"}', "bad"),
        (b"plain words", "plain words"),
        (b"[1]", "[1]"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_refusal_is_told_in_the_engine_s_words(server, body, said):
    server.answers["/generate"] = (400, body)
    with pytest.raises(KdopsError) as refused:
        ask(server)
    assert refused.value.cause == said
    assert "400" in refused.value.title


def test_a_refusal_in_arrays_of_arrays_is_told(server):
    server.answers["/generate"] = (500, b"[" * 2000)
    with pytest.raises(KdopsError, match="HTTP 500"):
        ask(server)


def test_a_wrong_key_is_named(server):
    server.answers["/generate"] = (401, b"")
    with pytest.raises(KdopsError) as refused:
        ask(server)
    assert "API key" in refused.value.remedy


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff"])
def test_an_answer_of_something_else_is_no_crash(server, body):
    server.answers["/generate"] = (200, body)
    with pytest.raises(KdopsError, match="no JSON object"):
        ask(server)


def test_nothing_listens(server):
    port = server.server_address[1]
    server.shutdown()
    server.server_close()
    with pytest.raises(UnreachableError) as lost:
        generate(port, "x", max_new_tokens=1, timeout=2)
    assert "refused" in lost.value.cause
