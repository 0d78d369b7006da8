"""Ops with explicit placement: their text, what passes make of them, and where rows lie on the machine."""

import numpy as np
import pytest

from abele.errors import NetworkError, UnknownVertexTypeError, UnsupportedOpError
from abele.network import NetworkBuilder, evaluate, inference_pipeline, parse, verify
from abele.network.ops import build, tiles
from abele.numerics import f32, u32
from abele.session import Session

TILES = (4, 7, 9)
ADD = "popops::BinaryOp1D<popops::expr::BinaryOpType::ADD,float>"
ADD_IN_PLACE = "popops::BinaryOp1DInPlace<popops::expr::BinaryOpType::ADD,float>"
tiles.MEANINGS["test add"] = lambda a, b: (a + b,)


def add(net, a, b, *, in_place=False):
    field = "in1Out" if in_place else "out"
    operands = [("in1Out" if in_place else "in1", a), ("in2", b)]
    vertex = ADD_IN_PLACE if in_place else ADD
    (made,) = tiles.tile_map(net, vertex, operands, [(field, a.shape, f32)], TILES, meaning="test add")
    return made


def example():
    net = NetworkBuilder()
    x, y = net.input((3, 8), "f32", "x"), net.input((8,), "f32", "y")
    a, b = tiles.tile_put(net, x, TILES), tiles.tile_put(net, y, TILES, replicated=True)
    c = tiles.tile_constant(net, np.arange(24, dtype=np.float32).reshape(3, 8), f32, TILES)
    a, b = tiles.tile_barrier(net, [a, b])
    a, start = tiles.tile_cycles(net, [a], TILES)
    d = add(net, add(net, a, b), c, in_place=True)
    net.output(tiles.tile_gather(net, d, TILES, (2, 1, 0, 0), (4, 7, 9, 1), copy=False))
    net.output(build.bitcast(net, build.reshape(net, d, (3, 2, 4)), u32))
    net.output(start)
    return net.finish()


def feeds(net, seed=0):
    rng = np.random.default_rng(seed)
    return {v: rng.normal(size=v.shape).astype(np.float32) for v in net.inputs}


def expected(given):
    x, y = given.values()
    d = x + y + np.arange(24, dtype=np.float32).reshape(3, 8)
    return d[[2, 1, 0, 0]], d.view(np.uint32).reshape(3, 2, 4)


def test_text_reads_back__and_passes_leave_placement():
    net = example()
    verify(net)
    assert parse(str(net)) == net
    final = inference_pipeline().run(net)
    verify(final)
    of_tiles = [op for op in net.ops if op.kind.startswith("tile")]
    assert [(op.kind, op.attrs["tiles"]) for op in of_tiles if "tiles" in op.attrs] == [
        (op.kind, op.attrs["tiles"]) for op in final.ops if "tiles" in op.attrs
    ]


def test_numpy_and_the_machine_agree():
    net = example()
    given = feeds(net)
    values = evaluate(net, given, precise=False)
    with Session.of(net) as session:
        made = session(*given.values())
    for want, in_numpy, on_machine in zip(expected(given), net.outputs, made, strict=False):
        np.testing.assert_array_equal(values[in_numpy], want)
        np.testing.assert_array_equal(on_machine, want)
    assert made[2].any()


def test_equal_calls_stay_two__and_unread_ones_go():
    net = NetworkBuilder()
    x = tiles.tile_put(net, net.input((3, 8), "f32", "x"), TILES)
    first, second, _ = add(net, x, x), add(net, x, x), add(net, x, x)
    net.output(build.map_(net, build_sum(), [first, second], f32))
    assert [op.kind for op in inference_pipeline().run(net.finish()).ops].count("tile_map") == 2


def build_sum():
    from abele.expr.derivative import arg

    return arg(0) + arg(1)


def test_constants_that_are_put__are_part_of_the_program():
    net = NetworkBuilder()
    x = net.constant(np.arange(24).reshape(3, 8), "f32")
    net.output(tiles.tile_put(net, x, TILES))
    net.output(tiles.tile_put(net, x, TILES, replicated=True))
    kinds = [op.kind for op in inference_pipeline().run(net.finish()).ops]
    assert kinds == ["tile_constant", "tile_constant"]


def test_loops_carry_rows_on_their_tiles():
    net = NetworkBuilder()
    x = tiles.tile_put(net, net.input((3, 8), "f32", "x"), TILES)

    def trip(body, number, v):
        doubled = add(body, v, v)
        return [tiles.tile_gather(body, add(body, doubled, v, in_place=True), TILES, (1, 2, 0), TILES, copy=False)]

    (y,) = build.loop(net, 3, [x], trip)
    net.output(y)
    final = net.finish()
    given = feeds(final)
    (array,) = given.values()
    want = 27 * array
    np.testing.assert_allclose(evaluate(final, given, precise=False)[y], want, rtol=1e-6)
    with Session.of(final) as session:
        np.testing.assert_allclose(np.asarray(session(array)).reshape(3, 8), want, rtol=1e-6)
        table = session.compiled.executable.report.steps
        inside = [name for kind, name in zip(table["kind"], table["name"], strict=True) if kind == "compute"]
        assert inside.count("BinaryOp1D") == 1


def test_derivatives_of_placement():
    from abele.network.autodiff import differentiate

    net = NetworkBuilder()
    w, v = net.parameter((3, 8), "f32", "w"), net.parameter((8,), "f32", "v")
    a, b = tiles.tile_put(net, w, TILES), tiles.tile_put(net, v, TILES, replicated=True)
    rows = tiles.tile_gather(net, a, TILES, (0, 0, 2), TILES, copy=True)
    from abele.expr.derivative import arg

    product = build.map_(net, arg(0) * arg(1), [rows, b], f32)
    net.loss = build.reduce(net, product, [0, 1], "add")
    final = differentiate(net.finish(), [w, v])
    given = {x: np.random.default_rng(0).normal(size=x.shape).astype(np.float32) for x in (w, v)}
    values = evaluate(final, given, precise=False)
    of_w, of_v = (values[final.gradients[x]] for x in (w, v))
    np.testing.assert_allclose(of_w, np.stack([2 * given[v], 0 * given[v], given[v]]), rtol=1e-6)
    np.testing.assert_allclose(of_v, given[w][[0, 0, 2]].sum(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda net, x: tiles.tile_put(net, x, (1, 2)), "a row for each of 2 tiles"),
        (lambda net, x: tiles.tile_gather(net, x, (1, 2), (0,), (1,), copy=False), "no row for each of 2 tiles"),
        (lambda net, x: tiles.tile_gather(net, x, TILES, (3,), (1,), copy=False), "an index is outside"),
        (lambda net, x: tiles.tile_gather(net, x, TILES, (0,), (1, 2), copy=False), "there is no index for each tile"),
        (lambda net, x: tiles.tile_set_seeds(net, x, TILES), "they have to be u32"),
    ],
)
def test_illegal_ops(make, words):
    net = NetworkBuilder()
    x = net.input((3, 8), "f32", "x")
    net.output(make(net, x))
    with pytest.raises(NetworkError, match=words):
        verify(net.finish())


def test_vertices_without_a_meaning_or_name():
    net = NetworkBuilder()
    x = tiles.tile_put(net, net.input((3, 8), "f32", "x"), TILES)
    (y,) = tiles.tile_map(net, "nowhere::Vertex", [("in", x)], [("out", x.shape, f32)], TILES)
    net.output(y)
    with pytest.raises(UnsupportedOpError, match="no meaning outside of the device"):
        evaluate(net.finish(), feeds(net.finish()))
    with pytest.raises(UnknownVertexTypeError, match="nowhere::Vertex"):
        Session.of(net.finish())
