"""One-hot rows, padding, counting loops, circular buffers, regrouping, images, tensors for the host."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Sequence
from abele.numerics import i32
from abele.poplibs import popops
from abele.poplibs.popops.circ_buf import CircBuf
from abele.poplibs.popops.image import create_normalise_image_input, normalise_image
from abele.poplibs.popops.layout.host_tensors import create_host_sliceable_tensor, create_host_transferable_tensor
from abele.poplibs.popops.layout.pad import PaddingType, pad
from abele.poplibs.popops.layout.regroup import partial_transpose, regroup_if_beneficial, regroup_tensor
from abele.poplibs.popops.programs.loops import counted_for_loop, counted_loop
from abele.poplibs.popops.slicing.one_hot import MASKED_LABEL_CODE, encode_one_hot
from abele.poplibs.poputil.groupings import detect_innermost_grouping

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("num_tiles", [*TILES, 1472])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32", "u8"])
def test_encode_one_hot__indices_and_masked_rows__are_rows_of_the_identity(num_tiles: int, dtype: str) -> None:
    bench = Bench(num_tiles)
    indices = bench.tensor([3, MASKED_LABEL_CODE, 0, 9, 12], "u32")
    out = bench.tensor(np.full((5, 10), 7), dtype)
    encode_one_hot(bench.graph, indices, out, bench.prog)
    wanted = np.zeros((5, 10))
    wanted[[0, 2, 3], [3, 0, 9]] = 1
    np.testing.assert_array_equal(bench.run_both(out)[0], wanted)


def test_encode_one_hot__values__smooth_labels() -> None:
    bench = Bench(4)
    out, on = bench.tensor(np.zeros((2, 4)), "f32"), bench.tensor([0.9], "f32", 0)
    encode_one_hot(bench.graph, bench.tensor([1, -1], "i32"), out, bench.prog, on=on, off=0.1)
    assert_close(bench.run_both(out)[0], [[0.1, 0.9, 0.1, 0.1], [0.1] * 4], out.dtype)


def test_encode_one_hot__wrong_operands__are_named() -> None:
    bench = Bench(4)
    out = bench.tensor(np.zeros((2, 4)), "f32")
    with pytest.raises(TypeMismatchError, match=r"the indices .* are f32, they must be u32 or i32"):
        encode_one_hot(bench.graph, bench.tensor([1.0, 2.0], "f32"), out, bench.prog)
    with pytest.raises(TensorError, match=r"of shape \[3\] do not go with .* of shape \[2, 4\]"):
        encode_one_hot(bench.graph, bench.tensor([1, 2, 3], "u32"), out, bench.prog)


@pytest.mark.parametrize(
    ("value", "mode"), [(2.5, "constant"), (PaddingType.EDGE, "edge"), (PaddingType.REFLECT, "reflect")]
)
def test_pad__constant_edge_and_reflect__is_numpy(value: object, mode: str) -> None:
    bench = Bench(4)
    x = bench.tensor(RNG.standard_normal((4, 5)), "f32")
    widths = ((1, 3), (0, 2))
    padded = pad(bench.graph, x, [1, 0], [3, 2], value)  # type: ignore[arg-type]
    out = bench.graph.variable("f32", padded.shape, name="out", map="linear")
    bench.prog.add(Copy(padded, out))
    extra = {"constant_values": 2.5} if mode == "constant" else {}
    np.testing.assert_array_equal(bench.run(out)[0], np.pad(bench.data[x], widths, mode, **extra))  # type: ignore[call-overload]


def test_pad__negative__cuts_off_and_too_much_is_named() -> None:
    bench = Bench(4)
    x = bench.tensor(np.arange(12).reshape(3, 4), "f32")
    assert pad(bench.graph, x, [-1, 0], [0, -2]).shape == (2, 2)
    with pytest.raises(TensorError, match="4 elements are cut off"):
        pad(bench.graph, x, [-2, 0], [-2, 0])
    with pytest.raises(TensorError, match="3 elements cannot be mirrored"):
        pad(bench.graph, x, [3, 0], [0, 0], PaddingType.REFLECT)
    with pytest.raises(TensorError, match="has 2 dimensions, padding is given for 1 and 2"):
        pad(bench.graph, x, [1], [0, 0])


@pytest.mark.parametrize(("begin", "end", "step"), [(0, 5, 1), (3, 20, 4), (5, -3, -2), (4, 4, 1)])
def test_counted_loop__begin_end_step__is_range(begin: int, end: int, step: int) -> None:
    bench = Bench(4)
    total = bench.tensor([0], "i32", 0)

    def body(i: object) -> Sequence:
        prog = Sequence()
        popops.map_in_place(bench.graph, lambda t, n: t * 3 + popops.Cast(n, i32), [total, i], prog)  # type: ignore[list-item]
        return prog

    bench.prog.add(counted_loop(bench.graph, begin, end, step, body))
    wanted = 0
    for i in range(begin, end, step):
        wanted = wanted * 3 + i
    assert bench.run_both(total)[0].tolist() == [wanted]


@pytest.mark.parametrize(("start", "limit", "step"), [(0, 4, 1), (7, 1, -3), (3, 3, 1)])
def test_counted_for_loop__bound_in_a_tensor__is_range(start: int, limit: int, step: int) -> None:
    bench = Bench(4)
    total, bound = bench.tensor([0], "i32", 0), bench.tensor([limit], "i32", 1)

    def body(i: object) -> Sequence:
        prog = Sequence()
        popops.map_in_place(bench.graph, lambda t, n: t * 10 + n, [total, i], prog)  # type: ignore[list-item]
        return prog

    bench.prog.add(counted_for_loop(bench.graph, start, bound, step, body))
    wanted = 0
    for i in range(start, limit, step):
        wanted = wanted * 10 + i
    assert bench.run_both(total)[0].tolist() == [wanted]


def test_loops__impossible_steps_and_bounds__are_named() -> None:
    bench = Bench(4)
    with pytest.raises(InvalidOptionError, match="a step of 0 never ends"):
        counted_loop(bench.graph, 0, 1, 0, lambda i: Sequence())
    with pytest.raises(InvalidOptionError, match="a step of -1 of a u32 never ends"):
        counted_for_loop(bench.graph, 0, bench.tensor([1], "u32", 0), -1, lambda i: Sequence())
    with pytest.raises(TensorError, match="has 2 elements, it must be one"):
        counted_for_loop(bench.graph, 0, bench.tensor([1, 2], "u32", 0), 1, lambda i: Sequence())
    with pytest.raises(TypeMismatchError, match="is f32, it must be i32 or u32"):
        counted_for_loop(bench.graph, 0, bench.tensor([1], "f32", 0), 1, lambda i: Sequence())


def test_circ_buf__more_than_its_slots__keeps_the_last() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(6), "f32")
    buffer = CircBuf(bench.graph, "f32", 3, (6,))
    for _ in range(5):
        popops.add_in_place(bench.graph, x, 1.0, bench.prog)
        buffer.add(x, bench.prog)
    outs = [buffer.prev(k, bench.prog) for k in range(3)]
    assert [o[0] for o in bench.run_both(*outs)] == [5, 4, 3]
    assert buffer.size == 3
    with pytest.raises(TensorError, match="3 steps back in 3 slots"):
        buffer.prev(3, bench.prog)
    with pytest.raises(TensorError, match=r"has shape \[3\], slots \[6\]"):
        buffer.add(x[:3], bench.prog)


def test_regroup__other_dimension_innermost__same_values_new_order() -> None:
    bench = Bench(4)
    x = bench.tensor(RNG.standard_normal((4, 32, 8)), "f32")
    reference = bench.tensor(np.zeros((4, 32, 8)), "f32", "activations")
    assert detect_innermost_grouping(bench.graph, x) == 8
    regrouped = regroup_tensor(bench.graph, x, bench.prog, (1, 16))
    chosen = regroup_if_beneficial(bench.graph, x, reference, bench.prog)
    same = regroup_if_beneficial(bench.graph, x, x, bench.prog)
    assert same is x
    assert chosen is not x
    assert detect_innermost_grouping(bench.graph, regrouped.transpose((0, 2, 1))) == 16
    assert detect_innermost_grouping(bench.graph, chosen.transpose((0, 2, 1))) == 16
    for got in bench.run(regrouped, chosen):
        np.testing.assert_array_equal(got, bench.data[x])
    with pytest.raises(TensorError, match="groups of 5 do not divide"):
        regroup_tensor(bench.graph, x, bench.prog, (1, 5))


def test_partial_transpose__blocks__are_swapped_in_memory() -> None:
    bench = Bench(4)
    x = bench.tensor(RNG.standard_normal((6, 4, 8)), "f16")
    out = partial_transpose(bench.graph, x, bench.prog)
    assert detect_innermost_grouping(bench.graph, out) == 4
    np.testing.assert_array_equal(bench.run(out)[0], bench.data[x].swapaxes(1, 2))


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_normalise_image__three_channels__become_four(dtype: str) -> None:
    bench = Bench(4)
    pixels = RNG.integers(0, 255, (2, 5, 6, 3))
    x, offset, scale = (
        bench.tensor(pixels, dtype),
        bench.tensor([0.4, 0.5, 0.6], "f32"),
        bench.tensor([1.5, 2.0, 2.5], "f32"),
    )
    out = normalise_image(bench.graph, x, 1 / 255, offset, scale, bench.prog)
    got = bench.run_both(out)[0]
    assert_close(got[..., :3], (pixels / 255 - [0.4, 0.5, 0.6]) * [1.5, 2.0, 2.5], out.dtype)
    assert (got[..., 3] == 0).all()
    assert create_normalise_image_input(bench.graph, dtype, (2, 3, 3)).mapping.is_complete
    with pytest.raises(TensorError, match="does not have 3 channels last"):
        normalise_image(bench.graph, x[..., :2], 1.0, offset, scale, bench.prog)


def test_host_tensors__rows_and_pieces__use_every_tile() -> None:
    bench = Bench(64)
    whole = create_host_transferable_tensor(bench.graph, "f32", (64, 64))
    rows, indices = create_host_sliceable_tensor(bench.graph, "f32", (10, 640))
    assert len(np.unique(whole.mapping.tile)) == 64
    assert len(np.unique(bench.graph.mapping_of(rows[3]).tile)) == 64
    assert indices.shape == (10,)


def test_select__then_otherwise_predicate__in_that_order() -> None:
    bench = Bench(4)
    then, otherwise = bench.tensor([1.0, 2.0], "f32"), bench.tensor([-1.0, -2.0], "f32")
    out = popops.select(bench.graph, then, otherwise, bench.tensor([True, False]), bench.prog)
    assert bench.run_both(out)[0].tolist() == [1.0, -2.0]
    with pytest.raises(TypeMismatchError, match=r"the predicate .* is f32, it must be bool"):
        popops.select(bench.graph, bench.tensor([True, False]), then, otherwise, bench.prog)
