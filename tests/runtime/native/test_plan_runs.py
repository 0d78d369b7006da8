"""Native execution against tiles: the same values, whatever is fused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import EngineError
from abele.graph import Copy, Execute, Graph, If, Repeat, Sequence, Tensor, concat
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f32
from abele.poplibs import popops
from abele.runtime import Engine
from support.engines import run_both, run_once
from support.examples import examples
from support.vertices import Increment

N = 6


def turned(graph: Graph, prog: Sequence, source: Tensor, destination: Tensor) -> None:
    """A library call that writes the transpose of ``source``; its body is a copy."""
    body_kernel = nest({"i": N, "j": N}, store(1, ("i", "j"), load(0, "j", "i")))
    kernel = HostKernel(((N, N), (N, N)), (f32, f32), 1, 1, (body_kernel,))
    with graph.library_call(prog, "turn", inputs=(source,), outputs=(destination,), kernel=kernel) as body:
        body.add(Copy(source.T, destination))


def raised(graph: Graph, prog: Sequence, tensor: Tensor) -> None:
    """A library call in place: every element grows by one; its body is a superstep."""
    body_kernel = nest({"i": N, "j": N}, store(1, ("i", "j"), load(0, "i", "j") + 1.0))
    kernel = HostKernel(((N, N), (N, N)), (f32, f32), 1, 1, (body_kernel,))
    with graph.library_call(prog, "raise", inputs=(tensor,), outputs=(tensor,), kernel=kernel) as body:
        step = graph.compute_set("raise")
        step.vertices(Increment, tile=[0], y=tensor.reshape(1, N * N))
        body.add(Execute(step))


def _graph(num: int = 5) -> tuple[Graph, list[Tensor]]:
    graph = Graph("bow-2000")
    return graph, [graph.variable("f32", (N, N), f"v{i}").map(i) for i in range(num)]


def _values(num: int = 5) -> dict[str, np.ndarray]:
    return {f"v{i}": (np.arange(N * N, dtype=np.float32) + 100 * i).reshape(N, N) for i in range(num)}


steps = st.tuples(
    st.sampled_from(["turn", "copy", "half", "swap", "joined", "flat", "in_place", "recut", "woven", "weave"]),
    st.integers(0, 4),
    st.integers(0, 4),
)
plain = st.lists(steps, max_size=6)


def woven(a: Tensor, b: Tensor) -> Tensor:
    """Rows of one among rows of the other: two parts, each of which lies between the other's rows."""
    return concat([a.reshape(2, 3, N)[:, :1], b.reshape(2, 3, N)[:, 1:]], 1).reshape(N, N)


def _program(graph: Graph, variables: list[Tensor], items: list) -> Sequence:
    prog = Sequence()
    for kind, a, b in items:
        if kind == "turn" and a != b:
            turned(graph, prog, variables[a], variables[b])
        elif kind == "copy" and a != b:
            prog.add(Copy(variables[a][::-1], variables[b]))
        elif kind == "half" and a != b:
            prog.add(Copy(variables[a][: N // 2], variables[b][N // 2 :]))
        elif kind == "joined" and a != b:
            turned(
                graph, prog, concat([variables[a][2:], variables[b][:2]]), variables[(a + b) % 5 if a + b != 5 else b]
            )
        elif kind == "flat" and a != b:
            prog.add(Copy(variables[a].T.reshape(N * N), variables[b].reshape(2, -1)))
        elif kind == "in_place" and a != b:
            raised(graph, prog, concat([variables[a][:2], variables[b][2:]]))
        elif kind == "recut" and a != b:
            turned(
                graph,
                prog,
                variables[a].reshape(2, 3, 6).transpose(0, 2, 1).reshape(4, 9).T.reshape(N, N),
                variables[b],
            )
        elif kind == "woven" and a != b:
            turned(
                graph, prog, woven(variables[a], variables[b]), variables[next(n for n in range(5) if n not in (a, b))]
            )
        elif kind == "weave" and a != b:
            raised(graph, prog, woven(variables[a], variables[b]))
            prog.add(Copy(woven(variables[b], variables[a]), variables[next(n for n in range(5) if n not in (a, b))]))
        elif kind == "swap":
            prog.add(Copy(concat([variables[a][3:], variables[a][:3]]), variables[a]))
    return prog


@examples(6)
@given(before=plain, body=plain, after=plain, rounds=st.integers(0, 3))
def test_native__any_run_of_calls_and_copies__agrees_with_tiles(before, body, after, rounds):
    graph, variables = _graph()
    program = Sequence(
        _program(graph, variables, before),
        Repeat(rounds, _program(graph, variables, body)),
        _program(graph, variables, after),
    )
    tiles, native = run_both(graph, program, _values(), runs=2)
    kept = run_both(graph, program, _values(), keep=[v.name for v in variables], runs=2)[1]
    for variable in variables:
        np.testing.assert_array_equal(kept[variable], tiles[variable])
        try:
            values = native[variable]
        except EngineError:
            continue
        np.testing.assert_array_equal(values, tiles[variable])


def test_native__value_between_calls__can_be_read_only_when_kept():
    graph, (a, b, c, *_) = _graph()
    prog = Sequence()
    turned(graph, prog, a, b)
    turned(graph, prog, b, c)
    engine = run_once(graph, prog, {"v0": _values()["v0"]})
    np.testing.assert_array_equal(engine["v2"], _values()["v0"])
    with pytest.raises(EngineError) as caught:
        engine["v1"]
    assert "only lives inside fused kernels" in str(caught.value)
    assert "keep=['v1']" in str(caught.value)
    kept = run_once(graph, prog, {"v0": _values()["v0"]}, keep=[b])
    np.testing.assert_array_equal(kept[b], _values()["v0"].T)


def test_native__value_that_a_tile_step_reads__is_stored():
    graph, (a, b, c, d, _) = _graph()
    flag = graph.variable("bool", 1, "flag", initial=[True]).map(0)
    prog = Sequence()
    turned(graph, prog, a, b)
    turned(graph, prog, b, c)
    engine = run_once(graph, Sequence(prog, If(flag, Copy(b, d))), {"v0": _values()["v0"]})
    np.testing.assert_array_equal(engine["v1"], _values()["v0"].T)
    np.testing.assert_array_equal(engine["v3"], _values()["v0"].T)


def test_native__streams_beside_kernels__are_read_and_written_in_place():
    graph, (a, b, *_) = _graph()
    source, sink = graph.host_stream_in("in", "f32", N * N), graph.host_stream_out("out", "f32", N * N)
    prog = Sequence(Copy(source, a.flatten()))
    turned(graph, prog, a, b)
    prog.add(Copy(b.flatten(), sink))
    values = np.arange(3 * N * N, dtype=np.float32).reshape(3, N, N)
    for data in (values, list(values)):
        received = np.zeros((3, N, N), np.float32)
        with Engine(graph, Repeat(3, prog), threads=2) as engine:
            engine.connect(source, data)
            engine.connect(sink, received)
            engine.run()
        np.testing.assert_array_equal(received, values.transpose(0, 2, 1))
    collected = []
    with Engine(graph, Repeat(3, prog), threads=2) as engine:
        engine.connect(source, values)
        engine.connect(sink, lambda items: collected.append(items.reshape(N, N)))
        engine.run()
    np.testing.assert_array_equal(collected, values.transpose(0, 2, 1))


def test_native__any_number_of_threads__gives_the_same_bits():
    size = 96
    product = nest(
        {"i": size, "j": size, "k": size}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add")
    )
    kernel = HostKernel(((size, size),) * 3, (f32,) * 3, 2, 1, (product,))
    results = []
    for threads in (1, 2, 3):
        graph = Graph("bow-2000")
        x, y, z = (graph.variable("f32", (size, size), name).map_linear() for name in "xyz")
        prog = Sequence()
        with graph.library_call(prog, "product", inputs=(x, y), outputs=(z,), kernel=kernel):
            pass
        rng = np.random.default_rng(1)
        inputs = {name: rng.standard_normal((size, size)).astype(np.float32) for name in "xy"}
        results.append(run_once(graph, prog, inputs, threads=threads)["z"])
        np.testing.assert_allclose(results[-1], inputs["x"] @ inputs["y"], rtol=1e-4, atol=1e-4)
    assert all((r == results[0]).all() for r in results)


@pytest.mark.parametrize("batch", [3, 40])
def test_native__operand_of_parts_among_each_other__runs_as_a_kernel(batch):
    graph = Graph("bow-2000")
    x, y = (graph.variable("f32", (batch, 7, 4), name).map_linear() for name in "xy")
    out = graph.variable("f32", (batch * 7, 4), "out").map_linear()
    # As the gradient of one token of each sample, with the others' zeros: flattened, parts lie between parts.
    seen = concat([x[:, 2:3], y[:, 1:]], 1).reshape(batch * 7, 4)
    assert seen.blocks is None
    dims = {"i": batch * 7, "j": 4}
    kernel = HostKernel((seen.shape,) * 2, (f32, f32), 1, 1, (nest(dims, store(1, "ij", load(0, *"ij") * 2.0)),))
    prog = Sequence()
    with graph.library_call(prog, "double", inputs=(seen,), outputs=(out,), kernel=kernel):
        pass  # without a kernel it would compute nothing
    values = {n: np.random.default_rng(3).standard_normal((batch, 7, 4)).astype(np.float32) for n in "xy"}
    engine = run_once(graph, prog, values)
    want = np.concatenate([values["x"][:, 2:3], values["y"][:, 1:]], 1).reshape(batch * 7, 4) * 2
    np.testing.assert_array_equal(engine["out"], want)


HEADS = {
    "of channels": ((4, 4, 4, 6), lambda of: of([2, 0, 1, 3], 1).reshape(4, 192).reshape(6, 16, 8).reshape(64, 12)),
    "turned round": (
        (4, 4, 24, 1),
        lambda of: of([3, 2, 1, 0], 3).reshape(2, 16, 24).transpose(1, 2, 0).reshape(2, 384),
    ),
    "side by side": ((4, 4, 24), lambda of: of([0, 1, 2], 2).reshape(6, 128).reshape(64, 12)),
    "between others": (
        (4, 4, 4, 6),
        lambda of: of([0, 1, 2, 3], 1).transpose(0, 2, 1, 3).reshape(6, 16, 8).reshape(96, 8),
    ),
}
"""Shape of each of two parts, and what is seen of both, of a function that permutes each and joins them along a dim."""


@pytest.mark.parametrize(("shape", "view"), HEADS.values(), ids=HEADS)
def test_native__parts_of_heads_flattened__are_planned_and_copied(shape, view):
    # The strides of the two sides of such a copy cut its dims at places that do not divide each other.
    graph = Graph("bow-2000")
    parts = [graph.variable("f32", shape, name).map_linear() for name in "xy"]
    seen = view(lambda order, dim: concat([p.transpose(*order) for p in parts], dim))
    assert seen.strided() is None
    copied, out = (graph.variable("f32", seen.shape, name).map_linear() for name in ("copied", "out"))
    doubling = nest(dict(zip("ij", seen.shape, strict=True)), store(1, "ij", load(0, *"ij") * 2.0))
    kernel = HostKernel((seen.shape,) * 2, (f32, f32), 1, 1, (doubling,))
    prog = Sequence(Copy(seen, copied))
    with graph.library_call(prog, "double", inputs=(copied,), outputs=(out,), kernel=kernel):
        pass  # without a kernel it would compute nothing
    values = {name: np.random.default_rng(5).standard_normal(shape).astype(np.float32) for name in "xy"}
    want = view(lambda order, dim: np.concatenate([values[name].transpose(order) for name in "xy"], dim))
    np.testing.assert_array_equal(run_once(graph, prog, values)["out"], 2 * want)


def test_native__operand_reshaped_across_its_layout__is_fused_all_the_same():
    graph = Graph("bow-2000")
    x = graph.variable("f32", (3, 2, 4), "x", initial=np.arange(24).reshape(3, 2, 4)).map(0)
    y = graph.variable("f32", (2, 4, 3), "y").map(0)
    seen = x.transpose(1, 0, 2).reshape(2, 12).reshape(2, 4, 3)
    assert seen.blocks is None
    shape = (2, 4, 3)
    dims = dict(zip("ijk", shape, strict=True))
    kernel = HostKernel((shape, shape), (f32, f32), 1, 1, (nest(dims, store(1, "ijk", load(0, *"ijk") + 1.0)),))
    prog = Sequence()
    with graph.library_call(prog, "add_one", inputs=(seen,), outputs=(y,), kernel=kernel):
        pass
    with Engine(graph, prog, threads=2) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["y"], engine[seen] + 1)


def test_native__copy_of_groups_of_7_columns_into_groups_of_8__moves_every_element() -> None:
    graph, prog = Graph("bow-2000"), Sequence()
    first = graph.variable(f32, (2, 3, 7), "first").map_linear()
    rest = graph.variable(f32, (3, 26), "rest").map_linear()
    made = graph.variable(f32, (5, 3, 8), "made").map_linear()
    source = concat([first.transpose((1, 0, 2)).reshape((3, 14)), rest], 1)
    destination = made.transpose((1, 0, 2)).reshape((3, 40))
    popops.mul_in_place(graph, rest, 2.0, prog)
    # The second group of the destination begins inside of the second group of the source.
    prog.add(Copy(source, destination))
    popops.add_in_place(graph, destination, 1.0, prog)
    values = np.arange(120, dtype=np.float32).reshape(3, 40)
    with Engine(graph, prog, keep=[source, destination]) as engine:
        engine[source] = values
        engine.run()
        values[:, 14:] *= 2
        np.testing.assert_array_equal(engine[destination], values + 1)
