"""Operators of PyTorch at NaN, infinities, zeros and the ends of their types; those of the registry by themselves."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn
from torch.nn import functional

from abele import poptorch
from abele.frontends.poptorch.capture.registry import HANDLERS
from abele.machine import systems

NAN, INF = math.nan, math.inf
EXTREMES = ("maximum", "minimum", "fmax", "fmin", "clamp", "relu", "hardtanh", "threshold")
"""Of zeros of both signs they may give either."""
LIMITS = ("bessel", "airy", "i0", "i1", "gamma", "zeta", "polygamma", "erfcx", "log_ndtr", "polynomial", "nextafter")
LIMITS += ("logaddexp2",)
"""Special functions have their limits at infinity and NaN of NaN, where PyTorch's series end otherwise;
tests/expr/test_special.py holds them against SciPy. The machine does not have the last steps of nextafter.
What cancels in logaddexp2 is the rounding of its parts."""
GRADIENT_LIMITS = (*LIMITS, "logaddexp", "acosh", "remainder")
"""Of two equal infinities the gradient is shared; outside of its domain acosh has none. By the divisor, remainders take
the rounded quotient, which may be a whole number where the exact one is just below."""
SCALARS = (2.5, 0.0)


@dataclass(frozen=True)
class Called:
    """An operator with the tensors that it takes: numbers among its arguments are ``number``."""

    operator: Any
    kinds: tuple[str, ...]
    number: float

    @property
    def num_tensors(self) -> int:
        return self.kinds.count("Tensor")

    def __call__(self, *tensors: Any) -> Any:
        left = iter(tensors)
        return self.operator(*(next(left) if kind == "Tensor" else self.number for kind in self.kinds))


def values(dtype: Any, count: int) -> list[Any]:
    ends = torch.finfo(dtype)
    sizes = [0.0, ends.tiny / 4, ends.tiny, 0.3, 0.5, 1.0, 1.5, 3.0, 0.9 * ends.max, ends.max, INF]
    if count == 1:
        sizes += [1e-3, 0.9, 2.0, 2.5, 6.0, 20.0, 89.0, 100.0, 12345.0, 1e10, 2.0**24]
    if count == 3:
        sizes = [0.0, 1.0, 2.5, ends.max, INF]
    column = torch.tensor([NAN, *sizes, *(-s for s in sizes)], dtype=torch.float64).to(dtype)
    return [grid.reshape(-1).clone() for grid in torch.meshgrid(*[column] * count, indexing="ij")]


def elementwise(dtype: Any, without: Sequence[str]) -> dict[str, Called]:
    """Operators with a lowering that take tensors and numbers and give an element for each element."""
    found = {}
    for name in HANDLERS:
        room, *parts = name.split(".")
        packet = getattr(torch.ops.aten, parts[0], None) if room == "aten" else None
        skipped = packet is None or any(word in name for word in without)
        overloads = [] if skipped else parts[1:] or packet.overloads()
        for overload in overloads:
            operator = getattr(packet, overload, None)
            if operator is None or torch.Tag.nondeterministic_seeded in operator.tags:
                continue
            needed = [a for a in operator._schema.arguments if not a.has_default_value()]
            kinds = tuple(str(a.type) for a in needed)
            if not set(kinds) <= {"Tensor", "number", "Scalar", "float"} or any(a.kwarg_only for a in needed):
                continue
            for number in SCALARS if len(set(kinds)) > 1 else SCALARS[:1]:
                called = Called(operator, kinds, number)
                if 1 <= called.num_tensors <= 3 and _is_elementwise(called, dtype):
                    found[f"{parts[0]}.{overload} {number if len(set(kinds)) > 1 else ''}"] = called
    return found


def _is_elementwise(called: Called, dtype: Any) -> bool:
    arrays = values(dtype, called.num_tensors)
    some = [a.flip(0)[: len(a) // 2] for a in arrays]
    try:
        whole, part = called(*(a.clone() for a in arrays)), called(*(a.clone() for a in some))
    except Exception:
        return False
    if not isinstance(whole, torch.Tensor) or whole.shape != arrays[0].shape or whole.dtype not in (dtype, torch.bool):
        return False
    pair = [t.flatten().double() for t in (whole.flip(0)[: len(part)], part)]
    return torch.allclose(*pair, rtol=1e-2, atol=1e-6, equal_nan=True)


class Calls(nn.Module):
    """Operators of the same values: their results, or the sum of them with an addend for each argument."""

    def __init__(self, calls: Sequence[Callable[..., Any]], counts: Sequence[int], sloped: Sequence[Sequence[int]]):
        super().__init__()
        self.calls, self.counts, self.sloped = calls, counts, sloped
        self.addends = nn.ParameterDict()

    def forward(self, *arrays: Any) -> Any:
        results: list[Any] = []
        total: Any = 0
        for number, (call, count) in enumerate(zip(self.calls, self.counts, strict=True)):
            first = count * (count - 1) // 2
            given = list(arrays[first : first + count])
            for place in self.sloped[number] if self.sloped else ():
                given[place] = given[place] + self.addends[f"{number}_{place}"]
            results.append(call(*given))
            if self.sloped:
                total = total + results[-1].float().sum()
        return poptorch.identity_loss(total, "none") if self.sloped else tuple(results)


def options(mode: str) -> Any:
    made, bow = poptorch.Options(), systems.get("bow")
    made.Abele.threads(1)
    made.Abele.mode(mode)
    made.Abele.system(replace(bow, ipu=replace(bow.ipu, num_tiles=8), num_ipus=1))
    return made


def results_of(calls: Sequence[Callable[..., Any]], counts: Sequence[int], arrays: Sequence[Any], mode: str) -> Any:
    executor = poptorch.inferenceModel(Calls(calls, counts, ()), options(mode))
    try:
        return executor(*arrays)
    finally:
        executor.destroy()


def flushed(x: Any, dtype: Any) -> Any:
    """Subnormal f32 numbers as zero."""
    tiny = torch.finfo(torch.float32).tiny
    return x if dtype == torch.float16 else torch.where(x.abs() < tiny, torch.copysign(torch.zeros_like(x), x), x)


def equal(got: Any, wanted: Any, dtype: Any, *, relative: float, absolute: float, signed: bool = True) -> Any:
    if wanted.dtype == torch.bool:
        return got == wanted
    small = wanted.double().abs() <= absolute
    got, wanted = flushed(got.double(), dtype), flushed(wanted.double().to(dtype).double(), dtype)
    alike = (torch.signbit(got) == torch.signbit(wanted)) | (not signed) | (small & (wanted != 0))
    same = ((got == wanted) & (alike | (wanted != 0))) | (got.isnan() & wanted.isnan())
    near = (got - wanted).abs() <= relative * wanted.abs() + absolute
    return same | (near & wanted.isfinite())


def _oracles(called: Called, arrays: Sequence[Any], dtype: Any) -> list[Any]:
    """PyTorch's results in the type and, where a step overflows, in float64; with and without subnormal numbers."""
    without = [flushed(a.double(), dtype) for a in arrays]
    wanted = [called(*arrays), called(*(a.to(dtype) for a in without))]
    try:
        return [*wanted, called(*without)]
    except RuntimeError:
        return wanted


ACCURACY = {torch.float32: (1e-3, 1e-36), torch.float16: (2e-3, 1.3e-7), torch.bfloat16: (1.6e-2, 1e-36)}


def check_values(dtype: Any, mode: str, every: int) -> None:
    # A subnormal bf16 is true where its bits are read, and false where it is widened first.
    without = (*LIMITS, "logical_xor") if dtype == torch.bfloat16 else LIMITS
    calls = dict(list(_known(dtype, without).items())[::every])
    arrays = [a for count in (1, 2, 3) for a in values(dtype, count)]
    got = results_of(list(calls.values()), [c.num_tensors for c in calls.values()], arrays, mode)
    relative, absolute = ACCURACY[dtype]
    wrong = []
    for result, (name, called) in zip(got, calls.items(), strict=True):
        given = values(dtype, called.num_tensors)
        signed = not any(word in name for word in EXTREMES)
        right = torch.stack([
            equal(result, wanted, dtype, relative=relative, absolute=absolute, signed=signed)
            for wanted in _oracles(called, given, dtype)
        ]).any(0)  # fmt: skip
        for n in (~right).nonzero().flatten()[:3].tolist():
            at = [float(v[n]) for v in given]
            wrong.append(f"{name}{at}: {float(result[n])}, not {float(called(*given)[n])}")
    assert not wrong, "\n".join(wrong)


def _known(dtype: Any, without: Sequence[str]) -> dict[str, Called]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return elementwise(dtype, without)


def _slopes(called: Called, arrays: Sequence[Any], place: int) -> Any:
    given = [a.clone().requires_grad_(n == place) for n, a in enumerate(arrays)]
    called(*given).double().sum().backward()
    return given[place].grad


def _sloped(called: Called, dtype: Any) -> list[int]:
    """Arguments that PyTorch has a gradient by."""
    found = []
    for place in range(called.num_tensors):
        try:
            slope = _slopes(called, values(dtype, called.num_tensors), place)
        except (RuntimeError, NotImplementedError):
            continue
        found += [place] if slope is not None else []
    return found


def check_gradients(mode: str, every: int) -> None:
    dtype = torch.float32
    known = {n: c for n, c in _known(dtype, GRADIENT_LIMITS).items() if _sloped(c, dtype)}
    calls = dict(list(known.items())[::every])
    sloped = [_sloped(c, dtype) for c in calls.values()]
    model = Calls(list(calls.values()), [c.num_tensors for c in calls.values()], sloped)
    for number, (called, places) in enumerate(zip(calls.values(), sloped, strict=True)):
        for place in places:
            # Minus zero changes no number that it is added to.
            model.addends[f"{number}_{place}"] = nn.Parameter(
                torch.full_like(values(dtype, called.num_tensors)[0], -0.0)
            )
    executor = poptorch.trainingModel(model, options(mode), torch.optim.SGD(model.parameters(), lr=1.0))
    executor(*(a for count in (1, 2, 3) for a in values(dtype, count)))
    executor.copyWeightsToHost()
    executor.destroy()
    wrong = []
    for number, (name, called) in enumerate(calls.items()):
        given = values(dtype, called.num_tensors)
        narrow = [flushed(a, dtype) for a in given]
        for place in sloped[number]:
            got = -model.addends[f"{number}_{place}"].detach()
            wanted = [_slopes(called, arrays, place) for arrays in (given, narrow, [a.double() for a in narrow])]
            right = torch.stack([
                equal(got, w, dtype, relative=1e-3, absolute=1e-5, signed=False) for w in wanted
            ]).any(0)  # fmt: skip
            for n in (~right).nonzero().flatten()[:3].tolist():
                at = [float(v[n]) for v in given]
                wrong.append(f"{name}{at} by {place}: {float(got[n])}, not {float(wanted[0][n])}")
    assert not wrong, "\n".join(wrong)


def test_operators__some_of_them_at_special_values__are_pytorchs() -> None:
    check_values(torch.float32, "native", 7)


def test_operators__gradients_of_some_at_special_values__are_pytorchs() -> None:
    check_gradients("native", 12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_operators__all_of_them_at_special_values__are_pytorchs(dtype: Any, mode: str) -> None:
    check_values(dtype, mode, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_operators__gradients_of_all_at_special_values__are_pytorchs(mode: str) -> None:
    check_gradients(mode, 1)


ROWS = [
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, NAN, 3.0, 4.0, -2.0, 0.0], [NAN] * 6, [INF, 1.0, 2.0, 3.0, -1.0, 0.0],
    [-INF, 1.0, 2.0, 3.0, 4.0, 5.0], [INF, -INF, 1.0, 2.0, 3.0, 4.0], [-INF] * 6, [INF] * 6,
    [0.0, -0.0, 0.0, -0.0, 0.0, 0.0], [NAN, INF, -INF, 1.0, 2.0, 3.0], [5.0, 4.0, 3.0, NAN, 1.0, NAN],
    [0.0, 0.0, 0.0, 0.0, 0.0, NAN],
]  # fmt: skip

OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "amax": lambda x: x.amax(1), "amin": lambda x: x.amin(0), "max": lambda x: x.max(1)[0],
    "max places": lambda x: x.max(1)[1], "min": lambda x: x.min(1)[0], "min places": lambda x: x.min(1)[1],
    "argmax": lambda x: x.argmax(), "argmax of columns": lambda x: x.argmax(0), "argmin": lambda x: x.argmin(1),
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(1), "prod": lambda x: x.prod(1),
    "nansum": lambda x: x.nansum(1), "nanmean": lambda x: x.nanmean(1), "var": lambda x: x.var(1),
    "logsumexp": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(1),
    "sort": lambda x: x.sort(1)[0], "sort down": lambda x: x.sort(1, descending=True)[0],
    "argsort": lambda x: x.sort(dim=1, stable=True)[1],
    "argsort down": lambda x: x.sort(dim=1, stable=True, descending=True)[1],
    "topk": lambda x: x.topk(3, 1)[0], "topk smallest": lambda x: x.topk(3, 1, largest=False)[0],
    "median": lambda x: x.median(1)[0], "nanmedian": lambda x: x.nanmedian(1)[0], "kth": lambda x: x.kthvalue(2, 1)[0],
    "cumsum": lambda x: x.cumsum(1), "cummax": lambda x: x.cummax(1)[0], "cummax places": lambda x: x.cummax(1)[1],
    "cummin places": lambda x: x.cummin(1)[1], "logcumsumexp": lambda x: x.logcumsumexp(1),
    "norm": lambda x: x.norm(dim=1), "norm of order inf": lambda x: x.norm(INF, dim=1),
    "layer_norm": lambda x: functional.layer_norm(x, (6,)), "rms_norm": lambda x: functional.rms_norm(x, (6,)),
    "group_norm": lambda x: functional.group_norm(x[:, :, None], 2),
    "max_pool": lambda x: functional.max_pool1d(x[:, None], 3, 1, 1),
    "avg_pool": lambda x: functional.avg_pool1d(x[:, None], 2), "times zero": lambda x: x * 0.0,
    "power zero": lambda x: x**0, "matmul": lambda x: x @ torch.eye(6), "clamp": lambda x: x.clamp(-1, 2),
    "cdist": lambda x: torch.cdist(x, x), "glu": lambda x: functional.glu(x, 1),
    "logits": lambda x: functional.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.5), reduction="none"),
    "huber": lambda x: functional.huber_loss(x, torch.zeros_like(x), reduction="none"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "every"), [("native", 1), ("tiles", 5), pytest.param("tiles", 1, marks=pytest.mark.slow)]
)
def test_rows__with_nan_and_infinities__are_pytorchs(mode: str, every: int) -> None:
    x, functions = torch.tensor(ROWS), dict(list(OF_ROWS.items())[::every])
    got = results_of(list(functions.values()), [1] * len(functions), [x], mode)
    wrong = []
    for result, (name, function) in zip(got, functions.items(), strict=True):
        wanted = function(x)
        if not wanted.is_floating_point():
            wanted = wanted.int()
        right = equal(result, wanted, torch.float32, relative=1e-5, absolute=1e-5, signed=False)
        if not right.all():
            wrong.append(f"{name}: {result[~right][:4]}, not {wanted[~right][:4]}")
    assert not wrong, "\n".join(wrong)


def test_polynomials__degree_that_no_integer_holds__is_pytorchs_zero() -> None:
    degrees, points = torch.tensor([3.0, NAN, INF, 1e30, -2.0]), torch.tensor([2.5, 0.5, 0.5, 2.0, 0.1])
    functions = [torch.special.chebyshev_polynomial_t, torch.special.hermite_polynomial_h]
    calls = [lambda n, f=f: f(points, n) for f in functions]
    for result, call in zip(results_of(calls, [1, 1], [degrees], "native"), calls, strict=True):
        torch.testing.assert_close(result, call(degrees))
