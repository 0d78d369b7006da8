"""Attention over paged caches, on tiles and on the host, against PyTorch's with gathered pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from poplibs_kit import TOLERANCE, Bench
from torch.nn.functional import scaled_dot_product_attention

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.numerics import as_element_type
from abele.poplibs.popnn.attention import CacheView, cached_attention, create_cache, page_places


def by_torch(q: Any, keys: Any, values: Any, table: Any, first: Any, view: CacheView) -> Any:
    """PyTorch's attention, sequence by sequence, over rows gathered from pages, in 64 bits."""
    made = np.zeros((*q.shape[:2], values.shape[2]))
    group = q.shape[1] // keys.shape[1]
    for b, last in enumerate(np.minimum(first, table.shape[1] * view.page + view.window).tolist()):
        seen = range(max(last + 1 - view.window, 0) if view.window else 0, last + 1)
        rows = [table[b, t // view.page] * view.page + t % view.page for t in seen if t // view.page < table.shape[1]]
        rows = [r for r in rows if 0 <= r < len(keys)]
        if not rows:
            continue
        k, v = (torch.tensor(x[rows].astype(np.float64)).transpose(0, 1) for x in (keys, values))
        k, v = (x.repeat_interleave(group, 0) for x in (k, v))
        one = torch.tensor(q[b].astype(np.float64))[:, None]
        if view.softcap:
            scores = torch.tanh(one @ k.transpose(1, 2) * view.scale / view.softcap) * view.softcap
            made[b] = (scores.softmax(-1) @ v)[:, 0]
        else:
            made[b] = scaled_dot_product_attention(one, k, v, scale=view.scale)[:, 0]
    return made


CASES = [
    # tiles, heads, kv heads, width, width of values, view, dtype
    (64, 9, 3, 64, 64, CacheView(4, 0.125), "f32"),
    (64, 4, 4, 32, 20, CacheView(3, 0.2, window=5), "f32"),
    (1472, 6, 2, 128, 128, CacheView(8, 0.1), "f16"),
    (4, 8, 8, 32, 32, CacheView(5, 0.3, softcap=2.0), "f16"),
    (1472, 3, 1, 256, 256, CacheView(1, 0.0625), "f32"),
]


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("case", CASES)
def test_cached_attention__of_pages_in_any_order__is_attention_over_gathered_rows(case: Any, mode: str) -> None:
    num_tiles, heads, shared, width, depth, view, kind = case
    rng, dtype = np.random.default_rng(3), as_element_type(kind)
    pages, batch = 24, 5
    rows = pages * view.page
    q = rng.normal(size=(batch, heads, width)).astype(dtype.np)
    keys = rng.normal(size=(rows, shared, width)).astype(dtype.np)
    values = rng.normal(size=(rows, shared, depth)).astype(dtype.np)
    # Rows that nobody sees hold anything; the first page is shared by two sequences, and two pages are not there.
    keys[: view.page] = values[: view.page] = np.nan
    table = np.array([[5, 2, 9, 7], [5, 3, -1, 11], [99, 20, 21, 22], [8, 0, 0, 0], [0, 0, 0, 0]], np.int32)
    first = np.array(
        [4 * view.page - 1 if view.window else 2**31 - 1, 3 * view.page, 2 * view.page + 3, 0, -1], np.int32
    )
    values[9 * view.page + view.page - 1 :: rows] = 3.0
    bench = Bench(num_tiles)
    graph = bench.graph
    placed = [create_cache(graph, dtype, (rows, shared, w)) for w in (width, depth)]
    bench.data |= {placed[0]: keys, placed[1]: values}
    given = [bench.tensor(a) for a in (q, table, first)]
    places = page_places(graph, given[1], given[2], bench.prog, pages=pages, page=view.page)
    out = cached_attention(graph, given[0], tuple(placed), (given[1], given[2], places), view, bench.prog)
    (made,) = bench.run(out, mode=mode)
    wanted = by_torch(q, keys, values, table, first, view)
    assert np.abs(made - wanted).max() < TOLERANCE[kind]
    assert not made[4].any()


def test_cached_attention__of_what_does_not_fit__is_refused() -> None:
    bench = Bench(4)
    graph, f32, f16 = bench.graph, as_element_type("f32"), as_element_type("f16")
    cache = tuple(create_cache(graph, f32, (12, 2, 8)) for _ in range(2))
    table, first = bench.tensor(np.zeros((3, 2), np.int32)), bench.tensor(np.zeros(3, np.int32))
    places = page_places(graph, table, first, bench.prog, pages=3, page=4)
    view = CacheView(4, 1.0)

    def attend(q: Any, view: CacheView = view, places: Any = places) -> Any:
        return cached_attention(graph, q, cache, (table, first, places), view, bench.prog)

    with pytest.raises(TensorError, match="do not fit keys"):
        attend(bench.tensor(np.zeros((3, 3, 8), np.float32)))
    with pytest.raises(TypeMismatchError, match="not all f16 or all f32"):
        attend(bench.tensor(np.zeros((3, 2, 8)), f16))
    with pytest.raises(TensorError, match="do not fit 12 rows in pages of 5"):
        attend(bench.tensor(np.zeros((3, 2, 8), np.float32)), CacheView(5, 1.0))
    with pytest.raises(InvalidOptionError, match="holds nothing"):
        CacheView(0, 1.0)
    with pytest.raises(InvalidOptionError, match="not below 0"):
        CacheView(4, 1.0, softcap=float("nan"))
