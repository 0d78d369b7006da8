"""Library functions of rows that indices name, and of rows in order: embeddings, gathers, scatters, scans, searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from library_cases import Case, Data
from library_more import ATEN, SIDE, case

from abele.graph import Graph, Sequence, Tensor
from abele.poplibs import popnn, popops


def all_row_cases() -> Iterator[Case]:
    """Every case, related ones side by side."""
    yield from embeddings(50_000, 128, 16_384)
    yield from along_dims()
    yield from edges(100_000, 64, 1_000_000)
    yield from ordered()


def numbers(below: int, shape: tuple[int, ...]) -> Callable[[Data], Data]:
    """Makes random indices of ``shape``."""
    return lambda _: {"index": torch.randint(below, shape).to(torch.uint32)}


def embeddings(entries: int, width: int, count: int) -> Iterator[Case]:
    """Rows of a table, and the gradient of the table."""
    yield case(
        "embedding",
        {"x": (entries, width), "index": (count,)},
        lambda g, p, x, index: popops.multi_slice(g, x, index, [0], [1], p),
        lambda x, index: F.embedding(index.to(torch.int32), x),
        work=8.0 * count * width,
        make=numbers(entries, (count,)),
    )

    def gradient(graph: Graph, prog: Sequence, d: Tensor, index: Tensor) -> Tensor:
        table = popops.create_sliceable_tensor(graph, "f32", (entries, width), [0], [1])
        popops.zero(graph, table, prog)
        popops.multi_update_add(graph, table, d.expand_dims(1), index, 1.0, [0], [1], prog)
        return table

    yield case(
        "embedding gradient",
        {"d": (count, width), "index": (count,)},
        gradient,
        lambda d, index: ATEN.embedding_dense_backward(d, index.to(torch.int32), entries, -1, False),
        work=4.0 * width * (entries + 3 * count),
        make=numbers(entries, (count,)),
    )


def along_dims() -> Iterator[Case]:
    """Columns by their numbers, and elements of rows each by a number of its own."""
    rows, columns = SIDE
    yield case(
        "index_select columns",
        {"x": SIDE, "index": (512,)},
        lambda g, p, x, index: popops.gather(g, x, index, axis=1, prog=p),
        lambda x, index: x.index_select(1, index.to(torch.int32)),
        work=8.0 * rows * 512,
        make=numbers(columns, (512,)),
    )

    def elements(graph: Graph, prog: Sequence, x: Tensor, index: Tensor) -> Tensor:
        return popops.grouped_multi_slice(graph, x.expand_dims(2), index.expand_dims(2), [0], [1], prog)

    yield case(
        "gather elements of rows",
        {"x": SIDE, "index": SIDE},
        elements,
        lambda x, index: x.gather(1, index.to(torch.int64)),
        make=numbers(columns, SIDE),
    )


def edges(nodes: int, width: int, count: int) -> Iterator[Case]:
    """Sums of the values of edges at the nodes where they end."""

    def added(graph: Graph, prog: Sequence, d: Tensor, index: Tensor) -> Tensor:
        table = popops.create_sliceable_tensor(graph, "f32", (nodes, width), [0], [1])
        popops.zero(graph, table, prog)
        popops.multi_update_add(graph, table, d.expand_dims(1), index, 1.0, [0], [1], prog)
        return table

    def theirs(d: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        # Graph networks spell it so: one index for all columns of an edge.
        whole = index.to(torch.int64)[:, None].expand(-1, width)
        return torch.zeros(nodes, width).scatter_add_(0, whole, d)

    yield case(
        "scatter_add",
        {"d": (count, width), "index": (count,)},
        added,
        theirs,
        work=4.0 * width * (nodes + 3 * count),
        make=numbers(nodes, (count,)),
    )
    yield case(
        "gather edges",
        {"x": (nodes, width), "index": (count,)},
        lambda g, p, x, index: popops.multi_slice(g, x, index, [0], [1], p),
        lambda x, index: x.index_select(0, index.to(torch.int32)),
        work=8.0 * width * count,
        make=numbers(nodes, (count,)),
    )


def ordered() -> Iterator[Case]:
    """Scans, searches and orders of rows."""
    for dim in (0, 1):
        yield case(
            f"cumsum along {dim}",
            {"x": SIDE},
            lambda g, p, x, dim=dim: popops.cum_sum(g, x, dim, p),
            lambda x, dim=dim: x.cumsum(dim),
        )
    yield case(
        "argmax", {"x": SIDE}, lambda g, p, x: popnn.arg_max(g, x, p), lambda x: x.argmax(1), work=4.0 * math.prod(SIDE)
    )
    yield case(
        "sort with places",
        {"x": (256, 1024)},
        lambda g, p, x: list(popops.sort_with_permutation(g, x, 1, p)),
        lambda x: x.sort(1),
        work=256.0 * 1024,
        unit="G/s",
    )
    yield case(
        "top 32 of long rows",
        {"x": (64, 16_384)},
        lambda g, p, x: popnn.top_k(g, x, 32, p)[0],
        lambda x: x.topk(32),
        work=64.0 * 16_384,
        unit="G/s",
    )
