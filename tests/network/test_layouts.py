"""Layouts of the tensors of networks: operands as their ops want them, and nothing crowded on one tile."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.distribution import NetworkProgram, inference_program, training_program
from abele.distribution.lowering import Lowering
from abele.expr import Const, select
from abele.expr.derivative import arg
from abele.graph import Copy, Execute, Graph, Tensor
from abele.graph.program import walk
from abele.machine import systems
from abele.network import Group, NetworkBuilder, Place, Schedule, Sgd, evaluate
from abele.network.ir import BlockBuilder, PlanHint, Value
from abele.network.ops import build
from abele.network.ops.recurrent import LstmValues, lstm
from abele.numerics import f16, f32
from abele.poplibs.poputil.layout import create_narrowed
from abele.session import Session


def lowered(net: NetworkBuilder) -> NetworkProgram:
    """The inference program of a network, on one IPU."""
    return inference_program(net.finish(), Graph("bow"), Schedule())


def copies(program: NetworkProgram, name: str) -> list[Copy]:
    """Copies of a name."""
    return [s for s in walk(program.program) if isinstance(s, Copy) and s.debug.name == name]


def test_lowering__input_of_a_map__lies_where_the_other_operand_does() -> None:
    net = NetworkBuilder()
    x, w = net.input((2, 32, 16, 16), "f32", "x"), net.parameter((64, 32, 3, 3), "f32", "w")
    y = build.convolution(net, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1))
    given = net.input(y.shape, "f32", "given")
    net.output(build.map_(net, arg(0) * arg(1), [y, given]))
    program = lowered(net)
    graph = program.graph
    call = next(v for v in graph.variables if v.name.endswith("given"))
    product = next(v for v in graph.variables if "convolution" in v.name and v.name.endswith("out"))
    np.testing.assert_array_equal(call.mapping.begin, product.mapping.begin)
    np.testing.assert_array_equal(call.mapping.tile, product.mapping.tile)


def masked(net: NetworkBuilder, *, layers: int = 1) -> None:
    """Scores of heads, to which a mask of the numbers of sequences is added."""
    numbers = net.input((1, 64), "i32", "numbers")
    rows, columns = (build.reshape(net, numbers, shape) for shape in ((1, 1, 64, 1), (1, 1, 1, 64)))
    mask = build.map_(net, select(arg(0).eq(arg(1)), 0.0, -100.0), [rows, columns], f16)
    x = net.input((1, 8, 64, 32), f16, "x")
    for _ in range(layers):
        scores = build.matmul(net, x, build.transpose(net, x, 2, 3))
        seen = build.map_(net, arg(0) * Const(0.125, f16) + arg(1), [scores, mask])
        x = build.matmul(net, build.softmax(net, seen, 3), x)
    net.output(x)


def test_lowering__mask__lies_as_the_scores_that_it_is_added_to() -> None:
    net = NetworkBuilder()
    masked(net, layers=2)
    program = lowered(net)
    maps = [c for c in program.graph.compute_sets if c.name.endswith("map/map")]
    # That of the mask stands right before its first reader, on as many tiles.
    assert len(maps) == 3
    made, first, second = (
        step.compute_set for step in walk(program.program) if isinstance(step, Execute) and step.compute_set in maps
    )
    tiles = [len({int(t) for g in c.groups for t in g.tile}) for c in (made, first, second)]
    assert tiles[1] == tiles[2]
    assert tiles[0] >= tiles[1] // 2
    report = compile_program(program.graph, program.program).report
    moved = [row for row in report.steps.rows() if "map/map: arrange" in row["name"]]
    assert sum(row["cycles"] for row in moved) < 2_000


def causal(net: NetworkBuilder, positions: int) -> None:
    """Scores of heads, of which a constant mask hides those of later positions."""
    x = net.input((1, 8, positions, 32), f16, "x")
    scores = build.matmul(net, x, build.transpose(net, x, 2, 3))
    mask = net.constant(np.tri(positions, positions), "bool", "causal")
    net.output(build.map_(net, select(arg(1), arg(0), -1000.0), [scores, mask]))


def test_lowering__constant_mask__lies_as_the_scores_that_it_hides() -> None:
    net = NetworkBuilder()
    causal(net, 256)
    program = lowered(net)
    report = compile_program(program.graph, program.program).report
    moved = [row for row in report.steps.rows() if "map/map: arrange" in row["name"]]
    assert sum(row["cycles"] for row in moved) < 700
    # Spread linearly, the mask comes element by element to the 356 scores of a tile, with an instruction for each.
    number = next(n for n, name in enumerate(report.ops["kind"]) if name == "popops.map")
    assert report.code_by_tile("exchange_code", op=number).max() < 4 * 356 // 4


def test_lowering__constant_mask__hides_the_same_as_in_numpy() -> None:
    net = NetworkBuilder()
    causal(net, 48)
    x = np.random.default_rng(1).integers(-2, 3, (1, 8, 48, 32)).astype(np.float16)
    (found,) = Session.of(net.finish())(x)
    wide = x.astype(np.float32)
    expected = np.where(np.tri(48, dtype=bool), wide @ wide.swapaxes(2, 3), -1000)
    np.testing.assert_array_equal(found, expected.astype(np.float16))


def test_lowering__constant_mask_of_stages_on_two_ipus__lies_as_the_scores_on_both() -> None:
    net = NetworkBuilder()
    x = net.input((1, 8, 256, 32), f16, "x")
    mask = net.constant(np.tri(256, 256), "bool", "causal")
    for number in range(2):
        with net.at(place=Place(number, number)):
            scores = build.matmul(net, x, build.transpose(net, x, 2, 3))
            x = build.matmul(net, build.map_(net, select(arg(1), arg(0), 0.0), [scores, mask]), x)
    net.output(x)
    graph = Graph(systems.get("bow-2000:2"))
    program = inference_program(net.finish(), graph, Schedule(device_iterations=3))
    report = compile_program(graph, program.program).report
    maps = [row["cycles"] for row in report.steps.rows() if "map/map: arrange" in row["name"]]
    assert maps
    assert max(maps) < 700


def test_lowering__mask_that_leaves__is_computed_as_well() -> None:
    net = NetworkBuilder()
    numbers = net.input((4,), "i32", "numbers")
    rows, columns = (build.reshape(net, numbers, shape) for shape in ((4, 1), (1, 4)))
    net.output(build.map_(net, select(arg(0).eq(arg(1)), 1.0, 0.0), [rows, columns], f32))
    session = Session.of(net.finish())
    (found,) = session(np.array([1, 2, 1, 3], np.int32))
    given = np.array([1, 2, 1, 3])
    np.testing.assert_array_equal(found, given[:, None] == given)


def test_lowering__mask_that_a_loop_reads__is_computed_before_it() -> None:
    net = NetworkBuilder()
    a, b = net.input((4, 1), "f32", "a"), net.input((1, 4), "f32", "b")
    x = net.input((4, 4), "f32", "x")
    mask = build.map_(net, arg(0) + arg(1), [a, b])
    (y,) = build.loop(net, 3, [x], lambda body, trip, v: [build.map_(body, arg(0) + arg(1), [v, mask])])
    net.output(y)
    net.output(build.map_(net, arg(0) * arg(1), [x, mask]))
    given = [np.arange(n, dtype=np.float32).reshape(s) for n, s in ((4, (4, 1)), (4, (1, 4)), (16, (4, 4)))]
    found = Session.of(net.finish())(*given)
    wide = given[0] + given[1]
    np.testing.assert_array_equal(found[0], given[2] + 3 * wide)
    np.testing.assert_array_equal(found[1], given[2] * wide)


@pytest.mark.parametrize("shape", [(1, 1, 64, 64), (1, 8, 1, 64), (1, 1, 1, 1), (1, 8, 64, 64), (1, 1, 1, 64)])
def test_create_narrowed__any_shape_that_broadcasts__lies_on_tiles_of_what_it_meets(shape: tuple[int, ...]) -> None:
    graph = Graph("bow")
    full = graph.map_linear(graph.variable(f16, (1, 64, 8, 64), name="full")).transpose((0, 2, 1, 3))
    made = create_narrowed(graph, full, shape, "narrow", f32)
    assert made.shape == shape
    assert made.dtype == f32

    def tiles(tensor: Tensor) -> np.ndarray:
        mapping = graph.mapping_of(tensor)
        return mapping.tiles_of(np.arange(tensor.size)).reshape(tensor.shape)

    wide = tiles(full)
    places = np.broadcast_to(tiles(made), wide.shape)
    lost = tuple(d for d in range(4) if shape[d] == 1)
    assert (places == wide).any(axis=lost).all()


def test_lowering__gradient_that_is_made_by_repeating__lies_as_the_log_softmax_that_it_is_of() -> None:
    net = NetworkBuilder()
    x, w = net.input((24, 64), f16, "x"), net.parameter((640, 64), f16, "w")
    labels = net.input((24, 1), "i32", "labels")
    numbers = net.constant(np.arange(640), "i32", "numbers")
    logs = build.softmax(net, build.matmul(net, x, build.transpose(net, w, 0, 1)), 1, log=True)
    chosen = build.map_(net, select(arg(0).eq(arg(1)), 0.0 - arg(2), 0.0), [numbers, labels, logs], f16)
    net.loss = build.reduce(net, chosen, [0, 1], dtype=f32)
    net.output(net.loss)
    graph = Graph("bow-2000:1")
    training_program(net.finish(), graph, Schedule(), [Group(Sgd(lr=0.1), tuple(net.parameters))])
    call = next(c for c in graph.compute_sets if c.name.endswith("log_softmax_gradient/gradient"))
    (group,) = call.groups
    layouts = [graph.mapping_of(edge.regions.tensor.flatten()) for edge in group.edges.values()]
    full = [m for m in layouts if m.size == 24 * 640]
    assert len(full) == 3  # What it is of, the gradient, and the result.
    for mapping in full[1:]:
        np.testing.assert_array_equal(mapping.begin, full[0].begin)
        np.testing.assert_array_equal(mapping.tile, full[0].tile)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2)])
def test_create_narrowed__rows_in_either_order__keeps_neighbours_in_storage_together(
    order: tuple[int, ...],
) -> None:
    graph = Graph("bow")
    full = graph.map_linear(graph.variable(f16, (2, 16, 256, 256), name="full")).transpose(order)
    made = create_narrowed(graph, full, (2, 1, 256, 256), "mask")
    pieces = len(graph.mapping_of(made.transpose(order)).begin)
    assert pieces <= 8 * graph.num_tiles


def test_lowering__matrix_of_several_variables__is_put_together_once_for_its_product() -> None:
    net = NetworkBuilder()
    parts = [net.input((4, 8, 16), "f32", f"part{i}") for i in range(3)]
    joined = build.concat(net, [build.permute(net, p, (1, 0, 2)) for p in parts], 1)
    rows = build.reshape(net, joined, (8, 12 * 16))
    net.output(build.matmul(net, rows, net.parameter((12 * 16, 32), "f32", "w")))
    (made,) = copies(lowered(net), "whole")
    assert made.source.size == 8 * 12 * 16


def test_lowering__matrix_that_is_transposed__is_put_together_along_its_pieces() -> None:
    net = NetworkBuilder()
    parts = [net.input((8, 16), "f32", f"part{i}") for i in range(3)]
    joined = build.concat(net, parts, 1)
    net.output(build.matmul(net, build.transpose(net, joined), net.parameter((8, 32), "f32", "w")))
    (made,) = copies(lowered(net), "whole")
    assert made.source.shape == (8, 48)


def lstm_layers(shared: bool) -> tuple[NetworkBuilder, list[LstmValues]]:
    """Two LSTM layers of equal sizes; the second one's weights of its input may be those of its output."""
    net = NetworkBuilder()
    x, made = net.input((6, 4, 32), f16, "x"), []
    for number in range(2):
        shapes = {"output": (4, 32), "cell": (4, 32), "wx": (128, 32), "wh": (128, 32), "bias": (128,)}
        values = {name: net.parameter(shape, f16, f"{name}{number}") for name, shape in shapes.items()}
        if shared and number:
            values["wx"] = values["wh"]
        made.append(LstmValues(x, *values.values()))
        x = lstm(net, made[-1], trains=True)[0]
    net.output(x)
    return net, made


def test_lstm_weights__of_every_layer__are_the_rows_of_one_matrix() -> None:
    net, made = lstm_layers(shared=False)
    graph = Graph("bow")
    to = Lowering(graph)
    to.run(net.finish().ops)
    matrices = [{v for value in (layer.of_input, layer.of_output) for v in to[value].variables} for layer in made]
    assert [len(m) for m in matrices] == [1, 1]
    assert matrices[0] != matrices[1]
    assert all(m.size == 2 * 128 * 32 for found in matrices for m in found)
    # products are swapped: what a call names its weights is the few samples, which are padded to a whole group
    written = [v.size for v in graph.variables if v.name.endswith(("gates/weights", "gates/input"))]
    assert max(written, default=0) < 128 * 32, "no matrix is written out again"


def test_lstm_weights__that_two_operands_share__lie_on_their_own() -> None:
    net, made = lstm_layers(shared=True)
    to = Lowering(Graph("bow"))
    to.run(net.finish().ops)
    (matrix,) = to[made[1].of_output].variables
    assert matrix.size == 128 * 32


@pytest.mark.parametrize("again", [False, True])
def test_lowering__weight_that_a_checkpoint_reads_first__lies_as_its_convolution_wants_it(again: bool) -> None:
    net = NetworkBuilder()
    x = net.input((2, 32, 16, 16), f16, "x")
    first, w = net.parameter((32, 32, 3, 3), f16, "first"), net.parameter((32, 32, 3, 3), f16, "w")

    def run(body: BlockBuilder, x: Value, w: Value) -> Value:
        return build.convolution(body, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1))

    x = run(net, x, first)
    net.output(build.checkpoint(net, lambda body: [run(body, body.read(x), w)])[0] if again else run(net, x, w))
    program = lowered(net)
    assert not [s for s in walk(program.program) if isinstance(s, Execute) and "rewrite" in s.compute_set.name]


def test_checkpoint__convolutions_inside__gives_the_bits_of_the_network_without_it() -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, 5, 16, 14, 14)).astype(np.float32)
    shapes = {"first": (32, 16, 3, 3), "second": (32, 32, 3, 3), "third": (64, 32, 1, 1)}
    weights = {name: 0.1 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def trained(*, again: bool) -> dict[str, np.ndarray]:
        net = NetworkBuilder()
        x = net.input(images.shape[1:], f32, "x")
        first, second, third = (net.parameter(shape, f32, name) for name, shape in shapes.items())
        strided = build.convolution(net, x, first, stride=(2, 2), padding=(1, 1), dilation=(1, 1))

        def run(body: BlockBuilder) -> Value:
            y = build.convolution(
                body, body.read(strided), body.read(second), stride=(1, 1), padding=(1, 1), dilation=(1, 1)
            )
            y = build.nonlinearity(body, "relu", y)
            return build.convolution(body, y, body.read(third), stride=(1, 1), padding=(0, 0), dilation=(1, 1))

        y = build.checkpoint(net, lambda body: [run(body)])[0] if again else run(net)
        net.loss = build.mean(net, y, [0, 1, 2, 3])
        net.output(net.loss)
        model = net.finish()
        session = Session.of(model, Schedule(), groups=[Group(Sgd(lr=0.1), model.parameters)], weights=weights)
        for batch in images:
            session.run([batch])
        return {name: np.array(session.weights[name]) for name in shapes}

    plain, again = trained(again=False), trained(again=True)
    for name, value in plain.items():
        assert np.array_equal(value, again[name])
        assert not np.array_equal(value, weights[name])


def test_norm__gain_and_shift__lie_apart_and_each_with_its_gradient() -> None:
    net = NetworkBuilder()
    x = net.input((4, 64, 6, 6), f16, "x")
    gain, shift = (net.parameter((64,), f16, name) for name in ("gain", "shift"))
    normed = build.norm(net, x, 0, 1e-5, gain, shift)[0]
    net.loss = build.mean(net, normed, [0, 1, 2, 3])
    net.output(net.loss)
    model = net.finish()
    program = training_program(model, Graph("bow"), Schedule(), [Group(Sgd(lr=0.1), model.parameters)])

    def tiles(name: str) -> list[int]:
        (variable,) = (v for v in program.graph.variables if v.name.rpartition("/")[2] == name)
        return np.unique(variable.mapping.tile).tolist()

    assert not set(tiles("gain")) & set(tiles("shift"))
    assert (tiles("gain"), tiles("shift")) == (tiles("gamma"), tiles("beta"))


def pieces_of(program: NetworkProgram, name: str) -> int:
    """Pieces of a vertex's field in a compute set, at the mean, of the field with most."""
    sets = [s.compute_set for s in walk(program.program) if isinstance(s, Execute) and s.compute_set.name == name]
    edges = [e for s in sets for group in s.groups for e in group.edges.values()]
    return max(len(e.regions.begin) // e.regions.num for e in edges)


def test_lowering__product_that_is_added_to_an_older_value__lies_as_that_does() -> None:
    net = NetworkBuilder()
    x = net.input((4096, 256), f16, "x")
    up = build.linear(net, x, net.parameter((1024, 256), f16, "up"))
    down = build.linear(net, build.nonlinearity(net, "gelu", up), net.parameter((256, 1024), f16, "down"))
    net.output(build.map_(net, arg(0) + arg(1), [x, down]))
    # Its plan alone would leave rows innermost: a piece for each of a tile's 89 elements.
    assert pieces_of(lowered(net), "map/map") <= 4


def test_lowering__products_that_are_joined_to_a_matrix__lie_as_its_parts() -> None:
    net = NetworkBuilder()
    left, right = net.input((8, 128, 128), f16, "left"), net.input((8, 128, 64), f16, "right")
    query = build.matmul(net, left, right)
    key = build.transpose(net, build.matmul(net, build.transpose(net, right, 1, 2), left), 1, 2)
    parts = [build.reshape(net, part, (1, 8, 128, 64)) for part in (query, key)]
    joined = build.permute(net, build.concat(net, parts, 0), (2, 0, 1, 3))
    rows = build.reshape(net, joined, (128, 2 * 8 * 64))
    net.output(build.matmul(net, rows, net.parameter((2 * 8 * 64, 256), f16, "w")))
    program = lowered(net)
    (made,) = copies(program, "whole")
    assert isinstance(made.source, Tensor)
    begin, size = made.source.intervals()
    assert len(begin) * 16 <= made.source.size, "pieces of 16 channels at least"
    assert size.sum() == made.source.size
    models = [v for v in program.graph.variables if v.name.endswith("model")]
    assert len(models) == 2, "one of each product"


@pytest.mark.parametrize(("share", "tiles"), [(None, 1408), (0.22, 1472)])
def test_lowering__look_ups_with_a_share_of_memory__spread_their_table_with_it(share: float, tiles: int) -> None:
    net = NetworkBuilder()
    rows = net.input((1536,), "i32", "rows")
    with net.at(hint=None if share is None else PlanHint(proportion=share)):
        net.output(build.look_up(net, net.parameter((30_912, 1024), f16, "table"), rows))
    graph = lowered(net).graph
    table = next(v for v in graph.variables if v.name.endswith("table"))
    assert len(np.unique(table.mapping.tile)) == tiles


def test_lowering__look_ups_in_what_is_computed__are_planned_for_cycles() -> None:
    def cycles(computed: bool) -> int:
        net = NetworkBuilder()
        table = net.parameter((1024, 64), f32, "table")
        rows = net.input((2560,), "i32", "rows")
        net.output(build.look_up(net, build.map_(net, arg(0) * 2.0, [table]) if computed else table, rows))
        program = lowered(net)
        steps = compile_program(program.graph, program.program).report.steps
        return sum(
            int(c) for name, c in zip(steps["name"], steps["compute_cycles"], strict=True) if "multi_slice" in str(name)
        )

    assert cycles(computed=True) < cycles(computed=False) / 2


def rows_of_loop(net: NetworkBuilder, table: Value) -> None:
    """Rows of a table, each with the sum of those before it written to another table."""
    shape = table.shape[1:]

    def body(block: BlockBuilder, trip: Value, total: Value, made: Value) -> list[Value]:
        begin = build.reshape(block, trip, (1,))
        row = build.read_window(block, table, begin, [0], [1])
        total = build.map_(block, arg(0) + arg(1), [total, build.reshape(block, row, shape)])
        return [total, build.write_row(block, made, total, trip)]

    zeros = [build.full(net, 0.0, s, f32) for s in (shape, table.shape)]
    for value in build.loop(net, table.shape[0], zeros, body):
        net.output(value)


def test_loop__windows_of_a_computed_array__are_cut_where_they_lie() -> None:
    net = NetworkBuilder()
    x = net.input((40, 8, 64), "f32", "x")
    rows_of_loop(net, build.map_(net, arg(0) * 2.0, [x]))
    rng = np.random.default_rng(0)
    given = rng.normal(size=x.shape).astype(np.float32)
    with Session.of(net.finish()) as session:
        total, made = session(given)
        steps = session.report.steps
        inside = np.asarray(steps["executions"]) == x.shape[0]
        moved = np.asarray(steps["exchanged_bytes"])[inside].sum()
    np.testing.assert_allclose(made, np.cumsum(2 * given, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, made[-1])
    # A trip sends its number to all tiles, and a row to where the sums are and back.
    assert moved < 3 * given[0].nbytes + 3 * 4 * 1472


@pytest.mark.parametrize("begin", [-9, -1, 0, 3, 5, 99])
def test_windows__partly_outside__are_zero_there_and_not_written(begin: int) -> None:
    net = NetworkBuilder()
    x, window, at = net.input((6, 4), "f32", "x"), net.input((2, 3), "f32", "window"), net.input((2,), "i32", "at")
    net.output(build.read_window(net, x, at, [0, 1], [2, 3]))
    net.output(build.write_window(net, x, window, at, [0, 1]))
    given = np.arange(24, dtype=np.float32).reshape(6, 4) + 1
    patch, starts = -np.ones((2, 3), np.float32), np.array([begin, 1], np.int32)
    wide, there = np.zeros((230, 4), np.float32), slice(begin + 100, begin + 102)
    wide[100:106] = given
    read = wide[there, 1:4].copy()
    wide[there, 1:4] = patch
    captured = net.finish()
    values = evaluate(captured, dict(zip(captured.inputs, (given, patch, starts), strict=True)))
    with Session.of(captured) as session:
        for made in (session(given, patch, starts), [values[v] for v in captured.outputs]):
            np.testing.assert_array_equal(made[0], read)
            np.testing.assert_array_equal(made[1], wide[100:106])
