"""Attention over paged caches as ops of networks: their meaning, their text, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from abele.errors import NetworkError
from abele.network import Network, NetworkBuilder, evaluate, parse, verify
from abele.network.ops import build
from abele.poplibs.popnn.attention import CacheView


def network(queries: int, view: CacheView, *, rows: int = 24, dtype: str = "f32", pages: int = 4) -> Network:
    net = NetworkBuilder()
    q = net.input((2, queries, 4, 8), dtype, "q")
    keys, values = (net.input((rows, 2, 8), dtype, name) for name in ("keys", "values"))
    table, first = net.input((2, pages), "i32", "table"), net.input((2,), "i32", "first")
    net.output(build.cached_attention(net, q, keys, values, table, first, view=view))
    return net.finish()


@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("view", [CacheView(4, 0.5), CacheView(3, 0.3, window=4), CacheView(4, 1.0, softcap=2.0)])
def test_cached_attention__interpreted__is_pytorchs_over_gathered_rows(queries: int, view: CacheView) -> None:
    rng, rows = np.random.default_rng(4), 24
    arrays: dict[str, Any] = {
        "q": rng.normal(size=(2, queries, 4, 8)).astype(np.float32),
        "keys": rng.normal(size=(rows, 2, 8)).astype(np.float32),
        "values": rng.normal(size=(rows, 2, 8)).astype(np.float32),
        "table": np.array([[2, 5, 1, 3], [2, 77, 4, -1]], np.int32),
        "first": np.array([9, 8], np.int32),
    }
    arrays["keys"][:3] = arrays["values"][:3] = np.nan
    net = network(queries, view)
    verify(net)
    assert parse(str(net)) == net
    made = evaluate(net, {v: arrays[v.name] for v in net.inputs})[net.outputs[0]]
    for b, t in np.ndindex(2, queries):
        last = int(arrays["first"][b]) + t
        seen = range(max(0, last + 1 - view.window) if view.window else 0, last + 1)
        pages = arrays["table"][b]
        numbers = [pages[p // view.page] * view.page + p % view.page for p in seen if pages[p // view.page] in range(8)]
        numbers = [n for n in numbers if n < rows]
        k, v = (torch.tensor(arrays[n][numbers]).transpose(0, 1)[None] for n in ("keys", "values"))
        one = torch.tensor(arrays["q"][b, t])[None, :, None]
        if view.softcap:
            scores = one.reshape(1, 2, 2, 8) @ k.transpose(2, 3) * view.scale
            shares = torch.softmax(torch.tanh(scores / view.softcap) * view.softcap, -1)
            wanted = (shares @ v).reshape(1, 4, 1, 8)
        else:
            wanted = scaled_dot_product_attention(one, k, v, scale=view.scale, enable_gqa=True)
        assert np.abs(made[b, t] - wanted[0, :, 0].numpy()).max() < 1e-5


def test_cached_attention__of_what_does_not_fit__is_refused() -> None:
    with pytest.raises(NetworkError, match="no pages of 5 rows"):
        network(1, CacheView(5, 1.0))
    with pytest.raises(NetworkError, match="are not alike"):
        network(1, CacheView(4, 1.0), dtype="bf16")
    # Without pages nothing is seen.
    net = network(1, CacheView(4, 1.0), pages=0)
    verify(net)
