from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorCreationError, TensorError, TensorIndexError, TypeMismatchError
from abele.graph import Graph, block_table, boxes, concat, concatenation, rows, stack
from abele.graph.content import AddressList
from abele.numerics import f16, f32, i32, u32
from graph.support_views import chains


def graph() -> Graph:
    return Graph("gc200")


def elements(tensor):
    """The addresses that a view shows, through its intervals."""
    begin, length = tensor.intervals()
    parts = [np.arange(b, b + n) for b, n in zip(begin, length, strict=True)]
    return np.concatenate(parts).reshape(tensor.shape) if parts else np.empty(tensor.shape, dtype=np.int64)


@given(chains())
def test_views__any_chain_of_operations__shows_what_numpy_shows(case):
    tensor, array = case
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(elements(tensor), array)
    np.testing.assert_array_equal(tensor.addresses(), array)


@given(chains(), st.data())
def test_boxes__any_view__list_the_elements_of_each_box(case, data):
    tensor, array = case
    if tensor.ndim == 0:
        return
    n = data.draw(st.integers(1, 4))
    starts, sizes = [], []
    for _ in range(n):
        start = [data.draw(st.integers(0, m - 1)) for m in tensor.shape]
        starts.append(start)
        sizes.append([data.draw(st.integers(1, m - s)) for s, m in zip(start, tensor.shape, strict=True)])
    regions = boxes(tensor, starts, sizes)
    assert regions.num == n
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        expected = array[tuple(slice(s, s + m) for s, m in zip(start, size, strict=True))].reshape(-1)
        part = slice(regions.ptr[i], regions.ptr[i + 1])
        got = [np.arange(b, b + k) for b, k in zip(regions.begin[part], regions.length[part], strict=True)]
        np.testing.assert_array_equal(np.concatenate(got), expected)


@pytest.mark.parametrize("few", [0, 3])
def test_views__blocks_as_arrays__show_the_same(few, monkeypatch):
    for module in (block_table, concatenation):
        monkeypatch.setattr(module, "FEW", few)

    @given(chains())
    def check(case):
        tensor, array = case
        np.testing.assert_array_equal(elements(tensor), array)
        np.testing.assert_array_equal(tensor.addresses(), array)
        assert tensor.contains_aliases == (len(np.unique(array)) < array.size)
        assert tensor.content.bounds == (array.min(), array.max() + 1)

    check()


@given(chains(), st.data())
def test_overlaps__two_views_of_a_graph__found_exactly_when_they_share_an_element(case, data):
    tensor, array = case
    variable = data.draw(st.sampled_from(tensor.graph.variables))
    begin = data.draw(st.integers(0, variable.size - 1))
    end = data.draw(st.integers(begin + 1, variable.size))
    part = tensor.graph.whole(variable).flatten()[begin:end]
    shared = np.intersect1d(array, np.arange(variable.base + begin, variable.base + end))
    assert tensor.overlaps(part) == part.overlaps(tensor) == bool(shared.size)


@given(chains())
def test_blocks__where_a_view_has_them__are_boxes_that_fill_it(case):
    tensor, array = case
    if tensor.blocks is None:
        return
    filled = np.zeros(array.shape, dtype=int)
    for block in tensor.blocks:
        box = tuple(slice(o, o + n) for o, n in zip(block.origin, block.extents, strict=True))
        filled[box] += 1
    assert (filled == 1).all()


@given(chains())
def test_aliases__any_view__found_exactly_when_an_element_repeats(case):
    tensor, array = case
    assert tensor.contains_aliases == (len(np.unique(array)) < array.size)


def test_strided__channels_view_of_a_grouped_layout__keeps_one_block_with_two_factors():
    t = graph().variable(f32, (4, 2, 9, 9, 16))
    channels = t.transpose(1, 0, 4, 2, 3).reshape(2, 64, 9, 9)
    strided = channels.strided()
    assert strided is not None
    assert strided.factors == (((2, 1296),), ((4, 2592), (16, 1)), ((9, 144),), ((9, 16),))


def test_rows__matrix__one_interval_a_row():
    t = graph().variable(f32, (6, 10))
    regions = rows(t)
    assert regions.num == 6
    assert regions.sizes.tolist() == [10] * 6
    assert regions.counts.tolist() == [1] * 6


def test_concat__same_variable_split_and_joined__is_contiguous():
    t = graph().variable(f32, 10)
    joined = concat([t[:4], t[4:]])
    assert joined.is_contiguous
    assert joined.is_same_view(t)


def test_writable__constants_and_broadcasts__are_not():
    g = graph()
    t = g.variable(f32, (4, 1))
    assert t.writable
    assert not t.broadcast_to((4, 3)).writable
    assert not g.constant(f32, (2,), 1.0).writable


def test_overlaps__shared_element__is_found():
    t = graph().variable(f32, 10)
    assert t[0:4].overlaps(t[3:6])
    assert not t[0:4].overlaps(t[4:6])


def test_reinterpret__other_width__is_refused():
    t = graph().variable(f32, 4)
    assert t.reinterpret(u32).dtype == u32
    with pytest.raises(TypeMismatchError, match="cannot see"):
        t.reinterpret(f16)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda t: t[7], r"index 7 is out of range for dimension 0"),
        (lambda t: t.slice(2, 9), r"slice \[2, 9\) is outside dimension 0"),
        (lambda t: t.reshape(5, 5), r"it has 24 elements, the new shape 25"),
        (lambda t: t.reshape(-1, 5), r"do not divide"),
        (lambda t: t.transpose(0, 0), r"\[0, 0\] is no permutation"),
        (lambda t: t.broadcast_to((3, 6)), r"does not broadcast to \[3, 6\]"),
        (lambda t: t.squeeze(0), r"cannot squeeze dimension 0"),
        (lambda t: t[1, 2, 3], r"3 indices for a tensor of 2 dimensions"),
        (lambda t: t["a"], r"takes integers, slices"),
        (lambda t: t[:, ::0], r"slice\(None, None, 0\) of dimension 1 of .*'t'.*: slice step cannot be zero"),
        (lambda t: t[1.0:], r"of dimension 0 of .*'t'.*: slice indices must be integers"),
        (lambda t: t.reshape(4.5, 6), r"are whole numbers, as in \(4, 3\), not tuple \(4.5, 6\)"),
        (lambda t: t.transpose(None), r"are whole numbers, as in \(4, 3\), not None"),
        (lambda t: t.broadcast(2.5), r"cannot repeat dimension 0 of .* 2.5 times"),
        (lambda t: t.split(5), r"in 5 equal parts"),
        (lambda t: concat([t, t[:, :2]]), r"along dimension 0: the shapes differ"),
        (lambda t: concat([]), r"nothing to concatenate"),
        (lambda t: boxes(t, [[0, 0]], [5, 6]), r"box 0 reaches outside"),
    ],
)
def test_views__wrong_argument__names_it(action, text):
    with pytest.raises(TensorError, match=text):
        action(graph().variable(f32, (4, 6), name="t"))


def test_concat__other_type__is_refused():
    g = graph()
    with pytest.raises(TypeMismatchError, match="element types differ"):
        concat([g.variable(f32, 2), g.variable(i32, 2)])


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda t: t[-5], r"index -5 is out of range for dimension 0 of Tensor\(f32\[4, 6\] of 't'.*has 4 indices"),
        (lambda t: t.slice(-2, 3), r"slice \[-2, 3\) is outside dimension 0 of .*'t'"),
        (lambda t: t.slice(0, 7, 1), r"slice \[0, 7\) is outside dimension 1 of .*'t'.*which has 6 indices"),
        (lambda t: t[:4, :].slice(0, 9, 1), r"slice \[0, 9\) is outside dimension 1"),
        (lambda t: t.slice(0, 1, 2), r"'t'.* has no dimension 2: it has 2"),
        (lambda t: t.flatten(1, 3), r"has 2 dimensions, not \[1, 3\)"),
        (lambda t: t.expand_dims(4), r"none can be added before 4"),
        (lambda t: t.dim_shuffle_partial([0, 0], [0, 1]), r"cannot move dimensions \[0, 0\]"),
        (lambda t: t.reshape_partial(0, 3, (24,)), r"has 2 dimensions, not \[0, 3\)"),
    ],
)
def test_views__index_outside__is_an_index_error_that_names_tensor_dimension_and_range(action, text):
    with pytest.raises(TensorIndexError, match=text) as caught:
        action(graph().variable(f32, (4, 6), name="t"))
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda g: g.variable(f32, (2, -1), "w"), r"variable 'w' has a negative dimension: \[2, -1\]"),
        (
            lambda g: g.variable(f32, (2**40, 2**40), "w"),
            r"'w' of shape .* has 1,208,925,819,614,629,174,706,176 elements",
        ),
        (lambda g: g.variable(f32, (2, 3), "w", initial=[1, 2]), r"'w' f32\[2, 3\] cannot start as .* shape \[2\]"),
        (lambda g: g.initialise(g.variable(f32, 3, "w"), [1, 2]), r"'w' f32\[3\] cannot start as .* shape \[2\]"),
    ],
)
def test_variable__that_cannot_be_made__is_a_creation_error(action, text):
    with pytest.raises(TensorCreationError, match=text):
        action(graph())


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda t: t.sub_sample(0), r"cannot take every 0th index along dimension 0"),
        (lambda t: t.broadcast(-1), r"cannot repeat dimension 0 of .* -1 times"),
    ],
)
def test_views__impossible_number__is_refused(action, text):
    with pytest.raises(TensorError, match=text):
        action(graph().variable(f32, (4, 6), name="t"))


def test_views__derived__show_what_numpy_shows():
    t = graph().variable(f32, (2, 3, 4))
    a = np.arange(24).reshape(2, 3, 4)
    for view, expected in (
        (t.repeat(2, 1), np.repeat(a, 2, 1)),
        (t.broadcast(2, 1), np.tile(a, (1, 2, 1))),
        (t.dim_roll(2), np.moveaxis(a, 2, 0)),
        (t.dim_roll(0, 1), np.moveaxis(a, 0, 1)),
        (t.dim_shuffle_partial([2, 0], [1, 2]), a.transpose(1, 2, 0)),
        (t.reshape_partial(1, 3, (2, 6)), a.reshape(2, 2, 6)),
        (t.append(t[0]), np.concatenate([a, a[:1]])),
        (t.append(t[:, :1], 1), np.concatenate([a, a[:, :1]], 1)),
        (stack([t[0], t[1]], 1), np.stack([a[0], a[1]], 1)),
        (t[-1, ..., -2], a[-1, ..., -2]),
    ):
        np.testing.assert_array_equal(view.addresses(), expected)


def test_reshape__of_joined_columns__stays_two_blocks():
    g = graph()
    wide = concat([g.variable(f32, (10_000, 5_000)), g.variable(f32, (10_000, 3_000))], 1)
    flat = wide.flatten()
    assert len(flat.content.blocks) == 2
    assert flat.reshape(wide.shape).is_same_view(wide)
    assert flat[8_000 * 10 + 4_999 : 8_000 * 10 + 5_001].addresses().tolist() == [10 * 5000 + 4999, 50_000_000 + 30_000]


@given(st.integers(1, 30), st.sampled_from([2, 4, 8, 16]), st.data())
def test_reshape__of_grouped_rows_and_back__keeps_one_block(groups, inner, data):
    rows = groups * inner
    part = data.draw(st.sampled_from([n for n in range(1, rows + 1) if rows % n == 0]))
    grouped = graph().variable(f16, (groups, 5, inner), name="v").transpose((0, 2, 1)).reshape((rows, 5))
    again = grouped.reshape((part, rows // part, 5)).reshape((rows, 5))
    assert again.strided() == grouped.strided()


@pytest.mark.parametrize("new", [(12_500, 8_000), (3_125, 32_000), (781_250, 128)])
def test_reshape__of_a_transposed_matrix__splits_into_few_blocks(new):
    t = graph().variable(f32, (10_000, 10_000)).T.reshape(new)
    assert not isinstance(t.content, AddressList)
    assert len(t.content.blocks) < 200
    i, j = np.array([0, 1, new[0] // 2, new[0] - 1]), np.array([0, 77, new[1] // 2, new[1] - 1])
    flat = i * new[1] + j
    got = [int(t[int(a), int(b)].addresses()) for a, b in zip(i, j, strict=True)]
    assert got == (flat % 10_000 * 10_000 + flat // 10_000).tolist()


def test_chain__of_a_hundred_million_elements__stays_a_handful_of_blocks():
    g = graph()
    t = g.variable(f32, (10_000, 10_000))
    for i in range(1000):
        at = 1 + i * 37 % 9_999
        t = concat([t.slice(at, 10_000), t.slice(0, at)]).T.reverse(0).flatten().reshape(10_000, 10_000)
    assert len(t.content.blocks) <= 64
    assert t[5, 7].size == 1


def test_concat__piece_by_piece__joins_once():
    g = graph()
    t = g.variable(f32, (5_000, 4))
    joined = t[:1]
    for i in range(1, 5_000):
        joined = concat([joined, t[i : i + 1]])
    assert joined.is_same_view(t)
    del joined


def test_repr__tensor__says_type_shape_variables_and_tiles():
    g = graph()
    a, b = g.variable(f32, (4, 3), "a"), g.variable(f32, (4, 3), "b")
    assert repr(a) == "Tensor(f32[4, 3] of 'a', unmapped)"
    a.map_rows([0, 1, 2, 5])
    assert repr(a) == "Tensor(f32[4, 3] of 'a', tiles 0, 1, 2, 5)"
    assert repr(concat([a, b])) == "Tensor(f32[8, 3] of 'a', 'b', partly mapped)"
    b.map(3)
    many = concat([a, b, g.variable(f32, (1, 3), "c").map(3), g.variable(f32, (1, 3), "d").map(3)])
    assert repr(many) == "Tensor(f32[10, 3] of 'a', 'b', 'c' and 1 more, tiles 0, 1, 2, 3, 5)"
    assert (
        a.debug_str() == "Tensor(float, [4, 3], 'a', tiles 0, 1, 2, 5, contiguous=True, aliases=False, constant=False)"
    )


def test_text__tensor__lists_pieces_with_their_tiles():
    a = graph().variable(f32, (4, 3), "a").map_rows([0, 1, 2, 5])
    assert concat([a[1:3], a[:1]]).text().splitlines() == [
        "Tensor(float, [3, 3], 'a', tiles 0 to 2, contiguous=False, aliases=False, constant=False)",
        "  [0:6)            a[3:9) on tiles 1, 2",
        "  [6:9)            a[0:3) on tile 0",
    ]
