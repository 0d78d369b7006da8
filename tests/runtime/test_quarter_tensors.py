"""8-bit floats from end to end: codes that go through copies, slices, streams and buffers come out as they were."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.errors import AbeleError, InvalidOptionError, TypeMismatchError
from abele.graph import Copy, Graph, PrintTensor, Sequence, Tensor, concat
from abele.machine import systems
from abele.numerics import ElementType, f8_143, f8_152, f16, f32, quarter, to_device, to_host
from abele.poplibs import gcl, popnn, popops
from abele.runtime import Engine

TYPES = [f8_143, f8_152, quarter("F143", -4), quarter("F152", 9)]
WAYS = ["tiles", "native"]
CODES = np.arange(256, dtype=np.uint8)


def graph_of(tiles: int = 4) -> Graph:
    whole = systems.get("c600")
    return Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=tiles)))


def variable(graph: Graph, dtype: Any, *shape: int, name: str = "v") -> Tensor:
    return graph.map_linear(graph.variable(dtype, shape, name=name))


def codes_of(values: Any, type_: ElementType) -> np.ndarray:
    """Codes of what was read, NaN the one that there is."""
    return to_device(np.asarray(values), type_).view(np.uint8)


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_codes__through_copies_slices_and_views__stay(type_: ElementType, mode: str) -> None:
    graph, prog = graph_of(), Sequence()
    x = variable(graph, type_, 16, 16, name="x")
    turned, joined = variable(graph, type_, 16, 16, name="turned"), variable(graph, type_, 20, 16, name="joined")
    prog.add(Copy(x.T, turned))
    prog.add(Copy(concat([x[12:], x[:, ::-1]]), joined))
    offset = graph.map(graph.variable("u32", (1,), name="offset"), 1)
    rows = variable(graph, "u32", 5, 1, name="rows")
    window = popops.dynamic_slice(graph, x, offset, [0], [3], prog)
    picked = popops.multi_slice(graph, x, rows, [0], [1], prog)
    popops.dynamic_update(graph, turned, window[:1], offset, [0], [1], prog)
    contents = CODES.view(type_.np).reshape(16, 16)
    chosen = np.uint32([[3], [0], [15], [3], [8]])
    keep = [x, offset, rows, turned, joined, window, picked]
    with Engine(compile_program(graph, prog), mode=mode, keep=keep) as engine:
        engine[x], engine[offset], engine[rows] = contents, np.uint32([5]), chosen
        engine.run()
        got = {t.name: codes_of(engine[t], type_) for t in (turned, joined)}
        cut, taken = codes_of(engine[window], type_), codes_of(engine[picked], type_)
    table = CODES.reshape(16, 16)
    wanted = table.T.copy()
    wanted[5] = table[5]
    np.testing.assert_array_equal(got["turned"], wanted)
    np.testing.assert_array_equal(got["joined"], np.concatenate([table[12:], table[:, ::-1]]))
    np.testing.assert_array_equal(cut, table[5:8])
    np.testing.assert_array_equal(taken.reshape(5, 16), table[chosen[:, 0]])


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_streams_and_remote_buffers__of_8_bit_floats__move_a_byte_each(type_: ElementType, mode: str) -> None:
    graph, prog = graph_of(), Sequence()
    x = variable(graph, type_, 256, name="x")
    source, sink = graph.host_stream_in("in", type_, 256), graph.host_stream_out("out", type_, 256)
    buffer = graph.remote_buffer("buffer", type_, 256, 2)
    row = graph.map(graph.variable("u32", (1,), name="row", initial=[1]), 0)
    prog.add(Copy(source, x))
    prog.add(Copy(x, buffer, offset=row))
    prog.add(Copy(buffer, x, offset=row))
    prog.add(Copy(x, sink))
    out = np.zeros(256, type_.np)
    with Engine(compile_program(graph, prog), mode=mode) as engine:
        engine.connect(source, CODES.view(type_.np))
        engine.connect(sink, out)
        engine.run()
        np.testing.assert_array_equal(codes_of(engine.read_remote("buffer", 1), type_), CODES)
    np.testing.assert_array_equal(out.view(np.uint8), CODES)


def test_print__of_8_bit_floats__shows_their_numbers() -> None:
    graph, prog, type_ = graph_of(), Sequence(), quarter("F143", 3)
    x = variable(graph, type_, 3, name="x")
    popops.fill(graph, x, prog, -6.5)
    prog.add(PrintTensor(x, "scaled"))
    with Engine(compile_program(graph, prog), mode="tiles") as engine:
        engine.print_stream = text = io.StringIO()
        engine.run()
    assert "-6.5" in text.getvalue()


@pytest.mark.parametrize("mode", WAYS)
def test_fill__of_8_bit_floats__rounds_the_number_and_refuses_one_that_is_too_large(mode: str) -> None:
    graph, prog = graph_of(), Sequence()
    x, y = variable(graph, f8_152, 5, name="x"), variable(graph, quarter("F143", 2), 5, name="y")
    popops.fill(graph, x, prog, 1.1)
    popops.zero(graph, y, prog)
    with Engine(compile_program(graph, prog), mode=mode, keep=[x, y]) as engine:
        engine.run()
        np.testing.assert_array_equal(np.asarray(engine[x], np.float32), np.full(5, 1.0))
        np.testing.assert_array_equal(np.asarray(engine[y], np.float32), np.zeros(5))
    with pytest.raises(InvalidOptionError, match=r"cannot hold 1000\.0?, which is too large"):
        popops.fill(graph, y, prog, 1000.0)


def test_memory__of_8_bit_floats__is_a_byte_each() -> None:
    graph, prog = graph_of(), Sequence()
    x, y = variable(graph, f8_143, 4096, name="x"), variable(graph, f16, 4096, name="y")
    popops.zero(graph, x, prog)
    popops.zero(graph, y, prog)
    report = compile_program(graph, prog).report
    held = dict(zip(report.variables["name"].tolist(), report.variables["bytes"].tolist(), strict=True))
    assert (held["x"], held["y"]) == (4096, 8192)


REFUSED = {
    "map": lambda g, q, p: popops.add(g, q, q, p),
    "scaled add": lambda g, q, p: popops.scaled_add_to(g, variable(g, f16, 4, 8), q, 0.5, p),
    "reduce": lambda g, q, p: popops.reduce(g, q, [0], "MAX", p),
    "reduce to 8 bits": lambda g, q, p: popops.reduce(g, variable(g, f32, 4, 8), [0], "ADD", p, out_type=f8_143),
    "sort": lambda g, q, p: popops.sort(g, q, 1, p),
    "top k": lambda g, q, p: popnn.top_k(g, q, 2, p),
    "compare": lambda g, q, p: popops.eq(g, q, q, p),
    "select": lambda g, q, p: popops.select(g, q, q, variable(g, "bool", 4, 8), p),
    "iota": lambda g, q, p: popops.iota(g, q, 0, p),
    "relu": lambda g, q, p: popnn.non_linearity(g, "relu", q, p),
    "softmax": lambda g, q, p: popnn.softmax(g, q, p),
    "arg max": lambda g, q, p: popnn.arg_max(g, q, p),
    "collective": lambda g, q, p: gcl.all_reduce_cross_replica(g, q, "ADD", p),
}


@pytest.mark.parametrize("case", REFUSED)
def test_libraries__that_would_compute_with_8_bit_floats__refuse_them_and_say_to_cast(case: str) -> None:
    graph = graph_of()
    with pytest.raises(TypeMismatchError, match="libraries do not compute with f8_143") as raised:
        REFUSED[case](graph, variable(graph, f8_143, 4, 8), Sequence())
    assert "popops.cast it to f16 or f32 first" in str(raised.value)


def test_updates_and_copies__between_types__are_refused() -> None:
    graph, prog = graph_of(), Sequence()
    x, other = variable(graph, f8_143, 4, 8), variable(graph, f8_152, 1, 8)
    offset = graph.map(graph.variable("u32", (1,), name="offset"), 0)
    for call in (
        lambda: popops.dynamic_update(graph, x, other, offset, [0], [1], prog),
        lambda: prog.add(Copy(x[:1], other)),
        lambda: prog.add(Copy(x[:1], variable(graph, quarter("F143", 1), 1, 8))),
    ):
        with pytest.raises(AbeleError, match="f8_143"):
            call()


def test_host_arrays__of_wider_floats__are_rounded_on_the_way_in() -> None:
    graph, prog = graph_of(), Sequence()
    x = variable(graph, quarter("F143", 1), 3, name="x")
    popops.zero(graph, variable(graph, f32, 1), prog)
    with Engine(compile_program(graph, prog), keep=[x]) as engine:
        engine[x] = np.float32([1.06, -480.0, 0.0])
        np.testing.assert_array_equal(to_host(np.asarray(engine[x])), [1.0, -480.0, 0.0])
