"""Where the tensors of networks lie: operands as their ops want them, and nothing crowded on one tile."""

from __future__ import annotations

import numpy as np

from abele.expr.derivative import arg
from abele.graph import Copy, Graph
from abele.graph.program import walk
from abele.parallel import NetworkBuilder, NetworkProgram, Schedule, inference_program
from abele.parallel.ops import build


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
