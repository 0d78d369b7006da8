"""Automatic loss scaling as PopART's session options say it, which ``opts._Popart.set`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.options.popart_enums import GradientTensorTrackingMethod
from abele.frontends.poptorch.options.tensor_names import ANCHOR_NAMES
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking
from abele.options import UNSET, Option, OptionTable, flag, integer, number

PREFIX = "automaticLossScalingSettings."
"""Prefix of the names of these session options."""


_METHODS = {
    GradientTensorTrackingMethod.AllNonViewChangingGradientTensors: GradientTracking.ALL,
    GradientTensorTrackingMethod.ConvAndMatmulGradients: GradientTracking.PRODUCTS,
    GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors: GradientTracking.NAMED,
}
_NAMES = tuple(method.name for method in GradientTensorTrackingMethod)

LOSS_SCALING = OptionTable(
    PREFIX.rstrip("."),
    {
        "enabled": flag(False, doc="as `Training.setAutomaticLossScaling`"),
        "binEdgeLocation": number(
            AutomaticLossScale.edge_proportion,
            high=1.0,
            doc="where large gradients begin, as a part of the largest float16, 65,504",
        ),
        "thresholdUpperCountProportion": number(
            AutomaticLossScale.threshold_proportion,
            high=1.0,
            doc="part of large gradients above which the scale is halved; otherwise it is doubled",
        ),
        "updatePeriod": integer(
            AutomaticLossScale.period, 1, doc="weight updates from one move of the scale to the next"
        ),
        "gradientTensorTrackingMethod": Option(
            UNSET,
            Literal[(*_NAMES, *(method.value for method in GradientTensorTrackingMethod))],
            doc="which gradients are counted, by name or number; without it all, or those that are named",
        ),
        "toTrackTensors": Option(
            UNSET, list[str], doc="parameters and modules whose gradients are counted; `*` stands for any letters"
        ),
    },
)
"""The session options, with their allowed values."""


def automatic_loss_scaling(popart: Mapping[str, Any], *, enabled: bool) -> dict[str, Any]:
    """The settings of a session about automatic loss scaling.

    Args:
        popart: PopART's session options by name.
        enabled: Value of PopTorch's own option.

    Raises:
        InvalidOptionError: A value that an option does not take.
        OptionValueError: Tensors are named and others are to be tracked, or the reverse.
    """
    given = {name.removeprefix(PREFIX): value for name, value in popart.items() if name.startswith(PREFIX)}
    read = LOSS_SCALING.read({name: _plain(value) for name, value in given.items()})
    names = () if read["toTrackTensors"] is UNSET else tuple(map(_parameter, read["toTrackTensors"]))
    return {
        "automatic_loss_scale": enabled or read["enabled"],
        "loss_scale_tracking": str(_method(read, names).value),
        "loss_scale_tensors": names,
        "loss_scale_edge": read["binEdgeLocation"],
        "loss_scale_threshold": read["thresholdUpperCountProportion"],
        "loss_scale_period": read["updatePeriod"],
    }


def _method(read: Mapping[str, Any], names: tuple[str, ...]) -> GradientTracking:
    chosen, named = read["gradientTensorTrackingMethod"], GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    if read["toTrackTensors"] is not UNSET and not names:
        raise OptionValueError(
            f"{PREFIX}toTrackTensors names no tensor", remedy="name parameters or modules, or leave the option out"
        )
    if chosen is UNSET:
        return _METHODS[named] if names else GradientTracking.ALL
    method = GradientTensorTrackingMethod[chosen] if isinstance(chosen, str) else GradientTensorTrackingMethod(chosen)
    if (method == named) != bool(names):
        has = f"names {', '.join(names)}" if names else "names none"
        raise OptionValueError(
            f"{PREFIX}gradientTensorTrackingMethod is {method.name}, and {PREFIX}toTrackTensors {has}",
            because=f"{named.name} counts the gradients of tensors that are named, the other methods those of others",
            remedy=f"both, or neither: {PREFIX}toTrackTensors goes with {named.name} alone",
        )
    return _METHODS[method]


def _plain(value: object) -> object:
    """An option's value without the classes that users may have for it."""
    if isinstance(value, IntEnum):
        return int(value)
    return sorted(value) if isinstance(value, (set, frozenset)) else list(value) if isinstance(value, tuple) else value


def _parameter(name: str) -> str:
    """The parameter or module of a tensor: PopART calls the gradient of ``w`` ``Gradient___w``."""
    for prefix in ANCHOR_NAMES:
        name = name.removeprefix(prefix)
    return name
