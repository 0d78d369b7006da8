"""Where the tensors of networks lie: operands as their ops want them, and nothing crowded on one tile."""

from __future__ import annotations

import numpy as np

from abele.expr.derivative import arg
from abele.graph import Copy, Graph
from abele.graph.program import walk
from abele.numerics import f16
from abele.parallel import NetworkBuilder, NetworkProgram, Schedule, inference_program
from abele.parallel.lowering import Lowering
from abele.parallel.ops import build
from abele.parallel.ops.recurrent import LstmValues, lstm


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


def test_lowering__matrix_of_several_variables__is_put_together_once_for_its_product() -> None:
    net = NetworkBuilder()
    parts = [net.input((4, 8, 16), "f32", f"part{i}") for i in range(3)]
    joined = build.concat(net, [build.permute(net, p, (1, 0, 2)) for p in parts], 1)
    rows = build.reshape(net, joined, (8, 12 * 16))
    net.output(build.matmul(net, rows, net.parameter((12 * 16, 32), "f32", "w")))
    (made,) = copies(lowered(net), "whole")
    assert made.source.shape == (8, 12 * 16)


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
