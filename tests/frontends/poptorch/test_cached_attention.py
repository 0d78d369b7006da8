"""Attention over a paged cache in models: written in place on the device, equal to eager mode and to PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from abele import poptorch
from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.functions.cached_attention import CacheShapeError

NAN = float("nan")


class Step(torch.nn.Module):
    """Rows that are written to a cache, and attention over it."""

    def __init__(self, rows: int, shared: int, width: int, page: int, **how: Any) -> None:
        super().__init__()
        self.how, self.page = how, page
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(rows, shared, width))

    def forward(self, q: Any, new: Any, rows: Any, table: Any, first: Any) -> Any:
        self.keys.index_copy_(0, rows, new)
        self.values.index_copy_(0, rows, new * 0.5)
        return poptorch.cached_attention(q, self.keys, self.values, table, first, page=self.page, **self.how)


def by_torch(step: Step, q: Any, table: Any, first: Any) -> Any:
    """PyTorch's attention of each query alone, over rows gathered one by one."""
    made, page, window = torch.zeros_like(q), step.page, step.how.get("window")
    for b in range(len(q)):
        for t in range(q.shape[1]):
            last = int(first[b]) + t
            places = range(max(0, last + 1 - window) if window else 0, min(last + 1, table.shape[1] * page))
            rows = [int(table[b, p // page]) * page + p % page for p in places]
            rows = [r for r in rows if 0 <= r < len(step.keys)]
            if rows:
                k, v = (c[rows].transpose(0, 1)[None] for c in (step.keys, step.values))
                one = q[b, t][None, :, None]
                made[b, t] = scaled_dot_product_attention(one, k, v, enable_gqa=True)[0, :, 0]
    return made


@pytest.mark.parametrize(("queries", "how"), [(1, {}), (3, {"window": 3})])
def test_cached_attention__of_shared_and_missing_pages__is_pytorchs_in_eager_mode_and_on_the_device(
    queries: int, how: Any
) -> None:
    torch.manual_seed(1)
    step = Step(48, 3, 32, 4, **how)
    step.keys[44:] = step.values[44:] = NAN
    # Page 2 is shared; two pages are not there; nobody owns page 0, where the last sequence writes.
    table = torch.tensor([[1, 2, 3, 11, -1], [4, 2, 5, 99, 0], [0, 0, 0, 0, 0]], dtype=torch.int32)
    first = torch.tensor([7, 9, -3], dtype=torch.int32)
    given = (torch.randn(3, queries, 9, 32), torch.randn(3, 3, 32), torch.tensor([10, 20, 0]), table, first)
    eager = copy.deepcopy(step)
    wanted = eager(*given)
    assert torch.allclose(wanted, by_torch(eager, given[0], table, first), atol=1e-5)
    model = poptorch.inferenceModel(step, poptorch.Options())
    assert torch.allclose(model(*given), wanted, atol=1e-5)
    # The second call reads what the first one wrote.
    assert torch.allclose(model(given[0], *given[1:]), wanted, atol=1e-5)
    if queries == 1:
        steps = model.report().steps
        names = [str(n) for n in steps["name"]]
        assert not [n for n in names if "write_back" in n or n.startswith("table")], "the cache is not copied"


def test_cached_attention__of_what_does_not_fit__is_refused() -> None:
    q, cache = torch.zeros(2, 1, 4, 8), torch.zeros(8, 2, 8)
    table, first = torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)

    def refused(match: str, *given: Any, **how: Any) -> None:
        with pytest.raises(CacheShapeError, match=match):
            poptorch.cached_attention(*given, **{"page": 4, **how})

    refused("shapes do not fit", q[..., :7], cache, cache, table, first)
    refused("no multiple of kv heads", q[:, :, :3], cache, cache, table, first)
    refused("types differ", q.half(), cache, cache, table, first)
    refused("batches differ", q, cache, cache, table[:1], first)
    refused("hold no int32", q, cache, cache, table.float(), first)
    refused("no pages of 3 rows", q, cache, cache, table, first, page=3)
    refused("shows nothing", q, cache, cache, table, first, window=0)
    refused("no bound above 0", q, cache, cache, table, first, softcap=-1.0)
    assert not poptorch.cached_attention(q, cache, cache, table[:, :0], first, page=4).any()


def test_cached_attention__in_training__has_no_derivative() -> None:
    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8))
            self.step = Step(8, 2, 8, 4)

        def forward(self, q: Any, table: Any, first: Any) -> Any:
            made = poptorch.cached_attention(q * self.weight, self.step.keys, self.step.values, table, first, page=4)
            return poptorch.identity_loss(made.square(), "sum")

    model = Loss()
    trained = poptorch.trainingModel(model, poptorch.Options(), torch.optim.SGD(model.parameters(), lr=0.1))
    table, first = torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(UnsupportedOpError, match="attention over a cache has no derivative"):
        trained(torch.randn(2, 1, 4, 8), table, first)


class Sparq(torch.nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, q: Any, keys: Any, values: Any, lengths: Any) -> Any:
        return poptorch.sparq_attention(q, keys, values, lengths=lengths, **self.how)


def test_sparq_attention__of_everything__is_attention_and_of_a_part_is_the_same_on_the_device() -> None:
    torch.manual_seed(2)
    q, keys, values = torch.randn(2, 6, 16), torch.randn(2, 3, 20, 16), torch.randn(2, 3, 20, 16)
    lengths = torch.tensor([20, 13], dtype=torch.int32)
    keys[1, :, 13:] = values[1, :, 13:] = NAN
    whole = poptorch.sparq_attention(q, keys, values, components=16, positions=20, lengths=lengths)
    for b, n in enumerate(lengths.tolist()):
        k, v = keys[b : b + 1, :, :n], values[b : b + 1, :, :n]
        wanted = scaled_dot_product_attention(q[b : b + 1, :, None], k, v, enable_gqa=True)[:, :, 0]
        assert torch.allclose(whole[b : b + 1], wanted, atol=1e-5)
    part = Sparq(components=6, positions=8, local=2)
    model = poptorch.inferenceModel(part, poptorch.Options())
    assert torch.allclose(model(q, keys, values, lengths), part(q, keys, values, lengths), atol=1e-4)
    for wrong in ({"components": 17, "positions": 2}, {"components": 2, "positions": 21}):
        with pytest.raises(CacheShapeError, match="cannot be"):
            poptorch.sparq_attention(q, keys, values, **wrong)
