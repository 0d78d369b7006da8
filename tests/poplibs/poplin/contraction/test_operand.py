from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Graph
from abele.graph.intervals import expand
from abele.numerics import f32
from abele.poplibs.poplin.contraction.operand import Operand, allocate, blocked, operand, seen_in_order
from poplibs.poplin.support import system


def made(order: list[str], blocks: dict[str, int], extents: dict[str, int]) -> Operand:
    return allocate(Graph(system(4)), f32, extents, blocked(order, blocks, extents), "t")


def test_allocate__blocked_channels__stores_groups_outermost() -> None:
    t = made(["co1", "b", "co0"], {"co": 4}, {"b": 3, "co": 8})
    assert t.tensor.shape == (3, 8)
    assert [(e.dim, e.step, e.extent) for e in t.entries] == [("co", 4, 2), ("b", 1, 3), ("co", 1, 4)]
    assert (t.block("co"), t.block("b"), t.innermost, t.is_regular) == (4, None, "co", True)


def test_allocate__one_block__is_stored_whole() -> None:
    t = made(["co1", "b", "co0"], {"co": 8}, {"b": 3, "co": 8})
    assert t.block("co") is None
    assert t.tensor.is_contiguous


def test_operand__transposed_view__is_walked_in_memory_order() -> None:
    graph = Graph(system(4))
    t = operand(graph.variable(f32, (5, 7)).T, ("ci", "b"))
    assert t.innermost == "ci"
    assert t.storage.is_contiguous


def test_operand__single_element__has_an_entry() -> None:
    t = operand(Graph(system(4)).variable(f32, (1, 1)), ("b", "ci"))
    one = {d: np.ones(1, np.int64) for d in ("b", "ci")}
    assert t.regions({d: n - 1 for d, n in one.items()}, one).sizes.tolist() == [1]


def test_is_regular__view_of_two_variables__is_not() -> None:
    from abele.graph import concat

    graph = Graph(system(4))
    both = concat([graph.variable(f32, (2, 4)), graph.variable(f32, (2, 4))])
    assert not operand(both, ("b", "ci")).is_regular


def test_seen_in_order__groups_of_another_size__is_a_view_of_the_same_elements() -> None:
    extents = {"ci": 16, "b": 3}
    t = made(["ci1", "b", "ci0"], {"ci": 2}, extents)
    seen = seen_in_order(t, blocked(["ci1", "b", "ci0"], {"ci": 8}, extents))
    assert [(e.dim, e.step, e.extent) for e in seen.entries] == [("ci", 8, 2), ("b", 1, 3), ("ci", 1, 8)]
    box = {"ci": np.array([8]), "b": np.array([1])}
    regions = seen.regions(box, {"ci": np.array([8]), "b": np.array([1])})
    # Four groups of two channels of the second sample, from the fifth group on.
    assert expand(regions.begin, regions.length).tolist() == [
        (group * 3 + 1) * 2 + i for group in range(4, 8) for i in range(2)
    ]


@given(st.data())
def test_regions__any_box__holds_its_elements_in_storage_order(data: st.DataObject) -> None:
    extents = {"b": 3, "co": 16, "o0": 5}
    t = made(["co1", "o0", "b", "co0"], {"co": 4}, extents)
    whole_blocks = data.draw(st.booleans())
    start, size = {}, {}
    for dim in ("b", "o0"):
        start[dim] = data.draw(st.integers(0, extents[dim] - 1))
        size[dim] = data.draw(st.integers(1, extents[dim] - start[dim]))
    if whole_blocks:
        first = data.draw(st.integers(0, 3))
        start["co"], size["co"] = 4 * first, 4 * data.draw(st.integers(1, 4 - first))
    else:
        inside = data.draw(st.integers(0, 3))
        start["co"] = 4 * data.draw(st.integers(0, 3)) + inside
        size["co"] = data.draw(st.integers(1, 4 - inside))
    arrays = [{d: np.array([n]) for d, n in box.items()} for box in (start, size)]
    regions = t.regions(*arrays)
    box = t.tensor.addresses()[tuple(slice(start[d], start[d] + size[d]) for d in extents)]
    found = expand(regions.begin, regions.length)
    assert found.tolist() == sorted(box.reshape(-1).tolist())
    strides = t.local_strides(arrays[1])
    local = {d: np.arange(start[d], start[d] + size[d]) for d in extents}
    for dim, other in (("b", "o0"), ("o0", "b")):
        if size[dim] > 1:
            a, b = (
                t.tensor.addresses()[tuple(local[d][j] if d == dim else local[d][0] for d in extents)] for j in (0, 1)
            )
            step = found.tolist().index(int(b)) - found.tolist().index(int(a))
            assert step == strides[(dim, False)][0], (dim, other)
