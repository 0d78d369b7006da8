"""``poptorch.fp8``: linear layers of PyTorch modules in the machine's 8-bit floats.

>>> from abele.poptorch import fp8  # doctest: +SKIP
>>> model = fp8.fp8_linear(model, fp8.Fp8Recipe(), skip=["scores"])  # doctest: +SKIP

They run on the C600, the one chip that multiplies 8-bit floats; on others where conversion to float16 is allowed. In
plain PyTorch they compute the same values.
"""

from abele.frontends.poptorch.fp8.casts import matmul_pow2scaled, pow2scale_cast_from_fp8, pow2scale_cast_to_fp8
from abele.frontends.poptorch.fp8.convert import Fp8Linear, Fp8Product, fp8_linear
from abele.frontends.poptorch.fp8.formats import F143, F152, LOG2_SCALES, QuarterFormat
from abele.frontends.poptorch.fp8.recipe import (
    GRADIENT_MARGIN,
    Fp8Recipe,
    ScaleChoice,
    amax_scale,
    exponent_histogram,
    mse_choice,
)

__all__ = [
    "F143",
    "F152",
    "GRADIENT_MARGIN",
    "LOG2_SCALES",
    "Fp8Linear",
    "Fp8Product",
    "Fp8Recipe",
    "QuarterFormat",
    "ScaleChoice",
    "amax_scale",
    "exponent_histogram",
    "fp8_linear",
    "matmul_pow2scaled",
    "mse_choice",
    "pow2scale_cast_from_fp8",
    "pow2scale_cast_to_fp8",
]
