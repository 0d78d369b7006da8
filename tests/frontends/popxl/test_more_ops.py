"""Ops of popxl that join, count, resize, or compute in 8 bits, against PyTorch, NumPy and gfloat."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from abele import popart, popxl
from abele.errors import UnsupportedOpError
from abele.numerics import f8_143, f8_152
from abele.popxl import fp8_utils, ops
from frontends.popxl.popxl_kit import run, with_gradients
from support.quarters import rounded

_draw = np.random.default_rng(11)


def floats(*shape: int) -> Any:
    return _draw.standard_normal(shape).astype(np.float32)


TABLE, ROWS, GROUPS = floats(5, 3), floats(6, 3), floats(2, 4, 3)
NUMBERS = np.array([3, 0, 3, 4, 0, 3], np.int32)
EVERY = _draw.integers(0, 5, (6, 3)).astype(np.int32)
OF_GROUPS = np.array([[0, 3, 3], [2, 2, 1]], np.int32)
IMAGE, KERNEL = floats(2, 4, 6, 5), floats(4, 3, 3, 2)
REGIONS = np.array([[0.3, 0.7, 4.2, 5.1], [1.0, 0.0, 3.0, 2.5], [-1.0, 2.0, 9.0, 7.5]], np.float32)
INTS = _draw.integers(-9, 9, (3, 5)).astype(np.int32)


def _reduced(reduce: str) -> Callable[..., Any]:
    def reference(rows: Any, numbers: Any, *initial: Any) -> Any:
        start = initial[0] if initial else torch.full((5, 3), 1.0 if reduce == "prod" else 0.0)
        return start.scatter_reduce(0, numbers.long()[:, None].expand(6, 3), rows, reduce, include_self=bool(initial))

    return reference


def _by_group(values: Any, numbers: Any) -> Any:
    index = numbers.long()[..., None].expand(2, 3, 3)
    return torch.zeros(2, 5, 3).scatter_add(1, index, values[:, :3])


def _bilinear(image: Any, y: float, x: float) -> Any:
    """An image [channels, height, width] at a place between its elements, as torchvision has it."""
    _, height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(image.shape[0])
    y, x = max(y, 0.0), max(x, 0.0)
    low, left = min(int(y), height - 1), min(int(x), width - 1)
    down, right = min(low + 1, height - 1), min(left + 1, width - 1)
    dy, dx = (0.0 if low == height - 1 else y - low), (0.0 if left == width - 1 else x - left)
    upper = image[:, low, left] * (1 - dx) + image[:, low, right] * dx
    return upper * (1 - dy) + (image[:, down, left] * (1 - dx) + image[:, down, right] * dx) * dy


def _regions(image: Any, regions: Any, numbers: Any, *, size: int = 2, ratio: int = 2, offset: float = 0.5) -> Any:
    rows = []
    for (x0, y0, x1, y1), number in zip((0.5 * regions.detach() - offset).tolist(), numbers.tolist(), strict=True):
        wide, high = x1 - x0, y1 - y0
        if not offset:
            wide, high = max(wide, 1.0), max(high, 1.0)
        steps = [(k + 0.5) / (size * ratio) for k in range(size * ratio)]
        samples = [[_bilinear(image[number], y0 + high * v, x0 + wide * u) for u in steps] for v in steps]
        whole = torch.stack([torch.stack(line, -1) for line in samples], -2)
        rows.append(whole.reshape(-1, size, ratio, size, ratio).mean((2, 4)))
    return torch.stack(rows)


Case = tuple[str, Callable[..., Any], Callable[..., Any], Sequence[Any]]
CASES: list[Case] = [
    *(
        (
            f"scatter_reduce {ours}",
            lambda a, i, kind=ours: ops.scatter_reduce(a, i, kind, axis_size=5),
            _reduced(theirs),
            [ROWS, NUMBERS],
        )
        for ours, theirs in (("sum", "sum"), ("max", "amax"), ("min", "amin"), ("mul", "prod"))
    ),
    (
        "scatter_reduce from values",
        lambda a, i, t: ops.scatter_reduce(a, i, "max", t),
        _reduced("amax"),
        [ROWS, NUMBERS, TABLE],
    ),
    (
        "scatter_reduce of each",
        lambda a, i: ops.scatter_reduce(a, i, "sum", axis=0, axis_size=5, enable_index_broadcast=False),
        lambda a, i: torch.zeros(5, 3).scatter_add(0, i.long(), a),
        [ROWS, EVERY],
    ),
    (
        "grouped_scatter_reduce",
        lambda a, i: ops.grouped_scatter_reduce(a[:, :3], i, "sum", axis=0, axis_size=5, group_size=2),
        _by_group,
        [GROUPS, OF_GROUPS],
    ),
    (
        "groupedgather",
        lambda a, i: ops.groupedgather(a, i, 0),
        lambda a, i: torch.stack([a[g][i[g].long()] for g in range(2)]),
        [GROUPS, OF_GROUPS],
    ),
    ("median", lambda t: ops.median(t, 1), lambda t: t.median(1).values, [GROUPS]),
    ("median of all", lambda t: ops.median(t, keepdims=True), lambda t: t.median().reshape(1, 1, 1), [GROUPS]),
    (
        "interpolate nearest",
        lambda t: ops.interpolate(t, (1.0, 1.0, 2.0, 1.5)),
        lambda t: F.interpolate(t, scale_factor=(2.0, 1.5)),
        [IMAGE],
    ),
    (
        "interpolate linear",
        lambda t: ops.interpolate(t, [2.0, 0.5], "linear"),
        lambda t: F.interpolate(t, scale_factor=(2.0, 0.5), mode="bilinear"),
        [IMAGE],
    ),
    (
        "interpolate cubic to corners",
        lambda t: ops.interpolate(t, 2.0, "cubic", coordinate_transformation_mode="align_corners"),
        lambda t: F.interpolate(t, scale_factor=2.0, mode="bicubic", align_corners=True),
        [IMAGE],
    ),
    (
        "roi_align",
        lambda t, r, b: ops.roi_align(t, r, b, (2, 2), 0.5, 2, True),
        _regions,
        [IMAGE, REGIONS, np.array([1, 0, 1], np.int32)],
    ),
    (
        "conv_transpose uneven",
        lambda t, w: ops.conv_transpose(t, w, (2, 3), (1, 0, 0, 2), output_padding=(1, 0)),
        lambda t, w: F.conv_transpose2d(t, w, stride=(2, 3), output_padding=(1, 0))[..., 1:, :-2],
        [IMAGE, KERNEL],
    ),
    (
        "conv_transpose to a shape",
        lambda t, w: ops.conv_transpose(t, w, (2, 2), output_shape=(12, 10)),
        lambda t, w: F.conv_transpose2d(t, w, stride=2)[..., :12, :10],
        [IMAGE, KERNEL],
    ),
    (
        "pools of whole fields",
        lambda t: ops.max_pool(t, 2, 2, ceil_mode=True) + ops.average_pool(t, (2, 2), (2, 2), ceil_mode=True),
        lambda t: F.max_pool2d(t, 2, ceil_mode=True) + F.avg_pool2d(t, 2, ceil_mode=True, count_include_pad=False),
        [IMAGE],
    ),
    (
        "concat in place",
        lambda a, b: ops.relu_(ops.concat_([a * 1, b * 1], 0)),
        lambda a, b: torch.cat([a, b]).relu(),
        [TABLE, ROWS],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_op_and_its_gradient_equal_pytorch(case: Case) -> None:
    _, build, reference, arrays = case
    leaves = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    expected = reference(*leaves)
    weight = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
    wanted = torch.autograd.grad((expected * weight).sum(), [t for t in leaves if t.requires_grad], allow_unused=True)
    (made,), gradients = with_gradients(build, *arrays)
    np.testing.assert_allclose(made, expected.detach().numpy(), rtol=2e-5, atol=2e-5)
    for got, want in zip(gradients, wanted, strict=True):
        if want is not None:
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=5e-5)


def test_concatenated_views__written__change_what_they_show() -> None:
    def program(a: Any, b: Any) -> list[Any]:
        ops.scaled_add_(ops.concat_([a, b[1:4]], 0), popxl.constant(np.ones((8, 3), np.float32)), b=2.0)
        ops.add_(ops.concat_([ops.slice_(a, 0, 2), b], 0), popxl.constant(np.ones((8, 3), np.float32)))
        return [a, b]

    first, second = run(program, TABLE, ROWS)
    expected = TABLE + 2
    expected[:2] += 1
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    np.testing.assert_allclose(second, ROWS + 1, rtol=1e-6)  # b[1:4] is a copy.


@pytest.mark.parametrize("magnitudes", [False, True])
def test_histogram__with_values_on_levels_and_nan__equals_numpy(magnitudes: bool) -> None:
    values = np.array([-3.0, -0.5, 0.0, 0.5, 0.5, 1.0, 2.5, np.nan, np.inf, -np.inf], np.float16)
    (made,) = run(lambda t: ops.histogram(t, [-0.5, 0.5, 1.0], absolute_of_input=magnitudes), values)
    given = np.abs(values) if magnitudes else values
    expected, _ = np.histogram(given[~np.isnan(given)], [-np.inf, -0.5, 0.5, 1.0, np.inf])
    assert made.dtype == np.uint32
    assert made.tolist() == expected.tolist()


def test_scatter_reduce__of_whole_numbers__leaves_zero_where_nothing_arrives() -> None:
    index = np.array([4, 1, 4], np.uint32)
    (made,) = run(lambda t, i: ops.scatter_reduce(t, i, "max", axis=0, axis_size=6), INTS, index)
    expected = np.zeros((6, 5), np.int32)
    expected[1], expected[4] = INTS[1], np.maximum(INTS[0], INTS[2])
    assert (made == expected).all()


# --- 8-bit floats -----------------------------------------------------------------------------------------------------

FORMATS = [(popxl.float8_143, f8_143), (popxl.float8_152, f8_152)]
VALUES = np.concatenate([floats(64) * 10.0 ** _draw.integers(-4, 5, 64), [0.0, np.inf, np.nan]]).astype(np.float32)


@pytest.mark.parametrize(("kind", "element"), FORMATS, ids=str)
@pytest.mark.parametrize("scale", [-3, 0, 5])
def test_casts_of_host_and_device__to_8_bits_and_back__equal_gfloat(kind: Any, element: Any, scale: int) -> None:
    on_host = fp8_utils.host_pow2scale_cast_to_fp8(VALUES, kind, scale)
    back = fp8_utils.host_pow2scale_cast_from_fp8(on_host, popxl.float32, -scale)
    wanted = rounded(VALUES * np.float32(2.0**scale), element, saturate=False)
    np.testing.assert_array_equal(back, (wanted * 2.0**-scale).astype(np.float32))

    def casts(t: Any, by: Any) -> list[Any]:
        made = ops.pow2scale_cast_to_fp8(t, by, kind)
        return [made, ops.pow2scale_cast_from_fp8(made, popxl.float32, -scale)]

    codes, numbers = run(casts, VALUES, np.int32(scale))
    assert codes.dtype == kind.as_numpy()
    assert (codes == on_host).all()
    np.testing.assert_array_equal(numbers, back)


def test_cast__beyond_the_largest__is_nan_or_the_largest() -> None:
    made = [fp8_utils.host_pow2scale_cast_to_fp8([1e30, -300.0], nan_on_overflow=w) for w in (True, False)]
    shown = [fp8_utils.host_pow2scale_cast_from_fp8(a).tolist() for a in made]
    assert np.isnan(shown[0]).all()
    assert shown[1] == [240, -240]


def test_products_of_8_bits__with_variables_constants_and_streams__are_those_of_their_numbers() -> None:
    kind, other = popxl.float8_143, popxl.float8_152
    a, b = (
        fp8_utils.host_pow2scale_cast_to_fp8(floats(4, 8)),
        fp8_utils.host_pow2scale_cast_to_fp8(floats(2, 8, 3), other),
    )
    image, kernel, turned = (
        fp8_utils.host_pow2scale_cast_to_fp8(floats(*s)) for s in ((1, 2, 5, 4), (3, 2, 2, 3), (2, 3, 2, 2))
    )
    numbers = {
        n: fp8_utils.host_pow2scale_cast_from_fp8(v)
        for n, v in zip("abikt", (a, b, image, kernel, turned), strict=True)
    }
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((4, 8), kind)
        x, w = ops.host_load(stream), popxl.variable(b, name="w")
        picture, filters = popxl.variable(image), popxl.constant(kernel)
        scale = popxl.variable(-2, popxl.int32)
        made = [
            ops.matmul_pow2scaled(x, w, scale),
            ops.conv_pow2scaled(picture, filters, 1, (2, 1), (1, 0, 0, 1)),
            ops.conv_transpose_pow2scaled(picture, popxl.variable(turned), popxl.constant(-1), (2, 2), (1, 0, 0, 1)),
            ops.transpose(x).reshape((2, 16)),
        ]
        outs = [popxl.d2h_stream(t.shape, t.dtype) for t in made]
        for out, tensor in zip(outs, made, strict=True):
            ops.host_store(out, tensor)
    with popxl.Session(ir, "ipu_hw") as session:
        results = session.run({stream: a})
        assert (session.get_tensor_data(w) == b).all()
    n = {name: torch.tensor(v) for name, v in numbers.items()}
    expected = [
        (n["a"] @ n["b"]) / 4,
        F.conv2d(F.pad(n["i"], (0, 1, 1, 0)), n["k"], stride=(2, 1)) * 2,
        F.conv_transpose2d(n["i"], n["t"], stride=2)[..., 1:, :-1] / 2,
    ]
    for out, want in zip(outs, expected, strict=False):
        np.testing.assert_allclose(results[out], want.half().numpy(), rtol=2e-3, atol=2e-3)
    assert (results[outs[3]] == a.T.reshape(2, 16)).all()


# --- what is wrong is said --------------------------------------------------------------------------------------------


def _tried(build: Callable[..., Any], *arrays: Any) -> Callable[[], Any]:
    def program() -> None:
        with popxl.Ir().main_graph:
            build(*[popxl.variable(a) for a in arrays])

    return program


WRONG: list[Any] = [
    (
        "reduction",
        ValueError,
        "reduction 'mean'",
        _tried(lambda a, i: ops.scatter_reduce(a, i, "mean", axis_size=5), ROWS, NUMBERS),
    ),
    ("size", ValueError, "axis_size", _tried(lambda a, i: ops.scatter_reduce(a, i, "sum"), ROWS, NUMBERS)),
    (
        "indices",
        ValueError,
        r"indices \[2, 3\]",
        _tried(lambda a, i: ops.scatter_reduce(a, i, "sum", axis_size=5), ROWS, OF_GROUPS),
    ),
    (
        "initial",
        ValueError,
        "initial values",
        _tried(lambda a, i: ops.scatter_reduce(a, i, "sum", a, axis_size=5), ROWS, NUMBERS),
    ),
    ("groups", ValueError, "one group", _tried(lambda a, i: ops.groupedgather(a, i, 0, 3), GROUPS, OF_GROUPS)),
    ("levels", ValueError, "rising levels", _tried(lambda a: ops.histogram(a, [1.0, 0.0]), ROWS)),
    ("mode", ValueError, "mode 'area'", _tried(lambda a: ops.interpolate(a, 2.0, "area"), IMAGE)),
    ("factors", ValueError, "scale_factor", _tried(lambda a: ops.interpolate(a, [2.0] * 3), IMAGE)),
    (
        "ratio",
        ValueError,
        "sampling_ratio",
        _tried(lambda a, r: ops.roi_align(a, r, popxl.constant([0] * 3), sampling_ratio=0), IMAGE, REGIONS),
    ),
    ("line", ValueError, "along axis 0", _tried(lambda a, b: ops.concat_([a, b]), ROWS, IMAGE)),
    ("channels", ValueError, "channels", _tried(lambda a, w: ops.conv(a, w), IMAGE, KERNEL)),
    ("wide", ValueError, "8-bit floats", _tried(lambda a: ops.matmul_pow2scaled(a, a), ROWS)),
    ("cast", ValueError, "8-bit floats", _tried(lambda a: ops.pow2scale_cast_to_fp8(a, 0, popxl.float16), ROWS)),
    ("scale", ValueError, r"not in \[-32, 32\)", _tried(lambda a: ops.pow2scale_cast_to_fp8(a, 40), ROWS)),
    ("scales", ValueError, "one int32", _tried(lambda a: ops.pow2scale_cast_to_fp8(a, a), ROWS)),
    ("variable's scale", ValueError, "8-bit floats", _tried(lambda a: popxl.constant(1.0, log2_scale=3), ROWS)),
    ("host", ValueError, "no 8-bit float", lambda: fp8_utils.host_pow2scale_cast_to_fp8(ROWS, popxl.float16)),
    ("host back", TypeError, "no 8-bit floats", lambda: fp8_utils.host_pow2scale_cast_from_fp8(ROWS)),
    (
        "derivative",
        UnsupportedOpError,
        "derivative|gradient",
        _tried(
            lambda a: popxl.transforms.autodiff(
                popxl.gir().create_graph(lambda x: ops.pow2scale_cast_from_fp8(ops.pow2scale_cast_to_fp8(x, 0)), a)
            ),
            ROWS,
        ),
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[0])
def test_what_is_wrong_is_said(case: Any) -> None:
    _, kind, words, program = case
    with pytest.raises(kind, match=words):
        program()


def test_page__against_the_module__names_every_op() -> None:
    page = (Path(__file__).parents[3] / "docs" / "popxl.md").read_text("utf-8")
    named = {word for cell in re.findall(r"`([^`]*)`", page) for word in re.findall(r"\w+", cell)}
    lacking = [n for n in ops.__all__ if n not in named and n.removesuffix("_") not in named]
    assert [n for n in lacking if n.removesuffix("_with_info") not in named and n != "sum_of"] == []


ABSENT: list[Any] = [
    ("op", "'matmul' is near", lambda: ops.matmull),
    ("name", "'variable' is near", lambda: popxl.varable),
    ("nothing", "popxl.ops has no", lambda: ops.zzz),
]


@pytest.mark.parametrize("case", ABSENT, ids=lambda c: c[0])
def test_absent_name__asked_for__says_what_is_near(case: Any) -> None:
    _, words, program = case
    with pytest.raises(AttributeError, match=words):
        program()


OPERANDS: list[Any] = [
    ("types", "one type", lambda a, i: a + i),
    ("shapes", "do not broadcast", lambda a, i: a + a[:, :2]),
    ("float indices", "whole numbers", lambda a, i: ops.gather(a, a)),
    ("window", "sizes", lambda a, i: ops.dynamic_slice(a, i[:1], [0], [7])),
    ("update", "replaces", lambda a, i: ops.dynamic_update(a, i[:1], a, [0], [2])),
    ("scatter", "puts", lambda a, i: ops.scatter(a, i, a)),
    ("best", "topk takes 9", lambda a, i: ops.topk(a, 9)),
    ("gain", "layer_norm takes 3", lambda a, i: ops.layer_norm(a, a[0, :2], a[0])),
    ("bools", "takes numbers", lambda a, i: ops.sum(a > 0)),
    ("pair", "off and an on", lambda a, i: ops.onehot(i, 3, a[0])),
]


@pytest.mark.parametrize("case", OPERANDS, ids=lambda c: c[0])
def test_operands_that_do_not_fit__raise_what_popart_programs_catch(case: Any) -> None:
    _, words, build = case
    with pytest.raises(popart.popart_exception, match=words):
        _tried(build, ROWS, NUMBERS)()
