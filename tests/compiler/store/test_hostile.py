"""Executables of hostile senders: refused as damaged files, at a cost bounded by their size."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele import InOut, Input, Vector, f16, f32, popops
from abele.errors import FileFormatError

LARGEST = (1 << 63) - 1


@ab.codelet
class Scale(ab.Vertex):
    x: InOut[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    by: Vector[f32]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] = self.x[i] * self.by[0] + self.rows[0][0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with vertices, a library call, a stream, a function and a remote buffer; ``secret`` is not used."""
    graph = ab.Graph("bow")
    x = graph.variable(f32, (4, 30), name="x", initial=1).map_rows(range(4))
    y = graph.constant(f32, (4, 2), 1, name="y")
    graph.variable(f32, (4, 30), name="secret", initial=7).map_rows(range(4))
    half = graph.variable(f16, (12,), name="half", initial=1).map(0)
    step = graph.compute_set("scale")
    step.vertices(Scale, tile=range(4), x=x, rows=y[:, None], by=[[2.0]] * 4)
    program = ab.Sequence(ab.Repeat(3, ab.Execute(step)))
    popops.reduce(graph, half, [0], "MAX", program)
    out = graph.host_stream_out("out", f32, (4, 30))
    buffer = graph.remote_buffer("rows", f32, 120, 2)
    row = graph.variable("u32", (1,), name="row", initial=1).map(0)
    program.add(ab.Copy(x[::-1], out))
    program.add(ab.Copy(x.flatten(), buffer, offset=row))
    program.add(ab.Call(graph.function(ab.Sequence())))
    path = tmp_path_factory.mktemp("whole") / "whole"
    ab.compile_program(graph, program).save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0))
    return stream.getvalue()


def with_array(whole: Path, target: Path, name: str, change: Callable[[np.ndarray], Any]) -> Path:
    """A copy in which one array is changed."""
    contents = members(whole)
    array = np.load(io.BytesIO(contents[name])).copy()
    changed = change(array)
    return written(target, contents | {name: npy(array if changed is None else changed)})


def with_document(whole: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy in which the document is changed."""
    contents = members(whole)
    document = json.loads(contents["executable.json"])
    change(document)
    return written(target, contents | {"executable.json": json.dumps(document).encode()})


def document_of(whole: Path) -> dict[str, Any]:
    return json.loads(members(whole)["executable.json"])


def put(index: int, value: int) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


@pytest.mark.parametrize(("begin", "length"), [(1, LARGEST), (LARGEST, 1), (LARGEST, LARGEST), (0, LARGEST), (-1, 2)])
def test_region__whose_end_wraps__is_refused(whole: Path, tmp_path: Path, begin: int, length: int) -> None:
    region = document_of(whole)["graph"]["regions"][0]
    contents = members(whole)
    for key, value in (("begin", begin), ("length", length)):
        array = np.load(io.BytesIO(contents[region[key]])).copy()
        array[0] = value
        contents[region[key]] = npy(array)
    with pytest.raises(FileFormatError, match=r"regions 0\n.*outside the graph"):
        ab.Executable.load(written(tmp_path / "hostile", contents))


@pytest.mark.parametrize("value", [LARGEST, -LARGEST - 1, 1 << 31, -1, 1 << 62])
@pytest.mark.parametrize("place", ["ptr", "index", "row_begin", "mapping", "tile", "state"])
def test_table__with_an_edge_value__is_refused(whole: Path, tmp_path: Path, place: str, value: int) -> None:
    graph = document_of(whole)["graph"]
    group = graph["compute_sets"][0][1][0]
    name = {
        "ptr": graph["regions"][0]["ptr"],
        "index": group["edges"]["x"][1],
        "row_begin": group["edges"]["rows"][2],
        "mapping": graph["variables"][0][4][0],
        "tile": group["tile"],
        "state": group["state"]["by"][1],
    }[place]
    if place == "tile":
        value = int(np.int64(value).astype(np.int32)) or -5
    hostile = with_array(whole, tmp_path / "hostile", name, put(1, value))
    with pytest.raises(FileFormatError, match="the executable is damaged"):
        ab.Executable.load(hostile)


def _node(kind: str, place: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        next(row for row in document["nodes"] if row[0] == kind)[place] = value

    return change


def _at(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(content: Any) -> None:
        for key in keys:
            content = content[key]
        content[last] = value

    return change


def _kernel(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        call = next(row for row in document["nodes"] if row[0] == "LibraryCall")
        _at(*path)(call[6]["has"])

    return change


def _nested(depth: int) -> Any:
    tree: Any = None
    for _ in range(depth):
        tree = {"is": "Unary", "has": [{"type": "f32"}, 0, "neg", tree]}
    return tree


@pytest.mark.parametrize(
    "change",
    [
        _node("Repeat", 2, 2**63),
        _node("Repeat", 2, -1),
        _node("Repeat", 2, 1.5),
        _node("Repeat", 2, True),
        _node("Repeat", 3, 10**40),
        _node("Sequence", 2, [-1]),
        _node("Copy", 2, {"stream": "nowhere"}),
        _node("Copy", 2, {}),
        _node("Call", 2, -1),
        _node("Execute", 2, -1),
        _at("graph", "replicas", 2**31),
        _at("graph", "system", "ipu", "num_tiles", 2**31),
        _at("graph", "system", "ipu", "num_tiles", 2**62),
        _at("graph", "variables", 0, 2, [2**62, 2]),
        _at("graph", "variables", 0, 2, [2**40, 2**40]),
        _at("graph", "variables", 0, 0, 5),
        _at("graph", "variables", 0, 6, 3, -1),
        _at("graph", "streams", 0, 2, [2**40, 2**40]),
        _at("graph", "remote_buffers", 0, 3, 2**62),
        _at("graph", "codelets", 0, "tree", _nested(400)),
        _at("views", 0, 2, 0, 1, 2**70),
        _at("views", 0, 2, 0, 3, [[[2**40, 1, 0]], [[2**40, 1, 0]]]),
        _at("views", 0, 2, 0, 3, [[[4, 0, 30]], [[30, 1, 1]]]),
        _at("views", 0, 2, 0, 2, [1, 0]),
        _at("views", 0, 1, [2**40, 2**40]),
        _at("programs", {"main": -1}),
        _at("meta", {"samples_per_run": "many"}),
        _at("meta", {"name": {"a": {"b": {"c": {"d": {}}}}}}),
        _kernel(0, [[2**62, 2**62]]),
        _kernel(2, -1),
        _kernel(4, [{"is": "Nest", "has": [[["i", 2**63]], []]}]),
    ],
)
def test_document__with_an_edge_value__is_refused(
    whole: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(FileFormatError, match="the executable is damaged"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


def test_view__that_shows_one_element_very_often__is_refused_before_it_is_listed(whole: Path, tmp_path: Path) -> None:
    many = [2**20, 2**20]

    def change(document: dict[str, Any]) -> None:
        document["views"][0] = ["f32", many, [[0, 0, [0, 0], [[[n, 1, 0]] for n in many]]], False]

    with pytest.raises(FileFormatError, match="runs"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


def test_view__with_blocks_on_top_of_each_other__is_refused(whole: Path, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        block = [0, 0, [0, 0], [[[2, 1, 30]], [[30, 1, 1]]]]
        document["views"][0] = ["f32", [4, 30], [block, block], False]

    with pytest.raises(FileFormatError, match="overlap, or leave gaps"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


def test_programs__that_double_at_every_node__are_refused(whole: Path, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        rows = document["nodes"]
        debug = ["", "", "", 0, ""]
        for _ in range(80):
            rows.append(["Sequence", debug, [len(rows) - 1, len(rows) - 1]])
        document["programs"] = {"main": len(rows) - 1}

    with pytest.raises(FileFormatError, match=r"unfold to [0-9,]+ steps"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


def test_programs__nested_very_deep__are_refused(whole: Path, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        rows = document["nodes"]
        for _ in range(5000):
            rows.append(["Block", ["", "", "", 0, ""], len(rows) - 1])
        document["programs"] = {"main": len(rows) - 1}

    with pytest.raises(FileFormatError, match="nested more than 128 deep"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


# --- archives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,), ",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        b"{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (4,), }",
        b"{'descr': '<i8', 'fortran_order': True, 'shape': (4,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (-4,), }",
        b"(" * 60000,
        b"'''",
        b"\\\n  \xff",
    ],
)
def test_array__with_a_bad_head__is_refused(whole: Path, tmp_path: Path, head: bytes) -> None:
    padded = head + b" \n"
    data = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(32)
    hostile = written(tmp_path / "hostile", members(whole) | {"a0.npy": data})
    with pytest.raises(FileFormatError, match=r"a0\.npy"):
        ab.Executable.load(hostile)


def test_archive__two_places_use_one_array__is_refused(whole: Path, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["graph"]["variables"][1][5] = document["graph"]["variables"][0][5]

    with pytest.raises(FileFormatError, match="two places use it"):
        ab.Executable.load(with_document(whole, tmp_path / "hostile", change))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/a.npy", "a.npy\x1b[2J", "a.exe", "a/../b.npy"])
def test_archive__odd_names__are_refused(whole: Path, tmp_path: Path, name: str) -> None:
    hostile = written(tmp_path / "hostile", members(whole) | {name: b""})
    with pytest.raises(FileFormatError, match="no part of such a file"):
        ab.Executable.load(hostile)
    assert [p.name for p in tmp_path.iterdir()] == ["hostile"]


def test_archive__symbolic_link__is_refused(whole: Path, tmp_path: Path) -> None:
    written(tmp_path / "hostile", members(whole))
    link = zipfile.ZipInfo("link.npy")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "hostile", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(FileFormatError, match="no part of such a file"):
        ab.Executable.load(tmp_path / "hostile")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archive__a_name_twice__is_refused(whole: Path, tmp_path: Path) -> None:
    written(tmp_path / "hostile", members(whole))
    with zipfile.ZipFile(tmp_path / "hostile", "a") as archive:
        archive.writestr("a0.npy", b"")
    with pytest.raises(FileFormatError, match="names a member twice"):
        ab.Executable.load(tmp_path / "hostile")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_archive__packed_in_another_way__is_refused(whole: Path, tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "hostile", "w", method) as archive:
        for name, data in members(whole).items():
            archive.writestr(name, data)
    with pytest.raises(FileFormatError, match="no part of such a file"):
        ab.Executable.load(tmp_path / "hostile")


@pytest.mark.parametrize(
    "text",
    [b'{"x": NaN}', b'{"x": 1e999}', b'{"x": ' + b"9" * 5000 + b"}", b'{"x": "\\ud800"}', b"[" * 10**6, b'{"x":\xff}'],
)
def test_document__that_is_no_json__is_refused(whole: Path, tmp_path: Path, text: bytes) -> None:
    content = json.dumps(document_of(whole) | {"meta": "@"}).encode().replace(b'"@"', text)
    hostile = written(tmp_path / "hostile", members(whole) | {"executable.json": content})
    with pytest.raises(FileFormatError, match="the executable is damaged"):
        ab.Executable.load(hostile)


@ab.codelet
class Tell(ab.Vertex):
    given: Input[Vector[f32]]
    taken: InOut[Vector[f32]]

    def compute(self):
        for i in range(4):
            self.taken[i] = self.given[i]
        print(f"took {self.taken[0]:3.1f}")


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        (b'{"field":"taken"}', b'{"field":"given"}', "writes 'given', which is an input"),
        (b'"3.1f"', b'"1000000000f"', "is no format of numbers"),
        (b'"3.1f"', b'"s"', "Unknown format code"),
        (b'["3.1f"]', b"[]", "prints values without a place"),
        (b",1,[{", b",0,[{", "counts in steps of 0"),
    ],
)
def test_codelet__that_no_source_could_mean__is_refused(tmp_path: Path, old: bytes, new: bytes, because: str) -> None:
    graph = ab.Graph("bow")
    given, taken = graph.constant(f32, (4,), 1), graph.variable(f32, (4,), name="taken", initial=0).map(0)
    step = graph.compute_set("tell")
    step.vertex(Tell, tile=0, given=given, taken=taken)
    ab.compile_program(graph, ab.Execute(step)).save(tmp_path / "whole")
    contents = members(tmp_path / "whole")
    head, tree = contents["executable.json"].split(b'"tree":')
    assert old in tree
    hostile = written(tmp_path / "hostile", contents | {"executable.json": head + b'"tree":' + tree.replace(old, new)})
    with pytest.raises(FileFormatError, match="codelet 0, 'Tell'") as caught:
        ab.Executable.load(hostile)
    assert because in str(caught.value)
    assert ab.Executable.load(tmp_path / "whole").programs


def test_source_paths__saved__are_those_of_the_project(whole: Path, tmp_path: Path) -> None:
    here = str(Path(__file__).resolve())
    text = members(whole)["executable.json"].decode()
    assert str(Path(__file__).resolve().parents[3]) not in text
    assert '"tests/compiler/store/test_hostile.py"' in text
    ab.Executable.load(whole).save(tmp_path / "again")
    assert json.loads(members(tmp_path / "again")["executable.json"]) == json.loads(text)
    graph = ab.Graph("bow")
    x = graph.variable(f32, (3,), name="x").map(0)
    ab.compile_program(graph, ab.WriteUndef(x)).save(tmp_path / "full", full_paths=True)
    assert here in members(tmp_path / "full")["executable.json"].decode()
