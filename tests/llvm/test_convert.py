from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from elementwise_ir import elementwise

from abele.llvm import narrow
from abele.llvm.flush import emit_enter, emit_leave
from abele.llvm.host import host_cpu

ALL = np.arange(65536, dtype=np.uint16)
DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
WAYS = [("f16", False), ("bf16", None)] + ([("f16", True)] if host_cpu().converts_half else [])


def same_numbers(got: np.ndarray, want: np.ndarray) -> bool:
    both_nan = np.isnan(got) & np.isnan(want)
    return bool((both_nan | (got.view(np.uint32) == want.view(np.uint32))).all())


def around_every_pattern(dtype: np.dtype) -> np.ndarray:
    """f32 values at, between and just beside all values of ``dtype``, and beyond its range."""
    values = ALL.view(dtype).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    exact = np.concatenate([values, middle])
    far = np.array([1e38, -1e38, np.inf, -np.inf, 65520, 65519.99, 1e-30, -1e-8], np.float32)
    up, down = np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))
    return np.concatenate([exact, up, down, far])


@pytest.mark.parametrize(("name", "native"), WAYS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_to_f32__every_pattern__is_exact(name: str, native: bool | None, lanes: int) -> None:
    got = elementwise(lambda b, x: narrow.to_f32(b, x, name, native=native), "float32", ALL, lanes=lanes)
    assert same_numbers(got, ALL.view(DTYPES[name]).astype(np.float32))


@pytest.mark.parametrize(("name", "native"), WAYS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_from_f32__around_every_pattern__rounds_to_nearest_even(name: str, native: bool | None) -> None:
    x = around_every_pattern(DTYPES[name])
    got = elementwise(lambda b, v: narrow.from_f32(b, v, name, native=native), "uint16", x)
    assert np.array_equal(got, x.astype(DTYPES[name]).view(np.uint16))


@pytest.mark.parametrize(("name", "native"), WAYS)
def test_from_f32__nan__stays_nan(name: str, native: bool | None) -> None:
    x = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F801000], np.uint32).view(np.float32)
    got = elementwise(lambda b, v: narrow.from_f32(b, v, name, native=native), "uint16", x)
    assert np.isnan(got.view(DTYPES[name]).astype(np.float32)).all()


@pytest.mark.skipif(not host_cpu().converts_half, reason="the CPU has no f16 conversions to compare with")
def test_half_conversions__with_and_without_instructions__same_bits() -> None:
    ways = [elementwise(lambda b, x, n=n: narrow.to_f32(b, x, "f16", native=n), "float32", ALL) for n in (0, 1)]
    assert np.array_equal(ways[0].view(np.uint32), ways[1].view(np.uint32))
    x = np.random.default_rng(0).integers(0, 2**32, 1 << 18, dtype=np.uint64).astype(np.uint32).view(np.float32)
    back = [elementwise(lambda b, v, n=n: narrow.from_f32(b, v, "f16", native=n), "uint16", x) for n in (0, 1)]
    assert np.array_equal(back[0], back[1])


@pytest.mark.parametrize("native", [n for name, n in WAYS if name == "f16"])
def test_half_subnormals__denormals_flushed__survive(native: bool) -> None:
    def round_trip(b, x):
        mode = emit_enter(b)
        result = narrow.from_f32(b, narrow.to_f32(b, x, "f16", native=native), "f16", native=native)
        emit_leave(b, mode)
        return result

    tiny = np.arange(1, 1024, dtype=np.uint16)
    assert np.array_equal(elementwise(round_trip, "uint16", tiny), tiny)
