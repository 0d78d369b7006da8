"""Programs in the style of public ones that place library vertices themselves, spelt as in Poplar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import assert_close

from abele.numerics import f16, f32
from abele.poplar import BOOL, FLOAT, HALF, UNSIGNED_INT, UNSIGNED_SHORT, Engine, Graph
from abele.poplar.program import Copy, Execute, Repeat, RepeatWhileTrue, Sequence
from abele.poplibs import poplin, popnn, popops, poprand, poputil
from abele.poplibs.popnn import NonLinearityType
from abele.poplibs.popops import BinaryOpType, UnaryOpType

rng = np.random.default_rng(17)


def made(tiles: int = 16) -> Graph:
    from poplibs_kit import system_of

    graph = Graph(system_of(tiles))
    for library in (popops, poplin, popnn, poprand):
        library.addCodelets(graph)
    return graph


def rows_on_tiles(graph: Graph, dtype: Any, shape: tuple[int, ...], name: str) -> Any:
    """A variable whose row i lies on tile i, as tile arrays of research codes do."""
    tensor = graph.addVariable(dtype, shape, name)
    for tile in range(shape[0]):
        graph.setTileMapping(tensor[tile], tile)
    graph.createHostWrite(name, tensor)
    graph.createHostRead(f"{name}_out", tensor)
    return tensor


def ran(graph: Graph, program: Any, wanted: tuple[str, ...], **data: Any) -> list[np.ndarray]:
    engine = Engine(graph, program)
    for name, values in data.items():
        engine.writeTensor(name, values)
    engine.run(0)
    return [np.asarray(engine.readTensor(name)) for name in wanted]


def test_tile_map__vertices_of_all_tiles_by_name__power_iteration_of_many_small_matrices() -> None:
    """A batch of 2×2 rotations applied 20 times, each on a tile of its own: tile_map of a library vertex, repeated."""
    graph = made(8)
    x, y = (rows_on_tiles(graph, FLOAT, (8, 64), n) for n in "xy")
    c, s = (rows_on_tiles(graph, FLOAT, (8, 1), n) for n in "cs")
    steps = Sequence()

    def tile_map(name: str, **fields: Any) -> None:
        cs = graph.addComputeSet(name)
        for tile in range(8):
            vertex = graph.addVertex(cs, name)
            for field, tensor in fields.items():
                graph.connect(vertex[field], tensor[tile])
            graph.setTileMapping(vertex, tile)
        steps.add(Execute(cs))

    def scalar(op: BinaryOpType) -> str:
        return poputil.templateVertex("popops::BroadcastScalar1D", op, FLOAT)

    def binary(op: BinaryOpType) -> str:
        return poputil.templateVertex("popops::BinaryOp1D", op, FLOAT)

    t = [rows_on_tiles(graph, FLOAT, (8, 64), f"t{i}") for i in range(4)]
    for out, data, factor in zip(t, (x, y, x, y), (c, s, s, c), strict=True):
        tile_map(scalar(BinaryOpType.MULTIPLY), data=data, B=factor, out=out)
    tile_map(binary(BinaryOpType.SUBTRACT), in1=t[0], in2=t[1], out=x)
    tile_map(binary(BinaryOpType.ADD), in1=t[2], in2=t[3], out=y)
    angle = np.linspace(0.05, 0.4, 8)[:, None]
    a, b = rng.normal(size=(2, 8, 64))
    got = ran(graph, Repeat(20, steps), ("x_out", "y_out"), x=a, y=b, c=np.cos(angle), s=np.sin(angle))
    turned = np.cos(20 * angle) * a - np.sin(20 * angle) * b, np.sin(20 * angle) * a + np.cos(20 * angle) * b
    for value, wanted in zip(got, turned, strict=True):
        assert_close(value, wanted, f32, 2.0)


def test_custom_op__masked_softmax_of_rows__select_reduce_exponential_and_division() -> None:
    """A custom op of a framework that writes its own attention softmax, one row per tile."""
    graph = made(4)
    n = 50
    x, out = rows_on_tiles(graph, HALF, (4, n), "x"), rows_on_tiles(graph, HALF, (4, n), "y")
    mask = rows_on_tiles(graph, BOOL, (4, n), "mask")
    low = graph.addConstant(HALF, [4, 1], -10000.0)
    most, total = rows_on_tiles(graph, HALF, (4, 1), "most"), rows_on_tiles(graph, HALF, (4, 1), "total")
    names = [
        "popops::Select<half>",
        poputil.templateVertex("popops::Reduce", "popops::ReduceMax", HALF, HALF, False, 2),
        poputil.templateVertex("popops::BroadcastScalar1DInPlace", BinaryOpType.SUBTRACT, HALF),
        poputil.templateVertex("popops::UnaryOp1DInPlace", UnaryOpType.EXPONENT, HALF),
        poputil.templateVertex("popops::ContinuousReduce", "popops::ReduceAdd", HALF, HALF, False),
        poputil.templateVertex("popops::BroadcastScalar1DInPlace", BinaryOpType.DIVIDE, HALF),
    ]
    sets = [graph.addComputeSet(name) for name in names]
    for tile in range(4):
        graph.setTileMapping(low[tile], tile)
        v = [graph.addVertex(cs, name) for cs, name in zip(sets, names, strict=True)]
        graph.connect(v[0]["in1"], [x[tile]])
        graph.connect(v[0]["in2"], [low[tile].broadcast(n, 0)])
        graph.connect(v[0]["in3"], [mask[tile]])
        graph.connect(v[0]["out"], [out[tile]])
        graph.connect(v[1]["partials"], out[tile])
        graph.connect(v[1]["out"], most[tile])
        graph.setInitialValue(v[1]["numPartials"], n)
        graph.connect(v[2]["data"], out[tile])
        graph.connect(v[2]["B"], most[tile])
        graph.connect(v[3]["inOut"], out[tile])
        graph.connect(v[4]["partials"], out[tile])
        graph.connect(v[4]["out"], total[tile])
        graph.setInitialValue(v[4]["numOutputsM1"], 0)
        graph.setInitialValue(v[4]["numPartials"], n)
        graph.connect(v[5]["data"], out[tile])
        graph.connect(v[5]["B"], total[tile])
        for vertex in v:
            graph.setTileMapping(vertex, tile)
    values, keep = rng.normal(size=(4, n)) * 3, rng.random((4, n)) < 0.7
    (got,) = ran(graph, Sequence(*map(Execute, sets)), ("y_out",), x=values, mask=keep)
    exponents = np.exp(np.where(keep, values, -np.inf))
    assert_close(got, exponents / exponents.sum(1, keepdims=True), f16)


def test_sparse_embedding__a_table_over_tiles__looked_up_and_updated_by_its_own_vertices() -> None:
    """Every tile holds some rows; all look at all indices, and a sum over tiles joins what they found."""
    graph = made(8)
    per_tile, width, lookups = 5, 6, 12
    table = rows_on_tiles(graph, FLOAT, (8, per_tile * width), "table")
    indices = graph.addVariable(UNSIGNED_INT, [lookups], "indices")
    grads = graph.addVariable(FLOAT, [lookups * width], "grads")
    result = graph.addVariable(FLOAT, [lookups * width], "result")
    found = rows_on_tiles(graph, FLOAT, (8, lookups * width), "found")
    scale = graph.addConstant(FLOAT, [], -0.5)
    for tensor in (indices, grads, result, scale):
        graph.setTileMapping(tensor, 0)
    graph.createHostWrite("indices", indices)
    graph.createHostWrite("grads", grads)
    graph.createHostRead("result", result)
    fill, take, join, add = (graph.addComputeSet(n) for n in ("fill", "take", "join", "add"))
    for tile in range(8):
        zero = graph.addVertex(fill, "popops::Fill<float>", {"out": found[tile]})
        graph.setInitialValue(zero["in"], 0.0)
        looked = graph.addVertex(take, "popops::MultiSlice<float>", {"offsets": indices, "baseT": table[tile]})
        graph.connect(looked["subT"], found[tile])
        more = graph.addVertex(add, poputil.templateVertex("popops::MultiUpdateAdd", FLOAT, FLOAT, False))
        for field, tensor in {"offsets": indices, "baseT": table[tile], "subT": grads, "scale": scale}.items():
            graph.connect(more[field], tensor)
        for vertex in (looked, more):
            graph.setInitialValue(vertex["baseOffset"], tile * per_tile)
            graph.setInitialValue(vertex["numBaseElements"], per_tile)
            graph.setInitialValue(vertex["regionSize"], width)
        for vertex in (zero, looked, more):
            graph.setTileMapping(vertex, tile)
    summed = graph.addVertex(join, "popops::Reduce<popops::ReduceAdd,float,float,false,0u>")
    graph.setFieldSize(summed["partials"], 8)
    for tile in range(8):
        graph.connect(summed["partials"][tile], found[tile])
    graph.connect(summed["out"], [result])
    graph.setInitialValue(summed["numPartials"], [8])
    graph.setTileMapping(summed, 0)
    rows, index, g = rng.normal(size=(40, width)), rng.integers(0, 40, lookups), rng.normal(size=(lookups, width))
    index[3] = index[7]
    got, updated = ran(
        graph,
        Sequence(*map(Execute, (fill, take, join, add))),
        ("result", "table_out"),
        table=rows.reshape(8, -1),
        indices=index,
        grads=g.reshape(-1),
    )
    assert_close(got.reshape(lookups, width), rows[index], f32)
    wanted = rows.copy()
    np.add.at(wanted, index, -0.5 * g)
    assert_close(updated.reshape(40, width), wanted, f32)


@pytest.mark.parametrize("dtype", [HALF, FLOAT])
def test_matrix_product__partials_on_the_matrix_units_and_their_sum(dtype: Any) -> None:
    """C = A·B with the inner dimension over tiles: a ConvPartial1x1Out each, then a ReduceAdd."""
    graph = made(4)
    m, k, n, one = 24, 16, 16, dtype.np
    a, b = rows_on_tiles(graph, dtype, (4, m * k), "a"), rows_on_tiles(graph, dtype, (4, n * k), "b")
    partials, c = rows_on_tiles(graph, FLOAT, (4, m * n), "p"), graph.addVariable(FLOAT, [m * n], "c")
    graph.setTileMapping(c, 0)
    graph.createHostRead("c", c)
    loads = 8 // dtype.bytes
    work = np.array([v for w in range(6) for v in (w * 4 * n // 2, 4 - 3, w * 4 * k // loads)], np.uint16)
    multiply, add = graph.addComputeSet("multiply"), graph.addComputeSet("add")
    units = 16 if dtype == HALF else 8
    name = poputil.templateVertex("poplin::ConvPartial1x1Out", dtype, FLOAT, True, False, units, loads, False)
    state = {"numConvGroupsM1": 0, "numOutGroupsM1": 0, "numInGroups": 1, "transformedInStride": 1}
    state |= {"outChansPerGroup": n, "inChansPerGroup": k, "transformedOutStride": -6}
    for tile in range(4):
        lists = graph.addConstant(UNSIGNED_SHORT, [18], work)
        graph.setTileMapping(lists, tile)
        v = graph.addVertex(multiply, name, {"in": [a[tile]], "weights": [b[tile]], "out": [partials[tile]]})
        graph.connect(v["worklists"], lists)
        for field, value in state.items():
            graph.setInitialValue(v[field], value)
        graph.setTileMapping(v, tile)
    total = graph.addVertex(add, "poplin::ReduceAdd<float,float,false,false>")
    graph.connect(total["partials"], [partials[tile] for tile in range(4)])
    graph.connect(total["out"], c)
    graph.setInitialValue(total["numPartials"], 4)
    graph.setInitialValue(total["numElems"], m * n)
    graph.setTileMapping(total, 0)
    left, right = rng.normal(size=(m, 64)).astype(one), rng.normal(size=(64, n)).astype(one)
    (got,) = ran(
        graph,
        Sequence(Execute(multiply), Execute(add)),
        ("c",),
        a=left.reshape(m, 4, k).swapaxes(0, 1).reshape(4, -1),
        b=right.reshape(4, k, n).swapaxes(1, 2).reshape(4, -1),
    )
    assert_close(got.reshape(m, n), left.astype(np.float64) @ right.astype(np.float64), f32, 10.0)


def test_transposition__blocks_on_tiles_with_copies_around() -> None:
    """A matrix turned around as research codes do it: blocks to tiles, a transpose vertex each, blocks back."""
    graph = made(6)
    x, y = graph.addVariable(HALF, [16, 24], "x"), graph.addVariable(HALF, [24, 16], "y")
    for tensor in (x, y):
        graph.setTileMapping(tensor, 0)
    graph.createHostWrite("x", x)
    graph.createHostRead("y", y)
    blocks, turned = rows_on_tiles(graph, HALF, (6, 64), "blocks"), rows_on_tiles(graph, HALF, (6, 64), "turned")
    cs = graph.addComputeSet("transpose")
    for tile in range(6):
        v = graph.addVertex(cs, "popops::Transpose1DSingleWorker<half>", {"src": blocks[tile], "dst": turned[tile]})
        for field, value in {"numSrcRowsD4Or1": 2, "numSrcColumnsD4Or1": 2, "numTranspositionsM1": 0}.items():
            graph.setInitialValue(v[field], value)
        graph.setTileMapping(v, tile)
    there = x.reshape([2, 8, 3, 8]).dimShuffle([0, 2, 1, 3]).reshape([6, 64])
    back = turned.reshape([2, 3, 8, 8]).dimShuffle([1, 2, 0, 3]).reshape([24, 16])
    values = rng.normal(size=(16, 24)).astype(np.float16)
    (got,) = ran(graph, Sequence(Copy(there, blocks), Execute(cs), Copy(back, y)), ("y",), x=values)
    np.testing.assert_array_equal(got, values.T)


def test_monte_carlo__random_points_counted__estimates_pi_until_a_counter_ends() -> None:
    """Uniform points on eight tiles; a loop counter of the library ends the rounds."""
    graph = made(8)
    n, rounds = 4000, 5
    x, y = rows_on_tiles(graph, FLOAT, (8, n), "x"), rows_on_tiles(graph, FLOAT, (8, n), "y")
    inside, hits = rows_on_tiles(graph, BOOL, (8, n), "inside"), rows_on_tiles(graph, UNSIGNED_INT, (8, n), "hits")
    sums = rows_on_tiles(graph, UNSIGNED_INT, (8, 1), "sums")
    one = graph.addConstant(FLOAT, [], 1.0)
    count, more, limit = (graph.addVariable(UNSIGNED_INT, [], n) for n in ("count", "more", "limit"))
    for tensor in (one, count, more, limit):
        graph.setTileMapping(tensor, 0)
    graph.createHostWrite("count", count)
    graph.createHostWrite("limit", limit)
    draw, square, join, test, cast, add, step = (
        graph.addComputeSet(s) for s in ["draw", "square", "join", "test", "cast", "add", "step"]
    )
    for tile in range(8):
        for t in (x, y):
            v = graph.addVertex(draw, "poprand::UniformSupervisor<float>", {"out": t[tile]})
            graph.setInitialValue(v["scale"], 1.0)
            graph.setInitialValue(v["offset"], 0.5)
            graph.setTileMapping(v, tile)
            name = poputil.templateVertex("popops::UnaryOp1DInPlace", UnaryOpType.SQUARE, FLOAT)
            graph.setTileMapping(graph.addVertex(square, name, {"inOut": t[tile]}), tile)
        v = [graph.addVertex(join, poputil.templateVertex("popops::BinaryOp1DInPlace", BinaryOpType.ADD, FLOAT))]
        graph.connect(v[0]["in1Out"], x[tile])
        graph.connect(v[0]["in2"], y[tile])
        v.append(
            graph.addVertex(test, poputil.templateVertex("popops::BroadcastScalar1D", BinaryOpType.LESS_THAN, FLOAT))
        )
        graph.connect(v[1]["data"], x[tile])
        graph.connect(v[1]["B"], one)
        graph.connect(v[1]["out"], inside[tile])
        v.append(graph.addVertex(cast, "popops::Cast1D<bool,unsigned int>", {"src": inside[tile], "dst": hits[tile]}))
        graph.setInitialValue(v[2]["numElems"], n)
        v.append(graph.addVertex(add, "popops::ContinuousReduce<popops::ReduceAdd,unsigned int,unsigned int,true>"))
        graph.connect(v[3]["partials"], hits[tile])
        graph.connect(v[3]["out"], sums[tile])
        graph.setInitialValue(v[3]["numOutputsM1"], 0)
        graph.setInitialValue(v[3]["numPartials"], n)
        for vertex in v:
            graph.setTileMapping(vertex, tile)
    counter = graph.addVertex(step, "popops::ForLoopCounter<unsigned int>")
    for field, tensor in {"count": count, "limit": limit, "comparisonResult": more}.items():
        graph.connect(counter[field], tensor)
    graph.setInitialValue(counter["increment"], 1)
    graph.setTileMapping(counter, 0)
    body = Sequence(*map(Execute, (draw, square, join, test, cast, add)))
    program = RepeatWhileTrue(Sequence(Execute(step)), more, body)
    (got,) = ran(graph, program, ("sums_out",), sums=np.zeros((8, 1), np.uint32), count=0, limit=rounds + 1)
    assert abs(4 * got.sum() / (8 * n * rounds) - np.pi) < 0.02


def test_training_step__a_layer_by_hand__forward_gradient_and_update() -> None:
    """y = tanh(w·x + b) element by element; a step of gradient descent on ½(y − t)², one sample per tile."""
    graph = made(4)
    n = 10
    x, w, y, t = (rows_on_tiles(graph, FLOAT, (4, n), name) for name in "xwyt")
    loss, grad = rows_on_tiles(graph, FLOAT, (4, n), "loss"), rows_on_tiles(graph, FLOAT, (4, n), "grad")
    rate = graph.addVariable(FLOAT, [1], "rate")
    graph.setTileMapping(rate, 0)
    graph.createHostWrite("rate", rate)
    tanh = (FLOAT, NonLinearityType.TANH)
    times = poputil.templateVertex("popops::BinaryOp1D", BinaryOpType.MULTIPLY, FLOAT)
    sets = [graph.addComputeSet(str(i)) for i in range(6)]
    for tile in range(4):
        v = [graph.addVertex(sets[0], times, {"in1": x[tile], "in2": w[tile], "out": y[tile]})]
        v.append(
            graph.addVertex(sets[1], poputil.templateVertex("popnn::NonLinearitySupervisor", *tanh), {"data": y[tile]})
        )
        graph.setInitialValue(v[1]["n"], n)
        v.append(graph.addVertex(sets[2], poputil.templateVertex("popnn::LossSumSquaredTransform", FLOAT)))
        for field, tensor in {"probs": y, "expected": t, "deltas": grad, "transformed": loss}.items():
            graph.connect(v[2][field], tensor[tile])
        graph.setInitialValue(v[2]["size"], n)
        v.append(graph.addVertex(sets[3], poputil.templateVertex("popnn::NonLinearityGradSupervisor", *tanh)))
        for field, tensor in {"outGrad": grad, "out": y, "inGrad": t}.items():
            graph.connect(v[3][field], tensor[tile])
        graph.setInitialValue(v[3]["n"], n)
        in_place = poputil.templateVertex("popops::BinaryOp1DInPlaceSupervisor", BinaryOpType.MULTIPLY, FLOAT)
        v.append(graph.addVertex(sets[4], in_place, {"in1Out": t[tile], "in2": x[tile]}))
        update = poputil.templateVertex("popops::ScaledSubtractSupervisor", FLOAT, FLOAT, FLOAT, False)
        v.append(graph.addVertex(sets[5], update, {"A": w[tile], "B": t[tile], "scaleB": rate}))
        graph.setInitialValue(v[5]["size"], n)
        for vertex in v:
            graph.setTileMapping(vertex, tile)
    a, b, c = rng.normal(size=(3, 4, n))
    (got, lost) = ran(graph, Sequence(*map(Execute, sets)), ("w_out", "loss_out"), x=a, w=b, t=c, rate=[0.1])
    out = np.tanh(a * b)
    assert_close(lost, 0.5 * (out - c) ** 2, f32)
    assert_close(got, b - 0.1 * (out - c) * (1 - out**2) * a, f32)
