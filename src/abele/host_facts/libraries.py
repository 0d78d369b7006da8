"""Times of products and convolutions by the best library at hand, for comparison with our own.

PyTorch has MKL for f32 and oneDNN for 16-bit floats and convolutions; without PyTorch it is NumPy's BLAS. Shapes are
texts, as :mod:`abele.kernels.plan.library_shapes` writes them. Operands lie as libraries like them most. The least time
of a few runs counts, after one that is not timed; time that is over leaves the shapes that are last without a figure.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError
from abele.host_facts.rates import host_name
from abele.report import HostProfile

PRODUCT = re.compile(r"(?:(\d+) of )?(\d+)x(\d+)x(\d+) (f32|bf16|f16)")
CONVOLUTION = re.compile(r"conv( weights)? ([\dx]+) by ([\dx]+) / (\d+) (f32|bf16|f16)")
SECONDS = 6.0
"""Time for all shapes, about."""
_EACH_SECONDS = 0.1
_ROUNDS = 9
_MOST_BYTES = 1 << 30
"""Operands of more are not made."""
Run = Callable[[], object]


def against_library(profile: HostProfile, limit: float = SECONDS) -> HostProfile:
    """The profile with times of its products and convolutions by the best library at hand, measured now.

    Args:
        profile: Profile of this machine.
        limit: Seconds that measuring may take, about.

    Raises:
        InvalidOptionError: It is of another machine, or does not know the shapes of its products.
    """
    host = str(profile.facts.get("host", ""))
    if host != host_name():
        raise InvalidOptionError(
            "a library's times on this machine say nothing of the report's",
            because=f"that is of {host or 'an unknown machine'}, this is {host_name()}",
            remedy="run it on that machine, or profile the program here",
        )
    if not profile.facts.get("products"):
        raise InvalidOptionError(
            "the report does not know the shapes of its products",
            because="it was written by an earlier version",
            remedy="profile the program again",
        )
    found = library_times(profile.product_seconds(), profile.threads, limit)
    against = {shape: asdict(times) | {"flops": library_flops(shape)} for shape, times in found.items()}
    return replace(profile, facts={**profile.facts, "against": against})


@dataclass(frozen=True)
class LibraryTime:
    """Time of one shape by a library.

    Attributes:
        library: Its name.
        seconds: Of one thread; 0 where it has no such setting.
        all_seconds: The least on up to as many threads as were asked for.
    """

    library: str
    seconds: float
    all_seconds: float


def library_flops(shape: str) -> int:
    """Arithmetic operations of a shape; 0 if it is none."""
    if found := PRODUCT.fullmatch(shape):
        return 2 * math.prod(int(n) for n in found.groups("1")[:4])
    if found := CONVOLUTION.fullmatch(shape):
        image, filters, stride = _sizes(found[2]), _sizes(found[3]), int(found[4])
        return 2 * image[0] * math.prod(filters) * math.prod(_outs(image, filters, stride))
    return 0


def library_times(shapes: Iterable[str], threads: int, limit: float = SECONDS) -> dict[str, LibraryTime]:
    """Times of shapes by the best library at hand, on one thread and on some; those that count most come first.

    Args:
        shapes: Texts; those that no library takes have no time.
        threads: Threads of the second time.
        limit: Seconds from which on no further shape is measured.
    """
    make = _torch_run if "torch" in sys.modules or find_spec("torch") is not None else _numpy_run
    end, found = time.perf_counter() + limit, {}
    for shape in dict.fromkeys(shapes):
        if time.perf_counter() > end:
            break
        made = make(shape)
        if made is not None:
            library, times = made(threads)
            found[shape] = LibraryTime(library, *times)
    return found


def _sizes(text: str) -> list[int]:
    return [int(n) for n in text.split("x")]


def _outs(image: list[int], filters: list[int], stride: int) -> list[int]:
    return [(n - k) // stride + 1 for n, k in zip(image[2:], filters[2:], strict=True)]


def _least(run: Run) -> float:
    """The least seconds of a run; the first is not timed."""
    run()
    least, end = math.inf, time.perf_counter() + _EACH_SECONDS
    for number in range(_ROUNDS):
        start = time.perf_counter()
        if number > 1 and start > end:
            break
        run()
        least = min(least, time.perf_counter() - start)
    return max(least, 1e-9)


def _is_large(*shapes: Iterable[int]) -> bool:
    return sum(4 * math.prod(shape) for shape in shapes) > _MOST_BYTES


Measure = Callable[[int], tuple[str, tuple[float, float]]]


def _numpy_run(shape: str) -> Measure | None:
    """Measures a product of f32 by NumPy's BLAS, on as many threads as that takes."""
    product = PRODUCT.fullmatch(shape)
    if product is None or product[5] != "f32":
        return None
    count, m, n, k = (int(number) for number in product.groups("1")[:4])
    if _is_large((count, m, k), (count, k, n), (count, m, n)):
        return None
    a, b = np.full((count, m, k), 0.5, np.float32), np.full((count, k, n), 0.5, np.float32)
    out = np.empty((count, m, n), np.float32)

    def measure(_: int) -> tuple[str, tuple[float, float]]:
        return "NumPy's BLAS", (0.0, _least(lambda: np.matmul(a, b, out=out)))

    return measure


def _torch_run(shape: str) -> Measure | None:
    """Measures a product by PyTorch's BLAS, or a convolution by oneDNN."""
    import torch

    product, convolution = PRODUCT.fullmatch(shape), CONVOLUTION.fullmatch(shape)
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    backends: Any = torch.backends
    has_mkl, has_onednn = backends.mkl.is_available(), backends.mkldnn.is_available()
    run: Run | None = None
    if product is not None:
        type_ = types[product[5]]
        count, m, n, k = (int(number) for number in product.groups("1")[:4])
        if not _is_large((count, m, k), (count, k, n), (count, m, n)):
            a, b = torch.full((count, m, k), 0.5, dtype=type_), torch.full((count, k, n), 0.5, dtype=type_)
            a, b = (a, b) if count > 1 else (a[0], b[0])
            run = lambda: torch.matmul(a, b)  # noqa: E731
        blas = "MKL" if has_mkl else "PyTorch's BLAS"
        library = blas if type_ == torch.float32 else "oneDNN" if has_onednn else "PyTorch"
    elif convolution is not None:
        run = _torch_convolution(convolution, types[convolution[5]])
        library = "oneDNN" if has_onednn else "PyTorch"
    if run is None:
        return None
    measured = run

    def measure(threads: int) -> tuple[str, tuple[float, float]]:
        before = torch.get_num_threads()
        try:
            with torch.no_grad():
                torch.set_num_threads(1)
                one = _least(measured)
                torch.set_num_threads(threads)
                # Small ones are slower on several threads, and all are where other programs run.
                return library, (one, min(one, _least(measured)) if threads > 1 else one)
        finally:
            torch.set_num_threads(before)

    return measure


def _torch_convolution(found: re.Match[str], type_: Any) -> Run | None:
    import torch

    image, filters, stride = _sizes(found[2]), _sizes(found[3]), int(found[4])
    dims = len(image) - 2
    outs = [image[0], filters[0], *_outs(image, filters, stride)]
    if _is_large(image, filters, outs):
        return None
    x, w = torch.full(image, 0.5, dtype=type_), torch.full(filters, 0.5, dtype=type_)
    zeros = [0] * dims
    plain: dict[str, Any] = {"stride": [stride] * dims, "padding": zeros, "dilation": [1] * dims, "groups": 1}
    plain |= {"transposed": False, "output_padding": zeros}
    if found[1] is None:
        return lambda: torch.ops.aten.convolution(x, w, None, **plain)
    grad = torch.full(outs, 0.5, dtype=type_)
    plain |= {"bias_sizes": None, "output_mask": [False, True, False]}
    return lambda: torch.ops.aten.convolution_backward(grad, x, w, **plain)
