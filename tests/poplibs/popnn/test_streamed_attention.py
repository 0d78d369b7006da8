"""Attention over streaming memory and SparQ attention, against NumPy in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import TOLERANCE

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TensorError
from abele.graph import Copy, Graph, Sequence, walk
from abele.graph.remote import RemoteBuffer
from abele.machine import systems
from abele.numerics import as_element_type
from abele.poplibs.popnn.attention.streamed import SparqCache, SparqParams, sparq_attention, streamed_attention
from abele.runtime import Engine


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def dense(q: Any, keys: Any, values: Any) -> Any:
    return softmax(q @ keys.swapaxes(1, 2) / np.sqrt(q.shape[2])) @ values


def by_numpy(q: Any, keys: Any, values: Any, params: SparqParams) -> Any:
    """SparQ attention of each group, as published."""
    made = np.zeros_like(q)
    for g, (x, k, v) in enumerate(zip(q, keys, values, strict=True)):
        width, size = x.shape[1], len(k)
        read = np.argsort(-abs(x).sum(0), kind="stable")[: params.components]
        part = abs(x[:, read]).sum(1, keepdims=True) / abs(x).sum(1, keepdims=True)
        shares = softmax(x[:, read] @ k[:, read].T / np.sqrt(width * part))
        wanted = shares.sum(0) + np.where(np.arange(size) >= size - params.local, len(x) + 1, 0)
        best = np.argsort(-wanted, kind="stable")[: params.positions]
        alpha = shares[:, best].sum(1, keepdims=True)
        made[g] = alpha * (softmax(x @ k[best].T / np.sqrt(width)) @ v[best]) + (1 - alpha) * v.mean(0)
    return made


@pytest.mark.parametrize(
    ("kind", "shape", "params", "where"),
    [
        ("f32", (3, 1, 24, 32), SparqParams(8, 10, 3), "tiles"),
        ("f32", (2, 3, 20, 16), SparqParams(16, 20), "memory"),
        ("f16", (4, 2, 64, 32), SparqParams(12, 16, 4), "memory"),
    ],
)
def test_sparq_attention__of_some_components_and_positions__is_numpys(
    kind: str, shape: Any, params: SparqParams, where: str
) -> None:
    groups, queries, size, width = shape
    rng, dtype = np.random.default_rng(5), as_element_type(kind)
    q, keys, values = (rng.normal(size=(groups, n, width)).astype(dtype.np) for n in (queries, size, size))
    mean = values.mean(1, dtype=np.float64).astype(dtype.np)
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    given = [graph.map_linear(graph.variable(dtype, a.shape, name="v")) for a in (q, mean)]
    tables = {"kt": keys.swapaxes(1, 2).reshape(groups * width, size), "k": keys.reshape(-1, width)}
    tables["v"] = values.reshape(-1, width)
    stored: list[Any] = [
        graph.remote_buffer(name, dtype, a.shape[1], a.shape[0])
        if where == "memory"
        else graph.map_linear(graph.variable(dtype, a.shape, name=name))
        for name, a in tables.items()
    ]
    out = sparq_attention(graph, given[0], SparqCache(*stored, given[1]), params, prog)
    keep = [*given, out, *(t for t in stored if where == "tiles")]
    with Engine(compile_program(graph, prog), mode="native", keep=keep) as engine:
        for tensor, array in [*zip(given, (q, mean), strict=True)]:
            engine[tensor] = array
        for table, array in zip(stored, tables.values(), strict=True):
            if where == "tiles":
                engine[table] = array
                continue
            engine.write_remote(table, None, array)
        engine.run()
        made = np.asarray(engine[out], np.float64)
    wide = [a.astype(np.float64) for a in (q, keys, values)]
    assert np.abs(made - by_numpy(*wide, params)).max() < 2 * TOLERANCE[kind]
    if params.components == width and params.positions == size:
        assert np.abs(made - dense(*wide)).max() < TOLERANCE[kind]
    loaded = sum(s.destination.bytes for s in walk(prog) if isinstance(s, Copy) and isinstance(s.source, RemoteBuffer))
    assert loaded == (params.loaded_bytes(groups, size, width, dtype) if where == "memory" else 0)


def test_streamed_attention__chunk_by_chunk__is_dense_attention() -> None:
    groups, queries, size, width, chunk = 6, 2, 40, 16, 8
    rng, dtype = np.random.default_rng(6), as_element_type("f32")
    q, keys, values = (rng.normal(size=(groups, n, width)).astype(np.float32) for n in (queries, size, size))
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    given = graph.map_linear(graph.variable(dtype, q.shape, name="q"))
    tables = [graph.remote_buffer(n, dtype, groups * chunk * width, size // chunk) for n in ("keys", "values")]
    out = streamed_attention(graph, given, *tables, prog, chunk=chunk)
    with Engine(compile_program(graph, prog), mode="native", keep=[given, out]) as engine:
        engine[given] = q * 9
        for table, array in zip(tables, (keys, values), strict=True):
            for row in range(size // chunk):
                engine.write_remote(table, row, array[:, row * chunk : (row + 1) * chunk].ravel())
        engine.run()
        made = np.asarray(engine[out])
    assert np.abs(made - dense(q.astype(np.float64) * 9, keys, values)).max() < 2e-5


def test_sparq_attention__of_more_than_there_is__is_refused() -> None:
    graph, prog = Graph(systems.get("bow-2000:1")), Sequence()
    dtype = as_element_type("f16")
    q, mean = (graph.map_linear(graph.variable(dtype, shape, name="v")) for shape in ((2, 1, 8), (2, 8)))
    names = ("kt", 16, 16), ("k", 8, 32), ("v", 8, 32)
    stored = SparqCache(*(graph.remote_buffer(n, dtype, length, rows) for n, length, rows in names), mean)
    for params in (SparqParams(9, 4), SparqParams(0, 4), SparqParams(4, 17), SparqParams(4, 4, 5)):
        with pytest.raises(InvalidOptionError, match=r"cannot be|no part of"):
            sparq_attention(graph, q, stored, params, prog)
    wrong = SparqCache(stored.by_component, stored.by_component, stored.values, mean)
    with pytest.raises(TensorError, match="does not have 32 rows of 8"):
        sparq_attention(graph, q, wrong, SparqParams(2, 2), prog)
    with pytest.raises(TensorError, match="has no rows"):
        streamed_attention(graph, q, stored.keys, stored.values, prog, chunk=3)
