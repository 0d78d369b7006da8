"""Random rounding to f16 by the instruction that cuts off, beside the same without it and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from elementwise_ir import elementwise

from abele.llvm.emit import F32, like
from abele.llvm.host import host_cpu
from abele.llvm.narrow import narrowed
from abele.numerics import f16
from abele.numerics.narrow import round_at_random


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_random_half__of_any_number_of_lanes__is_numpys(lanes: int, native: bool) -> None:
    if not host_cpu().cuts_to_half:
        pytest.skip("the CPU has no such instruction")
    values = (np.random.default_rng(0).normal(size=4096) * np.logspace(-9, 6, 4096)).astype("f4")
    words = values.view(np.uint32)

    def emit(b, bits):
        # The value's own bits serve as its random word.
        return narrowed(b, b.bitcast(bits, like(bits, F32)), f16, bits, native=native)

    got = elementwise(emit, "uint16", words, lanes=lanes).view(np.float16)
    np.testing.assert_array_equal(got, round_at_random(values, f16, words))
