"""The server of the page, asked over real sockets: who is answered, with what, and what happens when files go wrong."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.report import OPS, Report
from abele.report import file as report_file
from abele.viewer import Viewer, view
from abele.viewer.answers import QUESTIONS
from abele.viewer.open_reports import Shelf
from abele.viewer.static import address
from abele.viewer.wire import unpack

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


class Client:
    """Asks a viewer as its page does, with the cookie that it was given.

    Args:
        viewer: The viewer.
    """

    def __init__(self, viewer: Viewer) -> None:
        parts = urlsplit(viewer.address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port, self.query = parts.hostname, parts.port, parts.query
        status, headers, _ = self.ask(f"/?{self.query}", cookie=False)
        assert status == 303
        self.cookie = headers["Set-Cookie"].split(";")[0]

    def ask(
        self, path: str, *, method: str = "GET", cookie: bool = True, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            named["Cookie"] = self.cookie
        try:
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path: str, **how: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.ask(path, **how)[2])
        return found


Serve = Callable[..., Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    viewers: list[Viewer] = []

    def started(*reports: Report | Path, port: int = 0) -> Client:
        viewers.append(view(list(reports), browser=False, port=port))
        return Client(viewers[-1])

    yield started
    for viewer in viewers:
        viewer.close()


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of files of any size are read when they are asked for, as those of large files are."""
    monkeypatch.setattr(report_file, "SMALL_BYTES", 0)


def test_server__listens__on_the_loopback_alone(serve: Serve, made_small: Report) -> None:
    client = serve(made_small)
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = {fields[1] for fields in listening if fields[3] == "0A" and fields[1].endswith(f":{client.port:04X}")}
    assert local == {f"0100007F:{client.port:04X}"}


@pytest.mark.parametrize("path", ["/", "/web/start.js", "/reports", "/data/x/facts", "/nothing"])
def test_server__without_token__answers_nothing(serve: Serve, made_small: Report, path: str) -> None:
    client = serve(made_small)
    for asked in (path, f"{path}?token=", f"{path}?token=guess", f"{path}?token={quote('é')}"):
        status, _, body = client.ask(asked, cookie=False)
        assert (status, b"abele view printed" in body) == (403, True)


def test_server__cookie_of_another_viewer__is_no_token(serve: Serve, made_small: Report) -> None:
    one, other = serve(made_small), serve(made_small)
    assert one.ask("/reports")[0] == other.ask("/reports")[0] == 200
    one.cookie = other.cookie
    assert one.ask("/reports")[0] == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "0.0.0.0:{port}",
        "",
        "127.0.0.1.nip.io:{port}",
    ],
)
def test_server__name_that_leads_to_the_loopback__is_refused(serve: Serve, made_small: Report, host: str) -> None:
    client = serve(made_small)
    status, _, body = client.ask(f"/?{client.query}", Host=host.format(port=client.port))
    assert status == 421
    assert b"localhost" in body


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_server__names_of_the_loopback__are_answered(serve: Serve, made_small: Report, host: str) -> None:
    client = serve(made_small)
    assert client.ask("/reports", Host=host.format(port=client.port))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_server__pages_of_others__are_refused(serve: Serve, made_small: Report, headers: dict[str, str]) -> None:
    client = serve(made_small)
    given = {name: value.format(port=client.port) for name, value in headers.items()}
    assert client.ask("/reports", **given)[0] == 403
    assert client.ask("/reload/x", method="POST", **given)[0] == 403


def test_server__own_page__is_answered(serve: Serve, made_small: Report) -> None:
    client = serve(made_small)
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec_Fetch_Site": "same-origin"}
    assert client.ask("/reports", **own)[0] == 200


@pytest.mark.parametrize("path", ["/", "/nothing", "/reports", "/data/nothing/facts", "/web/start.js"])
@pytest.mark.parametrize("cookie", [True, False])
def test_server__every_answer__has_the_policy(serve: Serve, made_small: Report, path: str, cookie: bool) -> None:
    _, headers, _ = serve(made_small).ask(path, cookie=cookie)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


def test_server__token__leaves_the_address_at_once_and_no_script_sees_it(serve: Serve, made_small: Report) -> None:
    client = serve(made_small)
    status, headers, _ = client.ask(f"//evil.example/%2e%2e?{client.query}", cookie=False)
    assert (status, headers["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in headers["Set-Cookie"].split(";")}


@pytest.mark.parametrize(
    "name",
    [
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "....//app.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "core/../../app.py",
        "core/%2e%2e/start.js",
        "..\\app.py",
        "start.js%00",
        "style.css",
        "frame.html",
        "",
    ],
)
def test_server__paths_out_of_the_folder__lead_nowhere(serve: Serve, made_small: Report, name: str) -> None:
    client = serve(made_small)
    assert client.ask("/web/start.js")[0] == 200
    status, _, body = client.ask(f"/web/{name}")
    assert status == 404
    assert b"import" not in body


@pytest.mark.parametrize("key", ["nothing", "..", "%00", "a" * 5_000, "%F0%9F%92%A9", "%ff%fe"])
def test_server__unknown_report__is_a_typed_answer(serve: Serve, made_small: Report, key: str) -> None:
    client = serve(made_small)
    for method, path in (("GET", f"/data/{key}/facts"), ("POST", f"/reload/{key}")):
        status, _, body = client.ask(path, method=method)
        assert status in (400, 409)
        assert "no report" in json.loads(body)["message"]
        assert len(body) < 1_000


def test_server__unknown_question__is_a_typed_answer(serve: Serve, made_small: Report) -> None:
    client = serve(made_small)
    status, _, body = client.ask("/data/small-transformer/fact")
    assert (status, json.loads(body)["remedy"]) == (400, "did you mean 'facts'?")


def test_server__failure_of_an_answer__is_told_and_leaves_the_rest(
    serve: Serve, made_small: Report, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise IndexError("<b>odd</b>\x1b[31m")

    monkeypatch.setitem(QUESTIONS, "facts", replace(QUESTIONS["facts"], answer=broken))
    client = serve(made_small)
    status, headers, body = client.ask("/data/small-transformer/facts")
    assert status == 500
    assert "IndexError: <b>odd</b>\ufffd[31m" in json.loads(body)["message"]
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "could not answer facts" in caplog.text
    assert client.ask("/data/small-transformer/table?of=ops")[0] == 200


def test_server__several_viewers__do_not_disturb_each_other(serve: Serve, made_small: Report) -> None:
    clients = [serve(made_small) for _ in range(3)]
    assert len({client.port for client in clients}) == 3
    cookies = "; ".join(client.cookie for client in clients)
    for client in clients:
        client.cookie = cookies  # A browser sends all of them to each: cookies know no ports.
        assert client.ask("/reports")[0] == 200


def test_view__port_that_is_taken__is_an_error_with_a_remedy(made_small: Report) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidOptionError, match=f"port {port} cannot be listened on") as found:
            view(made_small, port=port, browser=False)
    assert "--port" in str(found.value.remedy)


@pytest.mark.parametrize("port", [-1, 65_536, 10**12])
def test_view__port_that_there_is_not__is_an_error(made_small: Report, port: int) -> None:
    with pytest.raises(InvalidOptionError, match="cannot be listened on"):
        view(made_small, port=port, browser=False)


def test_viewer__closed__gives_back_its_port_and_threads(made_small: Report) -> None:
    before = set(threading.enumerate())
    viewer = view(made_small, browser=False)
    client = Client(viewer)
    client.ask("/reports")
    kept = http.client.HTTPConnection(client.host, client.port)
    kept.request("GET", "/", headers={"Cookie": client.cookie})
    kept.getresponse().read()  # A page that is still open holds its connection.
    viewer.close()
    kept.close()
    with pytest.raises(ConnectionRefusedError):
        client.ask("/reports")
    with socket.create_server(("127.0.0.1", client.port)):
        pass
    left = [thread for thread in set(threading.enumerate()) - before if thread.name == "abele viewer"]
    assert left == []
    viewer.close()  # Once more is no error.


def test_server__half_a_request_and_a_browser_that_leaves__hold_nothing_up(serve: Serve, pod64_file: Path) -> None:
    client = serve(pod64_file)
    silent = socket.create_connection((client.host, client.port))
    silent.sendall(b"GET /reports HT")
    gone = socket.create_connection((client.host, client.port))
    query = f"GET /data/pod64/table?of=spans&sort=-cycles HTTP/1.1\r\nHost: {client.host}:{client.port}\r\n"
    gone.sendall(f"{query}Cookie: {client.cookie}\r\n\r\n".encode())
    gone.close()
    assert client.ask("/reports")[0] == 200
    silent.close()


@pytest.mark.usefixtures("lazy")
def test_server__many_questions_at_once__are_answered_as_one_by_one(
    serve: Serve, made_small: Report, tmp_path: Path
) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    (opened,) = Shelf([made_small])
    places = [
        address("run", question.name, params)
        for question in QUESTIONS.values()
        if question.frozen is not None
        for params in list(question.frozen(opened))[:5]
    ]
    client = serve(path)
    with ThreadPoolExecutor(16) as pool:
        at_once = list(pool.map(lambda place: client.ask(f"/data/{place}"), places * 3))
    other = serve(path)
    for place, (status, _, body) in zip(places * 3, at_once, strict=True):
        expected, _, alone = other.ask(f"/data/{place}")
        assert (status, body == alone) == (expected, True), place


# --- files -----------------------------------------------------------------------------------------------------------


def test_files__of_the_same_name__have_keys_of_their_own(serve: Serve, made_small: Report, tmp_path: Path) -> None:
    paths = [tmp_path / name / "run.abele-report" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        made_small.save(path)
    listed = serve(*paths).json("/reports")["reports"]
    assert isinstance(listed, list)
    assert [entry["key"] for entry in listed] == ["run", "run-2"]


def test_files__empty_damaged_or_none__are_told(tmp_path: Path, made_small: Report) -> None:
    empty = tmp_path / "empty.abele-report"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    pipe = tmp_path / "pipe.abele-report"
    os.mkfifo(pipe)
    link = tmp_path / "link.abele-report"
    link.symlink_to(tmp_path / "nowhere")
    loop = tmp_path / "loop.abele-report"
    loop.symlink_to(loop)
    text = tmp_path / "text.abele-report"
    text.write_text("<html>")
    whole = tmp_path / "whole.abele-report"
    made_small.save(whole)
    cut = tmp_path / "cut.abele-report"
    cut.write_bytes(whole.read_bytes()[:-1_000])
    for path in (empty, folder, pipe, link, loop, text, cut, tmp_path / "none", Path("/dev/zero"), Path("x" * 300)):
        started = time.monotonic()
        with pytest.raises(FileFormatError, match=str(path)[:50]):
            view(path, browser=False)
        assert time.monotonic() - started < 2


def test_files__link_to_a_report__is_followed(serve: Serve, made_small: Report, tmp_path: Path) -> None:
    made_small.save(tmp_path / "real.abele-report")
    link = tmp_path / "link.abele-report"
    link.symlink_to("real.abele-report")
    assert unpack(serve(link).ask("/data/link/facts")[2]).head["cycles"] == made_small.total_cycles


def test_folder__newest_report_in_it__is_shown(
    serve: Serve, made_small: Report, generators: object, tmp_path: Path
) -> None:
    tiny: Report = generators.tiny()  # type: ignore[attr-defined]
    tiny.save(tmp_path / "first.abele-report")
    client = serve(tmp_path)
    assert unpack(client.ask("/data/first/facts")[2]).head["cycles"] == 100
    assert _first(client)["changed"] is False
    made_small.save(tmp_path / "second.abele-report")
    os.utime(tmp_path / "second.abele-report", ns=(time.time_ns() + 10**9,) * 2)
    assert _first(client)["changed"] is True
    assert client.ask("/reload/first", method="POST")[0] == 200
    assert unpack(client.ask("/data/first/facts")[2]).head["cycles"] == made_small.total_cycles
    assert _first(client) | {"stamp": ""} == {
        "key": "first", "title": "second", "stamp": "", "changed": False, "cycles": made_small.total_cycles,
        "bytes": (tmp_path / "second.abele-report").stat().st_size,
    }  # fmt: skip


def _first(client: Client) -> dict[str, object]:
    listed = client.json("/reports")["reports"]
    assert isinstance(listed, list)
    entry: dict[str, object] = listed[0]
    return entry


@pytest.mark.usefixtures("lazy")
def test_file__replaced_while_open__stays_readable_and_is_offered_anew(
    serve: Serve, made_small: Report, generators: object, tmp_path: Path
) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    client = serve(path)
    stamp = _first(client)["stamp"]
    generators.tiny().save(path)  # type: ignore[attr-defined]
    entry = _first(client)
    assert (entry["changed"], entry["stamp"]) == (True, stamp)
    # A table that nobody has looked into yet is still that of the old file.
    answer = unpack(client.ask("/data/run/table?of=spans&sort=-cycles")[2])
    assert answer.head["total"] == len(made_small.spans)
    assert client.ask("/reload/run", method="POST")[0] == 200
    entry = _first(client)
    assert (entry["changed"], entry["cycles"]) == (False, 100)
    assert entry["stamp"] != stamp


@pytest.mark.usefixtures("lazy")
def test_file__cut_short_while_open__is_told_and_kills_nobody(serve: Serve, made_small: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    client = serve(path)
    os.truncate(path, 10_000)
    status, _, body = client.ask("/data/run/table?of=spans&sort=-cycles")
    assert (status, json.loads(body)["kind"]) == (400, "file")
    assert "changed in place" in json.loads(body)["message"]
    status, _, body = client.ask("/reload/run", method="POST")
    assert status == 409
    assert "damaged" in json.loads(body)["message"]
    assert client.ask("/reports")[0] == 200


@pytest.mark.usefixtures("lazy")
def test_file__deleted_while_open__goes_on_to_be_shown(serve: Serve, made_small: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    client = serve(path)
    path.unlink()
    assert client.ask("/data/run/table?of=variables&sort=-bytes")[0] == 200
    assert _first(client)["changed"] is True
    status, _, body = client.ask("/reload/run", method="POST")
    assert status == 409
    assert json.loads(body)["kind"] == "file"
    assert client.ask("/data/run/table?of=variables&sort=-bytes")[0] == 200


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("column", ["groups/end_cycle", "spans/cycles", "ops/name", "variable_tiles/bytes"])
def test_file__damaged_column__is_told_where_it_is_shown_and_nowhere_else(
    serve: Serve, made_small: Report, tmp_path: Path, damage: Callable[[Path, str], bool], column: str
) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    assert damage(path, column)
    client = serve(path)
    table, name = column.split("/")
    status, _, body = client.ask(f"/data/run/table?of={table}&columns={name}")
    assert (status, json.loads(body)["kind"]) == (400, "file")
    assert column in json.loads(body)["at"]
    assert client.ask("/data/run/facts")[0] == 200
    assert client.ask("/reports")[0] == 200
    for other in {"steps", "variables", "liveness"} - {table}:
        assert client.ask(f"/data/run/table?of={other}")[0] == 200


def test_table__of_a_million_distinct_words__is_filtered_in_time(serve: Serve, made_small: Report) -> None:
    count = 1_000_000
    many = OPS.table(name=[f"layer{i:x}/{i * 7919 % count:x}" for i in range(count)], cycles=np.arange(count))
    client = serve(replace(made_small, ops=many))
    started = time.monotonic()
    answer = unpack(client.ask("/data/small-transformer/table?of=ops&filter=layerbeef")[2])
    assert time.monotonic() - started < 2
    assert answer.head["found"] == sum("layerbeef" in f"layer{i:x}" for i in range(count))


def test_table__names_of_a_megabyte__are_shortened(serve: Serve, made_small: Report) -> None:
    long = OPS.table(name=["<script>" + "x" * 1_000_000] * 300)
    body = serve(replace(made_small, ops=long)).ask("/data/small-transformer/table?of=ops")[2]
    assert len(body) < 1_000_000
    assert unpack(body).head["text"]["name"][0].startswith("<script>xxx")


def test_title__markup_and_marks_that_turn_text__are_shown_as_text(serve: Serve, made_small: Report) -> None:
    name = "</script><img src=x onerror=alert(1)>\u202egnp.exe\x00\x1b[31m" + "y" * 5_000
    entry = _first(serve(made_small.with_meta(name=name)))
    assert str(entry["title"]).startswith("</script><img")
    assert not {"\u202e", "\x00", "\x1b"} & set(str(entry["title"]))
    assert len(str(entry["title"])) <= 120
    assert set(str(entry["key"])) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


# --- the command -----------------------------------------------------------------------------------------------------


def test_command__interrupted__ends_with_130_and_gives_back_the_port(made_small: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    command = [sys.executable, "-c", "from abele.cli.main import main; main()", "view", str(path), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        port = urlsplit(address).port
        assert port is not None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=15)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_command__html__writes_one_file(made_small: Report, tmp_path: Path) -> None:
    path, html = tmp_path / "run.abele-report", tmp_path / "deep" / "run.html"
    made_small.save(path)
    command = [sys.executable, "-c", "from abele.cli.main import main; main()", "view", str(path), "--html", str(html)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{html.stat().st_size:,} bytes" in done.stdout
    assert [entry.name for entry in html.parent.iterdir()] == ["run.html"]
