"""A server process on the loopback: many clients, slow ones, rude ones, and ends of all kinds."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
TEXT = "/v1/completions"


class RunningServer:
    """A server of the scripted model, in a process of its own."""

    def __init__(self, **how: object) -> None:
        words = [f"--{name.replace('_', '-')}={value}" for name, value in how.items()]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        # A pipe that nobody reads would block the server.
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the server
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.scripted_model", *words],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        self.until(lambda: self.get("/health")[0] == 200)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def get(self, path: str) -> tuple[int, bytes]:
        with contextlib.closing(self.connect()) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except ConnectionError:
                return 0, b""

    def post(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def streamed(self, **body: Any) -> str:
        """Text of a stream that must end well."""
        with contextlib.closing(self.connect()) as connection:
            text = json.dumps(body | {"stream": True})
            connection.request("POST", TEXT, text, {"Content-Type": "application/json"})
            lines = connection.getresponse().read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""], lines[-3:]
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2] if line[0] != ":"]
        return "".join(chunk["choices"][0]["text"] for chunk in chunks)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].decode().splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)), 0.0)

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < limit
            assert self.process.poll() is None
            time.sleep(0.02)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))

    def raw(self, body: dict[str, Any], receive_bytes: int | None = None) -> socket.socket:
        """A connection over which a request was sent, and nothing read."""
        client = socket.socket()
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(PATIENCE_SECONDS)
        client.connect(("127.0.0.1", self.port))
        client.sendall(_request(json.dumps(body).encode()))
        return client

    def ended(self) -> tuple[int, str, str]:
        """Exit status, output and log of a process that was told to end."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.log.seek(0)
        return self.process.returncode, out, self.log.read()


def _request(body: bytes, length: int | None = None) -> bytes:
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@contextlib.contextmanager
def serving(**how: object) -> Iterator[RunningServer]:
    server = RunningServer(**how)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        server.log.close()


def test_32_clients__none_starved_and_texts_depend_on_seeds_alone() -> None:
    with serving(slots=8, step_seconds=0.001) as server:
        calls = [{"prompt": f"client {i % 5}", "max_tokens": 10 + i, "seed": i % 16} for i in range(32)]
        alone = [server.streamed(**call) for call in calls]
        with ThreadPoolExecutor(32) as pool:
            together = list(pool.map(lambda call: server.streamed(**call), calls))
        assert together == alone
        assert len(set(alone)) > 16
        server.process.terminate()
        status, out, log = server.ended()
    assert status == 0
    assert int(out.rsplit(":", 1)[1]) <= 2
    assert log.count("end=done") == 64


def test_slow_reader__blocks_nobody_and_loses_its_request() -> None:
    with serving(slots=2, positions=32_768, unread_tokens=64) as server:
        wanted = {"prompt": "a", "max_tokens": 30_000, "stream": True, "logprobs": 3}
        with contextlib.closing(server.raw(wanted, receive_bytes=4096)):
            server.until(lambda: server.metric("abele_running_sequences") == 1)
            before = server.metric("abele_generated_tokens_total")
            assert len(server.streamed(prompt="b", max_tokens=50, seed=1)) == 50
            assert server.metric("abele_generated_tokens_total") > before
            server.until(lambda: server.metric("abele_running_sequences") == 0)
            assert server.metric("abele_generated_tokens_total") < 20_000
        server.until(lambda: server.metric('abele_calls_total{end="client left"}') == 1)


def test_clients_that_leave__free_their_slots() -> None:
    with serving(slots=2, positions=8192, step_seconds=0.002) as server:
        streams = [server.raw({"prompt": "a", "max_tokens": 8000, "stream": i % 2 == 0}) for i in range(4)]
        assert streams[0].recv(12) == b"HTTP/1.1 200"
        server.until(lambda: server.metric("abele_waiting_sequences") == 2)
        for stream in streams:
            stream.close()
        server.until(lambda: server.metric("abele_running_sequences") + server.metric("abele_waiting_sequences") == 0)
        assert server.post({"prompt": "b", "max_tokens": 3})[0] == 200
        server.until(lambda: server.metric('abele_calls_total{end="client left"}') == 4)


@pytest.mark.parametrize("chunked", [False, True])
def test_body_of_a_gigabyte__is_refused_and_never_held(chunked: bool) -> None:
    with serving() as server:
        before = server.resident_bytes()
        head = _request(b"", length=1 << 30)
        if chunked:
            head = head.replace(f"Content-Length: {1 << 30}".encode(), b"Transfer-Encoding: chunked")
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)) as client:
            client.sendall(head)
            piece = b" " * (1 << 20)
            with contextlib.suppress(ConnectionError):
                for _ in range(1 << 10):
                    client.sendall(b"100000\r\n" + piece + b"\r\n" if chunked else piece)
            with contextlib.suppress(ConnectionError):
                answer = client.recv(4096)
        assert server.resident_bytes() - before < 64 << 20
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"body_too_large" in answer
        assert server.post({"prompt": "b", "max_tokens": 3})[0] == 200


def test_full_queue__is_429_with_an_hour_to_come_back() -> None:
    with serving(slots=1, queue=2, positions=8192, step_seconds=0.002) as server:
        streams = [server.raw({"prompt": "a", "max_tokens": 8000, "stream": True}) for _ in range(3)]
        server.until(lambda: server.metric("abele_waiting_sequences") == 2)
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", TEXT, '{"prompt": "b"}', {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["error"]["code"]) == (429, "queue_full")
            assert int(answer.headers["Retry-After"]) >= 1
        for stream in streams:
            stream.close()


def test_kill_9_and_restart__serves_at_once_on_the_same_port() -> None:
    with serving(positions=8192, step_seconds=0.002) as server:
        stream = server.raw({"prompt": "a", "max_tokens": 8000, "stream": True})
        assert stream.recv(12) == b"HTTP/1.1 200"
        server.process.kill()
        server.process.wait()
        with serving(port=server.port) as again:
            assert again.port == server.port
            assert again.post({"prompt": "b", "max_tokens": 3, "temperature": 0})[1]["choices"][0]["text"] == "deh"
        stream.close()


def test_sigterm__lets_running_requests_finish_and_refuses_new_ones() -> None:
    with serving(positions=1024, step_seconds=0.005) as server:
        texts: list[str] = []
        running = threading.Thread(target=lambda: texts.append(server.streamed(prompt="a", max_tokens=300, seed=1)))
        running.start()
        server.until(lambda: server.metric("abele_running_sequences") == 1)
        server.process.terminate()
        server.until(lambda: server.get("/health")[0] == 503)
        status, answer = server.post({"prompt": "b"})
        assert (status, answer["error"]["code"]) == (503, "stopping")
        running.join()
        assert len(texts[0]) == 300
        status, _, log = server.ended()
    assert status == 0
    assert "Traceback" not in log


def test_sigint__after_the_grace_time_what_runs_is_given_up() -> None:
    with serving(positions=8192, step_seconds=0.005, grace_seconds=0.3) as server:
        stream = server.raw({"prompt": "a", "max_tokens": 8000, "stream": True})
        server.until(lambda: server.metric("abele_running_sequences") == 1)
        start = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        with stream:
            received = b"".join(iter(lambda: stream.recv(65536), b""))
        status, _, log = server.ended()
        assert time.monotonic() - start < 20
    assert json.loads(received.split(b"data: ")[-1].split(b"\n")[0])["error"]["code"] == "stopping"
    assert status != 0
    assert log.count("Traceback") == 1
    assert log.rstrip().endswith("KeyboardInterrupt")
