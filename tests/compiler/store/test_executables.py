"""Executables in files: the same program in another process, without its source; refused where they are not whole."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import abele as ab
from abele import Input, Output, Vector, f16, f32, i32, popops
from abele.errors import ApplicationRuntimeError, ControlProgramError, FileFormatError
from abele.graph import HostLoop, HostOrder
from abele.kernels.nest import ir
from support.examples import examples

SOURCE = """
import numpy as np
import abele as ab
from abele import InOut, Input, Vector, f32, i32

FACTOR = 3.0

@ab.codelet
class Work(ab.MultiVertex):
    x: InOut[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    seen: i32

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), self.num_workers):
            self.x[i] = self.helper(self.x[i]) + f32(self.seen)
        if worker_id == 5:
            self.seen += 1
            row = self.rows[1]
            self.x[0] += row[2]

    def helper(self, value):
        return FACTOR * value if value > 0.5 else -value

graph = ab.Graph("bow")
x = graph.variable(f32, (4, 30), name="x", initial=np.linspace(0, 1, 120).reshape(4, 30)).map_rows(range(4))
y = graph.constant(f32, (4, 3), np.arange(12).reshape(4, 3), name="y")
step = graph.compute_set("work")
step.vertices(Work, tile=range(4), x=x, rows=[[y[i], y[3 - i]] for i in range(4)], seen=0)
out = graph.host_stream_out("out", f32, (4, 30))
program = {"work": ab.Repeat(3, ab.Execute(step)), "send": ab.Copy(x[::-1], out)}
"""
RUN = """
import sys
import numpy as np
import abele as ab
engine = ab.Engine(ab.Executable.load(sys.argv[1]))
got = np.zeros((4, 30), np.float32)
engine.connect("out", got)
engine.run("work")
engine.run("send")
np.save(sys.argv[2], got)
print(int(engine.report.cycles().total))
"""


def made(tmp_path: Path) -> ab.Executable:
    """The program above, compiled from a file that is gone afterwards."""
    path = tmp_path / "program.py"
    path.write_text(SOURCE, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(SOURCE, str(path), "exec"), names)
    executable = ab.compile_program(names["graph"], names["program"])
    executable.save(tmp_path / "program.abele-exe")
    return executable


def test_executable__in_a_fresh_process_without_its_source__gives_the_same_bits(tmp_path: Path) -> None:
    executable = made(tmp_path)
    (tmp_path / "program.py").unlink()
    (tmp_path / "run.py").write_text(RUN, encoding="utf-8")
    command = [sys.executable, "run.py", "program.abele-exe", "got.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    engine = ab.Engine(executable)
    wanted = np.zeros((4, 30), np.float32)
    engine.connect("out", wanted)
    engine.run("work")
    engine.run("send")
    np.testing.assert_array_equal(np.load(tmp_path / "got.npy"), wanted)
    assert int(done.stdout) == int(engine.report.cycles().total)


@pytest.mark.parametrize("trusted", [False, True])
def test_executable__loaded_with_and_without_trust__has_the_same_report_and_results(
    tmp_path: Path, trusted: bool
) -> None:
    executable = made(tmp_path)
    loaded = ab.Executable.load(tmp_path / "program.abele-exe", trusted=trusted)
    assert loaded.program_names == executable.program_names
    for column in ("name", "kind", "cycles", "compute_cycles", "exchange_cycles", "executions", "num_vertices"):
        assert list(loaded.report.steps[column]) == list(executable.report.steps[column])
    np.testing.assert_array_equal(loaded.report.memory.bytes, executable.report.memory.bytes)
    engines = [ab.Engine(e, threads=1) for e in (executable, loaded)]
    for engine in engines:
        engine.run("work")
    np.testing.assert_array_equal(engines[0]["x"], engines[1]["x"])


def test_executable__saved_again_after_loading__is_the_same_file(tmp_path: Path) -> None:
    made(tmp_path)
    first = tmp_path / "program.abele-exe"
    ab.Executable.load(first).save(tmp_path / "again")
    documents = [document(path) for path in (first, tmp_path / "again")]
    assert documents[0]["nodes"] == documents[1]["nodes"]
    assert documents[0]["graph"]["codelets"] == documents[1]["graph"]["codelets"]


def test_executable__library_calls__run_fused_and_as_placed(tmp_path: Path) -> None:
    graph = ab.Graph("bow")
    a, b = (graph.variable(f16, (40, 12), name=n).map_linear() for n in "ab")
    program = ab.Sequence()
    product = ab.poplin.matmul(graph, a, b.T, program)
    total = popops.reduce(graph, popops.map(graph, lambda x: x * x + 1.0, [product], program), [0], "ADD", program)
    graph.expose(total, "total", writable=False)
    ab.compile_program(graph, program).save(tmp_path / "library")
    values = np.random.default_rng(0).random((2, 40, 12)).astype(np.float16)
    results = []
    for executable in (ab.compile_program(graph, program), ab.Executable.load(tmp_path / "library")):
        for mode in ("native", "tiles"):
            engine = ab.Engine(executable, mode=mode)
            engine["a"], engine["b"] = values
            engine.run()
            results.append(engine["total"])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


ADD = ir.HostKernel(
    ((4,), (4,), (4,)),
    (f32,) * 3,
    2,
    1,
    (ir.nest({"i": 4}, ir.store(2, ("i",), ir.load(0, "i") + ir.load(1, "i"))),),
)


def saved_sums(path: Path) -> None:
    """A program that copies on tiles, and on hosts makes running sums of five rows; it changes an order meanwhile."""
    graph = ab.Graph("bow-2000:1")
    x, sums, turned = (graph.variable("f32", (n, 4), name=v).map(0) for v, n in (("x", 5), ("sums", 6), ("turned", 6)))
    body = ab.Sequence()
    with graph.library_call(body, "add", inputs=(x[0], sums[0]), outputs=(sums[1],), kernel=ADD, debug_name="add"):
        pass
    steps = ab.Sequence(ab.Copy(x, sums[:5]))
    order = HostOrder(sums, sums.reshape((4, 6)).T, turned)
    loop = HostLoop(5, body, {t.variables[0]: 4 for t in (x, sums)})
    steps.host_body = ab.Sequence(order, HostOrder(order.steps[1].destination, sums, turned), loop)
    ab.compile_program(graph, steps).save(path)


def test_host_order__elements_of_two_variables__is_refused() -> None:
    graph = ab.Graph("bow-2000:1")
    x, y, turned = (graph.variable("f32", (2, 4), name=v).map(0) for v in ("x", "y", "turned"))
    both = ab.concat([x[:1], y[:1]])
    with pytest.raises(ControlProgramError, match="has elements of 2 variables"):
        HostOrder(both, both, turned)


def test_executable__what_hosts_run_in_place_of_steps__is_saved(tmp_path: Path) -> None:
    saved_sums(tmp_path / "sums")
    rows = np.random.default_rng(0).random((5, 4)).astype(np.float32)
    wanted = {"native": np.cumsum(np.concatenate([np.zeros((1, 4), np.float32), rows]), axis=0)}
    wanted["tiles"] = np.concatenate([rows, np.zeros((1, 4), np.float32)])
    for mode, sums in wanted.items():
        engine = ab.Engine(ab.Executable.load(tmp_path / "sums"), mode=mode, keep=["x", "sums"])
        engine["x"], engine["sums"] = rows, np.zeros((6, 4), np.float32)
        engine.run()
        np.testing.assert_allclose(engine["sums"], sums, rtol=1e-6)


@pytest.mark.parametrize(("part", "value"), [(2, 7), (4, [[0, 8], [1, 4]]), (4, [[0, -4], [1, 4]]), (4, [[99, 4]])])
def test_load__loop_of_hosts_that_leaves_its_variables__is_refused(tmp_path: Path, part: int, value: Any) -> None:
    saved_sums(tmp_path / "sums")

    def change(content: dict[str, Any]) -> None:
        next(n for n in content["nodes"] if n[0] == "HostLoop")[part] = value

    with pytest.raises(FileFormatError):
        ab.Executable.load(rewritten(tmp_path / "sums", tmp_path / "hostile", change))


def test_executable__every_kind_of_step__runs_as_before(tmp_path: Path) -> None:
    graph = ab.Graph("bow-2000", replicas=2)
    x = graph.variable(f32, (6,), name="x", initial=range(6)).map(0)
    y = graph.variable(f32, (6,), name="y", initial=0).map(1)
    which = graph.variable(i32, (), name="which", initial=1).map(0)
    go = graph.variable("bool", (), name="go", initial=False).map(0)
    row = graph.variable("u32", (), name="row", initial=2).map(0)
    counter = graph.variable("u32", (2,), name="counter").map(0)
    buffer = graph.remote_buffer("buffer", f32, 6, 3)
    function = graph.function(ab.Copy(x, y), parameters=[x], results=[y])
    host = graph.host_function("twice", [(f32, 6)], [(f32, 6)])
    node = ab.graph
    program = ab.Sequence(
        node.AssumeEqualAcrossReplicas(which),
        node.AssumeEqualAcrossReplicas(go),
        ab.Copy(x, buffer, offset=row),
        node.Switch(which, {0: ab.Sequence(), 1: ab.Copy(x[::-1], y)}),
        ab.If(go, ab.Sequence(), node.Block(ab.Copy(y[:3], x[3:]), "part")),
        ab.RepeatWhileTrue(ab.Sequence(), go, ab.Sequence()),
        ab.Call(function, [y], [x]),
        node.CycleCount(ab.Repeat(2, ab.Copy(x, y)), counter),
        node.CrossReplicaCopy(y, x, {0: 1, 1: 0}),
        node.CrossReplicaExchange(
            [node.CrossReplicaCopy(y, x, {0: 1, 1: 0}), node.CrossReplicaCopy(x, y, {0: 0, 1: 1})]
        ),
        node.HostCall(host, (x,), (y,)),
        node.SetFloatingPointBehaviour(invalid=False),
        node.Sync("external"),
        node.AbortOnCondition(go, "never"),
        ab.WriteUndef(x),
        ab.PrintTensor(y, "y", node.PrintTensorFmt(digits=2)),
    )
    executable = ab.compile_program(graph, program)
    executable.save(tmp_path / "all")
    texts, arrays = [], []
    for one in (executable, ab.Executable.load(tmp_path / "all")):
        engine = ab.Engine(one)
        engine.print_stream = io.StringIO()
        engine.connect_function("twice", lambda v: 2 * v)
        engine.run()
        texts.append(engine.print_stream.getvalue())
        arrays.append([engine["y"], engine["counter"], engine.read_remote("buffer", 2)])
    assert texts[0] == texts[1]
    assert "y" in texts[0]
    for before, after in zip(*arrays, strict=True):
        np.testing.assert_array_equal(before, after)


@ab.codelet
class Reach(ab.Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    at: i32

    def compute(self):
        self.y[self.at] = self.x[self.at]


def test_executable__codelet_that_reaches_outside__touches_nothing_and_is_told(tmp_path: Path) -> None:
    graph = ab.Graph("bow")
    x, y = (graph.variable(f32, (2, 4), name=n, initial=1).map_rows([3, 4]) for n in "xy")
    step = graph.compute_set("reach")
    step.vertices(Reach, tile=[3, 4], x=x, y=y, at=[1, 1 << 20])
    ab.compile_program(graph, ab.Execute(step)).save(tmp_path / "reach")
    engine = ab.Engine(ab.Executable.load(tmp_path / "reach"))
    with pytest.raises(ApplicationRuntimeError, match=r"Reach reaches for [xy]\[1048576\], which has 4") as caught:
        engine.run()
    assert "on tile 4" in (caught.value.at or "")
    assert (engine["x"] == 1).all()
    engine.write("x", 2.0)


def test_executable__in_debug_mode__says_that_there_is_no_source(tmp_path: Path) -> None:
    made(tmp_path)
    engine = ab.Engine(ab.Executable.load(tmp_path / "program.abele-exe"), debug=True)
    engine.run("work")
    plain = ab.Engine(ab.Executable.load(tmp_path / "program.abele-exe"))
    plain.run("work")
    np.testing.assert_array_equal(engine["x"], plain["x"])


# --- files that are not whole ---------------------------------------------------------------------------------------


def document(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return dict(json.loads(archive.read("executable.json")))


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any]], None], **members: bytes) -> Path:
    """A copy of a file with another document or other members."""
    content = document(path)
    change(content)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            if name == "executable.json":
                archive.writestr(name, json.dumps(content))
            else:
                archive.writestr(name, members.get(name.removesuffix(".npy"), source.read(name)))
    return target


def test_load__no_such_file_or_another_kind__is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="No such file"):
        ab.Executable.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(FileFormatError, match="not an Abele executable"):
        ab.Executable.load(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(FileFormatError, match=r"holds no executable\.json"):
        ab.Executable.load(tmp_path / "zip")


def test_load__newer_version__is_refused_with_what_to_do(tmp_path: Path) -> None:
    made(tmp_path)
    newer = rewritten(tmp_path / "program.abele-exe", tmp_path / "newer", lambda d: d.update(version=7))
    with pytest.raises(FileFormatError, match="format version 7; this Abele reads up to version 6") as caught:
        ab.Executable.load(newer)
    assert "install a newer Abele" in (caught.value.remedy or "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    made(folder)
    return (folder / "program.abele-exe").read_bytes()


def is_refused(content: bytes, folder: Path) -> bool:
    """True if loading refuses a file, with an error that names it."""
    (folder / "broken").write_bytes(content)
    try:
        ab.Executable.load(folder / "broken")
    except FileFormatError as error:
        return "broken" in str(error)
    return False


@settings(examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_load__cut_short__is_refused(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    assert is_refused(whole[: data.draw(st.integers(0, len(whole) - 1))], tmp_path)


@settings(examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_load__flipped_byte__is_refused_or_does_not_matter(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    if not is_refused(broken, tmp_path):
        loaded = ab.Executable.load(tmp_path / "broken")
        assert loaded.program_names == ("work", "send")


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(content: dict[str, Any]) -> None:
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("graph", "system", "num_ipus", -1),
        _set("graph", "system", "surprise", 1),
        _set("graph", "replicas", 3),
        _set("graph", "variables", 0, 2, [-4, 30]),
        _set("graph", "variables", 0, 2, [4, 31]),
        _set("graph", "variables", 0, 1, "f64"),
        _set("graph", "variables", 0, 3, "file"),
        _set("graph", "variables", 0, 4, 0, "../../etc/passwd"),
        _set("graph", "codelets", 0, "kind", "root"),
        _set("graph", "codelets", 0, "tree", {"is": "Popen", "has": []}),
        _set("graph", "codelets", 0, "tree", None),
        _set("graph", "codelets", 0, "fields", 0, 1, "sideways"),
        _set("graph", "compute_sets", 0, 1, 0, "codelet", 7),
        _set("graph", "compute_sets", 0, 1, 0, "edges", {}),
        _set("views", 0, 1, [9, 99]),
        _set("views", 0, 2, [[0, 119, [0, 0], [[], [[2, 1, 1]]]]]),
        _set("views", 0, 2, [[0, -1, [0, 0], [[], []]]]),
        _set("views", 0, 2, [[55, 0, [0, 0], [[], []]]]),
        _set("nodes", 0, 0, "System"),
        _set("nodes", 0, 2, 44),
        _set("programs", {"work": 99}),
        _set("version", "one"),
        _set("format", "abele-report"),
    ],
)
def test_load__hostile_document__is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    made(tmp_path)
    hostile = rewritten(tmp_path / "program.abele-exe", tmp_path / "hostile", change)
    with pytest.raises(FileFormatError):
        ab.Executable.load(hostile)


def test_load__pickled_array__is_never_unpickled(tmp_path: Path) -> None:
    made(tmp_path)
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": print}], dtype=object), allow_pickle=True)
    hostile = rewritten(tmp_path / "program.abele-exe", tmp_path / "hostile", lambda d: None, a0=stream.getvalue())
    with pytest.raises(FileFormatError, match="damaged"):
        ab.Executable.load(hostile)


def test_load__regions_outside_the_graph__are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    content = document(tmp_path / "program.abele-exe")
    name = content["graph"]["regions"][0]["begin"].removesuffix(".npy")
    stream = io.BytesIO()
    np.save(stream, np.full(4, 1 << 40))
    hostile = rewritten(
        tmp_path / "program.abele-exe", tmp_path / "hostile", lambda d: None, **{name: stream.getvalue()}
    )
    with pytest.raises(FileFormatError, match="damaged"):
        ab.Executable.load(hostile)


def test_save__folder_that_is_not_there__is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    executable = made(tmp_path)
    with pytest.raises(FileFormatError, match="cannot be written"):
        executable.save(tmp_path / "nowhere" / "x")
    before = (tmp_path / "program.abele-exe").read_bytes()
    executable.save(tmp_path / "program.abele-exe")
    assert len((tmp_path / "program.abele-exe").read_bytes()) == len(before)
    assert not list(tmp_path.glob("*.part"))


def test_load__codelet_without_its_variables__is_refused_when_it_is_compiled(tmp_path: Path) -> None:
    made(tmp_path)
    hostile = rewritten(
        tmp_path / "program.abele-exe",
        tmp_path / "hostile",
        lambda d: d["graph"]["codelets"][0]["tree"]["has"].__setitem__(3, {"map": []}),
    )
    with pytest.raises(FileFormatError, match="damaged"):
        ab.Executable.load(hostile)
