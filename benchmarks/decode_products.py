"""Products of one to eight rows on the host: bytes of weights per second, beside a copy and PyTorch.

    python benchmarks/decode_products.py [--shapes 576x1536,4096x4096] [--kinds f32,f16,int8,int4-64] [--rows 1,4]
        [--threads 2] [--rounds 9] [--megabytes 192]

Each figure is of an engine that multiplies by as many different matrices of the shape as fill ``--megabytes``, so that
weights come from memory and not from a cache. Bytes are those of weights, scales and offsets, read once. The copy is
``memmove`` of 128 MiB, shared by as many threads; its bytes are read and written ones together. PyTorch multiplies the
same numbers in f32 (f16 for f16) by ``torch.nn.functional.linear``. Rounds of all alternate and the best of each
counts; on a busy machine the ratios say more than the rates.
"""

from __future__ import annotations

import argparse
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from library import small_chip
from rich.console import Console
from rich.table import Table

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type, f32
from abele.poplibs import poplin
from abele.poplibs.poplin.quantised import QuantisedTensor, quantised_matmul
from abele.runtime import Engine
from abele.weights import quantise

COPIED_BYTES = 128 << 20
DENSE = ("f32", "f16")


def engine_of(kind: str, rows: int, outputs: int, inputs: int, room: int, threads: int) -> tuple[Engine, int, int]:
    """An engine of products with different matrices, the bytes of weights that a run reads, and the products."""
    graph, prog, rng = Graph(small_chip()), Sequence(), np.random.default_rng(0)
    dtype = as_element_type(kind) if kind in DENSE else f32
    weights = rng.standard_normal((outputs, inputs)).astype(np.float32)
    held = None if kind in DENSE else quantise(weights, kind)
    arrays: list[Any] = [weights.astype(dtype.np)] if held is None else [held.codes, held.scales]
    if held is not None and held.offsets is not None:
        arrays.append(held.offsets)
    size = sum(a.nbytes for a in arrays)
    x = graph.variable(dtype, (rows, inputs), name="x", map="linear")
    given: list[tuple[Any, Any]] = [(x, rng.standard_normal((rows, inputs)).astype(dtype.np))]
    results = []
    for _ in range(max(1, room // size)):
        parts = [graph.variable(as_element_type(a.dtype), a.shape, name="w", map="linear") for a in arrays]
        given += zip(parts, arrays, strict=True)
        if held is None:
            results.append(poplin.matmul(graph, x, parts[0].T, prog))
        else:
            results.append(quantised_matmul(graph, x, QuantisedTensor(held.kind, *parts), prog))
    keep = [t for t, _ in given] + results
    engine = Engine(graph, prog, threads=threads, allow_out_of_memory=True, keep=keep)
    for tensor, array in given:
        engine[tensor] = array
    engine.run()
    return engine, size * len(results), len(results)


def torch_product(kind: str, rows: int, outputs: int, inputs: int, room: int) -> tuple[Callable[[], Any], int]:
    """The same with PyTorch, in f32 for quantised kinds."""
    dtype = torch.float16 if kind == "f16" else torch.float32
    size = outputs * inputs * dtype.itemsize
    matrices = [torch.randn(outputs, inputs).to(dtype) for _ in range(max(1, room // size))]
    x = torch.randn(rows, inputs).to(dtype)

    def run() -> None:
        for matrix in matrices:
            torch.nn.functional.linear(x, matrix)

    return run, len(matrices)


def copier(threads: int) -> Callable[[], None]:
    """A copy of memory by so many threads."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.ones(COPIED_BYTES, np.uint8)
    share = COPIED_BYTES // threads

    def part(number: int) -> None:
        begin = number * share
        ctypes.memmove(target.ctypes.data + begin, source.ctypes.data + begin, share)

    def run() -> None:
        others = [threading.Thread(target=part, args=(n,)) for n in range(1, threads)]
        for other in others:
            other.start()
        part(0)
        for other in others:
            other.join()

    return run


def seconds(call: Callable[[], Any]) -> float:
    """Duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="576x1536,1536x576,49152x576,4096x4096,4096x11008", help="outputs x inputs")
    parser.add_argument("--kinds", default="f32,f16,int8,int4-32,int4-64,f143")
    parser.add_argument("--rows", default="1,4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=192)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    copy, room = copier(arguments.threads), arguments.megabytes << 20
    table = Table("shape", "kind", "rows", "GB/s of weights", "share of copy", "copy GB/s", "times PyTorch")
    for shape in arguments.shapes.split(","):
        outputs, inputs = map(int, shape.split("x"))
        for kind in arguments.kinds.split(","):
            for rows in map(int, arguments.rows.split(",")):
                engine, size, number = engine_of(kind, rows, outputs, inputs, room, arguments.threads)
                other, count = torch_product(kind, rows, outputs, inputs, room)
                calls = {"ours": engine.run, "copy": copy, "torch": other}
                least = dict.fromkeys(calls, float("inf"))
                for _ in range(arguments.rounds):
                    least = {name: min(least[name], seconds(call)) for name, call in calls.items()}
                engine.close()
                ours, copied = size / least["ours"], 2 * COPIED_BYTES / least["copy"]
                ratio = (least["torch"] / count) / (least["ours"] / number)
                cells = [shape, kind, str(rows), f"{ours / 1e9:.1f}", f"{ours / copied:.2f}", f"{copied / 1e9:.1f}"]
                table.add_row(*cells, f"{ratio:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
