"""Rules of an automatic loss scale: the gradients that it follows, where their edge is, how often it moves.

Source: the options of automatic loss scaling that Graphcore published with PopART, and their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import numpy as np

from abele.errors import InvalidOptionError
from abele.numerics.exponents import LARGEST_F16


class GradientTracking(StrEnum):
    """Choice of the float16 gradients that are counted.

    ``ALL``: of parameters that are trained, and of every result between them and the loss: what reaches it on all ways
    together. One that shows the elements of another in another shape or order is not counted again. ``PRODUCTS``: those
    that matrix products and convolutions make, of both of their operands. ``NAMED``: those of the parameters and
    modules that are named.
    """

    ALL = "all"
    PRODUCTS = "products"
    NAMED = "named"


@dataclass(frozen=True, kw_only=True)
class AutomaticLossScale:
    """Rule by which the loss scale follows the gradients.

    Attributes:
        tracking: Choice of the gradients that are counted.
        tensors: With ``NAMED`` alone: names of parameters, or of modules (``layers.0``), which stand for all that is
            in them; ``*`` and ``?`` stand for any letters.
        edge_proportion: Lower edge of large magnitudes, as a part of the largest float16.
        threshold_proportion: Part of large elements above which the scale is halved; otherwise it is doubled.
        period: Updates of weights from one move of the scale to the next; gradients of the last of them decide.

    Raises:
        InvalidOptionError: Numbers outside of 0 to 1, a period below 1, or names without ``NAMED`` or the reverse.
    """

    tracking: GradientTracking = GradientTracking.ALL
    tensors: tuple[str, ...] = ()
    edge_proportion: float = 0.125
    threshold_proportion: float = 1e-7
    period: int = 1

    def __post_init__(self) -> None:
        for what, value in (("edge", self.edge_proportion), ("threshold", self.threshold_proportion)):
            if not 0 <= value <= 1:
                raise InvalidOptionError(
                    f"the {what} of automatic loss scaling is a proportion from 0 to 1, not {value:g}"
                )
        if self.period < 1:
            raise InvalidOptionError(f"automatic loss scaling moves every 1 or more updates, not every {self.period}")
        named = self.tracking == GradientTracking.NAMED
        if named and not self.tensors:
            raise InvalidOptionError(
                "automatic loss scaling is to follow named gradients, and none are named",
                remedy="name parameters or modules, or track all gradients",
            )
        if self.tensors and not named:
            raise InvalidOptionError(
                f"automatic loss scaling has names of gradients to follow ({', '.join(self.tensors)}), but is to track "
                f"{'those of products' if self.tracking == GradientTracking.PRODUCTS else 'all'}",
                remedy="track named gradients, or leave the names out",
            )

    @property
    def edge(self) -> float:
        """Magnitude from which on a gradient counts as large, a float16."""
        return float(np.float16(self.edge_proportion * LARGEST_F16))

    def matching(self, name: str) -> tuple[str, ...]:
        """Those of the names that stand for a parameter, or for a module or one around it."""
        return tuple(given for given in self.tensors if any(fnmatchcase(part, given) for part in modules_around(name)))


def modules_around(name: str) -> list[str]:
    """A name, and the names of the modules around it: ``layers``, ``layers.0`` and ``layers.0.bias`` for the last."""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]
