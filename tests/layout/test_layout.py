"""The laws of layouts, each against what NumPy or plain enumeration says."""

from __future__ import annotations

import doctest
import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import layout
from abele.layout import ComplementError, CompositionError, InverseError, Layout, LayoutError, RefinementError, shapes
from abele.layout import layout as values
from abele.layout import modes as lists

Extents = tuple[int, ...]
ANY = st.integers(-20, 20)


def extents(most: int = 3) -> st.SearchStrategy[Extents]:
    return st.lists(st.integers(1, 5), max_size=most).map(tuple)


@st.composite
def layouts(draw: st.DrawFn, strides: st.SearchStrategy[int] = ANY) -> Layout:
    shape = draw(extents())
    return Layout(shape, tuple(draw(strides) for _ in shape))


@st.composite
def cut_shapes(draw: st.DrawFn) -> tuple[Extents, Extents]:
    """Two shapes of one size, made by joining neighbours of a third."""
    fine = draw(st.lists(st.integers(1, 4), max_size=5))

    def joined() -> Extents:
        shape = [1]
        for n in fine:
            shape = [*shape, n] if draw(st.booleans()) else [*shape[:-1], shape[-1] * n]
        return tuple(shape)

    return joined(), joined()


@st.composite
def dense_layouts(draw: st.DrawFn) -> Layout:
    shape = draw(extents())
    return Layout.dense(shape, draw(st.permutations(range(len(shape)))))


@st.composite
def views(draw: st.DrawFn) -> tuple[Extents, Layout, int]:
    """A shape, and a strided view of its row-major indices: some dimensions in some order, sliced, joined or cut."""
    shape = draw(extents())
    sizes, strides, at = list(shape), list(layout.row_major(shape)), 0
    for d in range(len(shape)):
        begin = draw(st.integers(0, sizes[d] - 1))
        step = draw(st.sampled_from([1, 1, 2, -1]))
        kept = range(sizes[d])[begin::step]
        at += kept.start * strides[d]
        sizes[d], strides[d] = len(kept), step * strides[d]
    order = draw(st.permutations(range(len(shape))))
    modes = layout.coalesce([(sizes[d], strides[d]) for d in order])
    if draw(st.booleans()):
        modes = (*modes, (draw(st.integers(1, 3)), 0))
    return shape, Layout.of(modes), at


def listed(made: Layout) -> list[int]:
    """Offsets by nested counting."""
    return [sum(i * s for i, s in zip(index, made.stride, strict=True)) for index in np.ndindex(*made.shape)]


@pytest.mark.parametrize("module", [shapes, lists, values, layout], ids=lambda m: m.__name__)
def test_docstrings__examples__are_true(module) -> None:
    assert doctest.testmod(module).failed == 0


@given(layouts())
def test_layout__any__maps_indices_as_nested_counting_does(made: Layout) -> None:
    wanted = listed(made)
    assert made.offsets().tolist() == wanted
    assert [made(i) for i in range(made.size)] == wanted
    np.testing.assert_array_equal(made(np.arange(made.size, dtype=np.int64)), wanted)
    assert made.bounds == (min(wanted), max(wanted))


@given(layouts())
def test_coalesce__any_layout__keeps_the_function_and_leaves_nothing_to_merge(made: Layout) -> None:
    short = made.coalesced()
    assert listed(short) == listed(made)
    assert 1 not in short.shape
    for (_, outer), (n, inner) in pairwise(short.modes):
        assert outer != n * inner


def test_coalesce__modes_that_fit_only_across_another__stay() -> None:
    assert layout.coalesce([(4, 12), (5, 100), (6, 2)]) == ((4, 12), (5, 100), (6, 2))
    assert layout.coalesce([(5, 100), (4, 12), (6, 2)]) == ((5, 100), (24, 2))
    assert layout.coalesce([(2, 3, 30), (3, 1, 10)]) == ((6, 1, 10),)


@given(layouts(), st.data())
def test_coalesce__two_strides_per_mode__merges_only_what_both_allow(made: Layout, data: st.DataObject) -> None:
    others = tuple(data.draw(st.integers(-20, 20)) for _ in made.shape)
    short = layout.coalesce(list(zip(made.shape, made.stride, others, strict=True)))
    assert listed(Layout.of((n, s) for n, s, _ in short)) == listed(made)
    assert listed(Layout.of((n, t) for n, _, t in short)) == listed(Layout(made.shape, others))


@given(st.sampled_from(range(1, 5)), st.data())
def test_sliced__any_keys__are_the_strides_of_numpy(rank: int, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 5)) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    made = Layout.dense(shape, order)
    keys = [
        slice(
            *data.draw(st.tuples(*[st.none() | st.integers(-6, 6)] * 2)),
            data.draw(st.sampled_from([None, 1, 2, -1, -2])),
        )
        for _ in shape
    ]
    numbers = np.arange(made.size)
    shown = np.lib.stride_tricks.as_strided(numbers, shape, [s * numbers.itemsize for s in made.stride])[tuple(keys)]
    part, first = made.sliced(keys)
    assert part.shape == shown.shape
    assert (first + part.offsets()).tolist() == shown.reshape(-1).tolist()


@given(views(), st.data())
def test_compose__view_of_any_layout__is_function_composition(
    made: tuple[Extents, Layout, int], data: st.DataObject
) -> None:
    shape, inner, at = made
    outer = Layout(shape, tuple(data.draw(st.integers(-20, 20)) for _ in shape))
    try:
        composed = outer.compose(inner, at)
    except CompositionError:
        return
    assert composed.size == inner.size
    assert [outer(at) + composed(i) for i in range(inner.size)] == [outer(at + inner(i)) for i in range(inner.size)]


@given(extents(), st.data())
def test_compose__whole_shape_turned_and_joined__is_always_defined(shape: Extents, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    strides = layout.row_major(shape)
    inner = Layout.of((shape[d], strides[d]) for d in order).coalesced()
    stored = Layout.dense(shape, order)
    # A tensor stored in the order in which it is read is one run.
    assert stored.compose(inner).offsets().tolist() == list(range(math.prod(shape)))


@given(layouts(), layouts(st.integers(0, 30)), st.integers(0, 30))
def test_compose__result_or_refusal__never_a_wrong_function(outer: Layout, inner: Layout, at: int) -> None:
    if at + inner.bounds[1] >= outer.size:
        with pytest.raises(CompositionError):
            outer.compose(inner, at)
        return
    try:
        composed = outer.compose(inner, at)
    except CompositionError:
        return
    assert [outer(at) + n for n in listed(composed)] == [outer(at + n) for n in listed(inner)]


@given(layouts(st.integers(0, 40)), st.integers(1, 600))
def test_complement__with_its_layout__fills_the_range_once(made: Layout, size: int) -> None:
    offsets = listed(made)
    try:
        rest = made.complement(size)
    except ComplementError:
        return
    assert sorted(a + b for a in listed(rest) for b in offsets) == list(range(size))


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6), st.permutations(range(6)))
def test_complement__some_digits_of_a_range__is_the_other_digits(
    parts: list[tuple[int, bool]], order: list[int]
) -> None:
    shape = [n for n, _ in parts]
    strides = layout.row_major(shape)
    picked = [d for d in order if d < len(parts) and parts[d][1]]
    made = Layout.of((shape[d], strides[d]) for d in picked)
    rest = made.complement(math.prod(shape))
    assert sorted(a + b for a in listed(rest) for b in listed(made)) == list(range(math.prod(shape)))


@given(extents(), st.data())
def test_divide__digits_of_a_layout__lists_its_offsets_tile_by_tile(shape: Extents, data: st.DataObject) -> None:
    made = Layout(shape, tuple(data.draw(st.integers(-20, 20)) for _ in shape))
    strides = layout.row_major(shape)
    tile = Layout.of((n, s) for n, s in zip(shape, strides, strict=True) if data.draw(st.booleans()))
    over, within = made.divide(tile)
    first = tile.complement(made.size)
    assert within.size == tile.size
    assert [[a + b for b in listed(within)] for a in listed(over)] == [
        [made(i + j) for j in listed(tile)] for i in listed(first)
    ]


@given(dense_layouts())
def test_inverse__layout_without_gaps__inverts(made: Layout) -> None:
    back = made.inverse()
    assert [made(back(i)) for i in range(made.size)] == list(range(made.size))
    assert [back(made(i)) for i in range(made.size)] == list(range(made.size))


@given(layouts(st.integers(-3, 12)))
def test_inverse__any_layout__exists_exactly_where_offsets_fill_a_range(made: Layout) -> None:
    if sorted(listed(made)) == list(range(made.size)) and all(s > 0 for n, s in made.modes if n > 1):
        assert [made(made.inverse()(i)) for i in range(made.size)] == list(range(made.size))
    else:
        with pytest.raises(InverseError):
            made.inverse()


@given(cut_shapes(), st.data())
def test_reshaped__shapes_that_cut_each_other__keeps_the_function(
    made: tuple[Extents, Extents], data: st.DataObject
) -> None:
    shape, other = made
    one = Layout(shape, tuple(data.draw(st.integers(-9, 9)) for _ in shape))
    try:
        parts = one.reshaped(other)
    except RefinementError:
        return
    assert tuple(p.size for p in parts) == other
    assert listed(Layout.of(m for p in parts for m in p.modes)) == listed(one)


@given(cut_shapes())
def test_refine__two_shapes_of_one_size__has_the_borders_of_both_and_no_more(made: tuple[Extents, Extents]) -> None:
    def borders(shape: Extents) -> set[int]:
        return {math.prod(shape[d:]) for d in range(len(shape) + 1)}

    one, other = made
    marks = sorted(borders(one) | borders(other))
    if any(b % a for a, b in pairwise(marks)):
        with pytest.raises(RefinementError):
            layout.refine(one, other)
        return
    pieces, groups = layout.refine(one, other)
    fine = tuple(n for p in pieces for n in p)
    assert fine == tuple(n for g in groups for n in g)
    assert borders(fine) == set(marks)
    assert [math.prod(p) for p in pieces] == list(one)
    assert [math.prod(g) for g in groups] == list(other)


@given(extents(), st.data())
def test_digits__every_index__are_the_coordinates_of_numpy(shape: Extents, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, math.prod(shape) - 1))
    assert layout.digits(index, shape) == [int(i) for i in np.unravel_index(index, shape)]
    assert Layout.dense(shape)(index) == index


@given(layouts())
def test_image__any_layout__is_the_set_of_its_offsets(made: Layout) -> None:
    low, modes, times = layout.image(made.modes)
    assert set((low + layout.offsets(modes)).tolist()) == set(listed(made))
    assert math.prod(n for n, _ in modes) * times == made.size
    assert all(s > 0 for _, s in modes)


@pytest.mark.parametrize("stride", [-2, -1, 0, 1])
def test_image__one_mode__begins_at_its_lowest_offset(stride: int) -> None:
    wanted = {-2: (-4, [(3, 2)], 1), -1: (-2, [(3, 1)], 1), 0: (0, [], 3), 1: (0, [(3, 1)], 1)}
    assert layout.image([(3, stride)]) == wanted[stride]
    assert layout.image([(2, 0), (3, stride)]) == (wanted[stride][0], wanted[stride][1], 2 * wanted[stride][2])


@given(layouts())
def test_are_apart__true__means_that_no_offset_repeats(made: Layout) -> None:
    if layout.are_apart(made.modes):
        assert len(set(listed(made))) == made.size


@given(dense_layouts())
def test_are_apart__layout_without_gaps__is_true(made: Layout) -> None:
    assert layout.are_apart(made.modes)


@given(layouts(st.sampled_from([0, 1, 2, 3, 4, 6, 12])))
def test_run_length__any_layout__is_a_run_at_every_multiple(made: Layout) -> None:
    run, offsets = layout.run_length(made.modes), listed(made)
    assert made.size % run == 0
    for begin in range(0, made.size, run):
        assert offsets[begin : begin + run] == list(range(offsets[begin], offsets[begin] + run))
    short = made.coalesced()
    assert run == (short.shape[-1] if short.shape and short.stride[-1] == 1 else 1)


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        ((2, 6, 1), (12, 1), [(2, 1), (3, 2)]),
        ((2, 3, 1, 1), (6,), [(4, 1)]),
        ((6,), (2, 3, 1, 1), [(1, 4)]),
        ((1, 2), (1, 2), [(1, 1), (2, 2)]),
        ((), (1,), [(0, 1)]),
        ((1, 1), (), [(2, 0)]),
        ((), (), []),
        ((0, 5), (3, 0, 2), [(2, 3)]),
    ],
)
def test_matching_groups__ones_and_equal_extents__stay_apart(
    old: Extents, new: Extents, ends: list[tuple[int, int]]
) -> None:
    begins = [(0, 0), *ends]
    wanted = [(range(i, k), range(j, m)) for (i, j), (k, m) in zip(begins, ends, strict=False)]
    assert list(layout.matching_groups(old, new)) == wanted


@given(st.lists(st.integers(1, 60), max_size=8))
def test_divisors__marks_added_in_any_order__are_a_shape(marks: list[int]) -> None:
    chain = layout.Divisors(60)
    for mark in marks:
        chain.add(mark)
    assert math.prod(chain.shape) == 60
    assert all(n > 1 for n in chain.shape)
    assert [1, *(math.prod(chain.shape[d:]) for d in range(len(chain.shape) - 1, -1, -1))] == chain.marks


def test_divisors__marks_that_do_not_divide__are_refused() -> None:
    chain = layout.Divisors(24)
    assert chain.add(4)
    assert chain.add(8)
    assert not chain.add(6)
    assert repr(chain.shape) == "(3, 2, 4)"
    assert [chain.digit_of(s) for s in (1, 3, 4, 8, 24)] == [0, 0, 1, 2, 2]


def test_divisors__range_kept_whole__is_not_split() -> None:
    chain = layout.Divisors(60)
    chain.keep_whole(5, 60)
    assert not chain.add(10)
    assert chain.add(5)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_dense__any_order__is_a_transposed_array(order: Extents) -> None:
    stored = np.arange(60).reshape([(3, 4, 5)[d] for d in order])
    shown = stored.transpose(np.argsort(order))
    assert Layout.dense((3, 4, 5), order).offsets().tolist() == shown.reshape(-1).tolist()


def test_errors__each_refusal__says_its_numbers() -> None:
    by_rows = Layout.dense((4, 6))
    with pytest.raises(LayoutError, match=r"shape \(2,\) and stride \(\) differ in length"):
        Layout((2,), ())
    with pytest.raises(CompositionError, match=r"steps of 7 move no single mode of \(4, 6\):\(6, 1\)"):
        by_rows.compose(Layout((3,), (7,)))
    with pytest.raises(CompositionError, match=r"5 steps of 4 are no whole rounds of mode 1"):
        by_rows.compose(Layout((5,), (4,)))
    with pytest.raises(CompositionError, match=r"\(6,\):\(1,\) from 3 on carries"):
        by_rows.compose(Layout((6,), (1,)), at=3)
    with pytest.raises(ComplementError, match=r"copies of \(4,\):\(2,\) do not tile 12 offsets"):
        Layout((4,), (2,)).complement(12)
    with pytest.raises(InverseError, match=r"offsets of \(2, 2\):\(1, 1\) are not 0 to 3, each once"):
        Layout((2, 2), (1, 1)).inverse()
    with pytest.raises(RefinementError, match=r"no shape refines \(4, 6\) and \(6, 4\)"):
        layout.refine((4, 6), (6, 4))
