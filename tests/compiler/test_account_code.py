"""State and code by operation and tile: sums are the memory categories to the byte."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.errors import InvalidOptionError
from abele.network import Adam, Group, NetworkBuilder
from abele.network.ops import build
from abele.poplibs import poplin, popops
from abele.report import Report
from abele.report.code import CODE
from abele.session import Schedule, Settings, compile_network
from compiler.support import small_system
from support.examples import examples


def assert_adds_up(report: Report) -> None:
    """Sums over operations, and over operations on each tile, are the categories."""
    for name in CODE:
        held = report.memory.bytes[report.memory.categories.index(name)]
        by_op = sum((report.code_by_tile(name, op) for op in range(len(report.ops))), np.zeros_like(held))
        assert by_op.tolist() == report.code_by_tile(name).tolist() == held.tolist(), name
        some = np.arange(0, len(report.ops), 2)
        of_some = sum((report.code_by_tile(name, op) for op in some.tolist()), np.zeros_like(held))
        assert report.code_by_tile(name, some).tolist() == of_some.tolist()
        assert [int(report.code_by_tile(name, op).sum()) for op in range(len(report.ops))] == report.ops[
            f"{name}_bytes"
        ].tolist(), name
    for tile in range(report.memory.num_tiles):
        on, whole = report.code_on(tile), report.memory.of_tile(tile)
        assert {name: int(on[name].sum()) for name in CODE} == {name: whole[name] for name in CODE}
        assert (np.diff(on["bytes"]) <= 0).all()


def layers(kinds: list[tuple[int, int]], *, tiles: int = 8, ipus: int = 2) -> ab.Executable:
    """Layers of some kinds on IPUs, and a function that is called twice where a kind is 3."""
    graph = ab.Graph(small_system(tiles, num_ipus=ipus))
    program = ab.Sequence()
    for number, (kind, ipu) in enumerate(kinds):
        part = graph.virtual(ipu * tiles, (ipu + 1) * tiles)
        first = ipu * tiles
        x, y = (
            graph.variable("f32", (16, 24), name=f"{name}{number}").map_rows(
                [first + (n + by) % tiles for n in range(16)]
            )
            for name, by in (("x", 0), ("y", 3))
        )
        if kind == 0:
            popops.tanh_in_place(part, x, program)
        elif kind == 1:
            poplin.matmul(part, x, x.T, program)
        elif kind == 2:
            program.add(ab.Copy(x, y))
        else:
            body = ab.Sequence()
            popops.add_in_place(part, x, x, body)
            function = graph.function(body)
            program.add(ab.Call(function))
            program.add(ab.Repeat(3, ab.Call(function)))
    return ab.compile_program(graph, program, allow_out_of_memory=True)


@examples(5)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=6))
def test_code_of_operations__any_program__adds_up_to_the_categories(kinds: list[tuple[int, int]]) -> None:
    assert_adds_up(layers(kinds).report)


@cache
def trained(*, shared: bool) -> Report:
    net = NetworkBuilder()
    hidden = net.input((8, 32), "f32", "x")
    for number in range(3):
        weight, bias = net.parameter((32, 32), "f32", f"w{number}"), net.parameter((32,), "f32", f"b{number}")
        hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
    net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    return compile_network(
        model,
        Schedule(accumulation=2),
        groups=[Group(Adam(lr=0.01), model.parameters)],
        settings=Settings(shared_functions=shared, system=small_system(16)),
    ).executable.report


@pytest.mark.parametrize("shared", [False, True])
def test_code_of_operations__training__adds_up_to_the_categories(shared: bool) -> None:
    assert_adds_up(trained(shared=shared))


def test_code_uses__equal_layers_on_another_ipu__share_a_pattern_that_lies_further_on() -> None:
    # The first of an IPU has the code of codelets there; the second has state, control and exchange code alone.
    report = layers([(1, 0), (1, 0), (1, 1), (1, 1)], tiles=512).report
    uses = report.code_uses
    here, there = (np.flatnonzero(uses["op"] == op) for op in (1, 3))
    assert len(here) == len(there) > 0
    assert (uses["pattern"][here] == uses["pattern"][there]).all()
    assert (uses["shift_tiles"][there] - uses["shift_tiles"][here] == 512).all()
    for name in ("vertex_state", "control_code", "exchange_code"):
        one, other = (report.code_by_tile(name, op) for op in (1, 3))
        assert one[:512].tolist() == other[512:].tolist()
        assert one[:512].any()
        assert not one[512:].any()
        assert not other[:512].any()


def test_ops__codelet_of_two_operations__counts_for_the_first() -> None:
    report = layers([(0, 0), (0, 0), (0, 1)]).report
    code = report.ops["vertex_code_bytes"]
    assert code[0] == code[2] > 0
    assert code[1] == 0


def test_code_by_tile__no_such_category_operation_or_tile__is_refused() -> None:
    report = layers([(0, 0)]).report
    with pytest.raises(InvalidOptionError, match="exchange_code"):
        report.code_by_tile("exchange_codes")
    with pytest.raises(InvalidOptionError, match="no operation 9"):
        report.code_by_tile("exchange_code", 9)
    with pytest.raises(InvalidOptionError, match="no tile 99"):
        report.code_on(99)
