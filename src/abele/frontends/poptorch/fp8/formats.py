"""The machine's 8-bit floats as PyTorch's: ``F143`` is ``float8_e4m3fnuz``, ``F152`` ``float8_e5m2fnuz``, to the bit.

The formats that other software calls E4M3 and E5M2 are others: the same bits there mean half as much, and they have
infinities or a second NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from abele.errors import nearest
from abele.frontends.poptorch.errors import ArgumentError, OptionValueError
from abele.numerics import ElementType, f8_143, f8_152
from abele.numerics.narrow import format_of

LOG2_SCALES = range(-31, 32)
"""Exponents of scales that rules choose from. Source: 8-bit numerical formats, arXiv:2309.17224."""


@dataclass(frozen=True)
class QuarterFormat:
    """A format of 8-bit floats.

    Attributes:
        name: ``F143`` or ``F152``.
        dtype: PyTorch's type of the same bits.
        element_type: The machine's.
    """

    name: str
    dtype: torch.dtype
    element_type: ElementType

    @property
    def largest(self) -> float:
        """The largest number, without a scale."""
        return format_of(self.element_type).largest

    @property
    def mantissa_bits(self) -> int:
        """Bits of the fraction."""
        return format_of(self.element_type).fraction_bits


F143 = QuarterFormat("F143", torch.float8_e4m3fnuz, f8_143)
F152 = QuarterFormat("F152", torch.float8_e5m2fnuz, f8_152)
FORMATS: Mapping[str, QuarterFormat] = MappingProxyType({"F143": F143, "F152": F152})
"""The formats by name."""


def quarter_format(value: str | QuarterFormat) -> QuarterFormat:
    """The format of a name.

    Raises:
        OptionValueError: There is none.
    """
    if isinstance(value, QuarterFormat):
        return value
    if value not in FORMATS:
        close = nearest(value, FORMATS) if isinstance(value, str) else None
        raise OptionValueError(
            f"no format of 8-bit floats is called {value!r}",
            remedy=f"did you mean {close!r}?" if close else "F143 or F152",
        )
    return FORMATS[value]


def format_of_tensor(tensor: torch.Tensor) -> QuarterFormat:
    """The format of a tensor of 8-bit floats.

    Raises:
        ArgumentError: It has another type.
    """
    for found in FORMATS.values():
        if tensor.dtype == found.dtype:
            return found
    raise ArgumentError(
        f"a tensor of {tensor.dtype} is no 8-bit float of the machine",
        because="E4M3 and E5M2 of other software are formats of other values"
        if str(tensor.dtype).startswith("torch.float8")
        else None,
        remedy="pow2scale_cast_to_fp8(tensor, log2_scale, 'F143')",
    )


def checked_log2_scale(value: object, what: str = "a scale") -> int:
    """An exponent of a scale.

    Raises:
        OptionValueError: It is no whole number from -31 to 31.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value not in LOG2_SCALES:
        raise OptionValueError(f"{what} is 2 to a whole number from -31 to 31, not to {value!r}")
    return value
