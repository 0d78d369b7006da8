"""Hints for the convolutions that are recorded inside of a ``poptorch.MultiConv``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx

from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.enums import MultiConvPlanType
from abele.frontends.poptorch.errors import OptionValueError
from abele.network.ir import ConvGroup, PlanHint

MULTI_CONV = "abele_multi_conv"
"""Key in the metadata of a recorded call for the settings of its group."""

NUMBER = "number"
"""Key of the group's number among its settings."""

_PLAN_TYPES = {MultiConvPlanType.Parallel: "parallel", MultiConvPlanType.Serial: "serial"}
_PARTIALS = {torch.float32: "f32", torch.float16: "f16"}


def group_hint(node: torch.fx.Node) -> PlanHint | None:
    """The hint for a convolution that was recorded in a group; None outside of any.

    Raises:
        OptionValueError: A setting has values for more or fewer convolutions than there are.
    """
    settings = _settings(node)
    if settings is None:
        return None
    members = [n for n in node.graph.nodes if _settings(n) == settings and "conv" in torch_export.op_name(n)]
    place, count = members.index(node), len(members)

    def of_this(name: str, default: Any) -> Any:
        value = settings.get(name, default)
        if not isinstance(value, (list, tuple)):
            return value
        if len(value) != count:
            raise OptionValueError(
                f"MultiConv.{name} has {len(value)} values, and the group has {count} convolutions",
                at=torch_export.origin(node).location or None,
                remedy="give one value for all, or one for each convolution inside",
            )
        return value[place]

    group = ConvGroup(
        number=settings[NUMBER],
        plan_type=_PLAN_TYPES[settings.get("planType", MultiConvPlanType.Parallel)],
        reserved_tiles=max(1, settings.get("perConvReservedTiles", ConvGroup.reserved_tiles)),
        back_off=float(settings.get("cycleBackOff", ConvGroup.back_off)),
    )
    return PlanHint(
        proportion=of_this("availableMemoryProportions", None),
        partials=_PARTIALS.get(of_this("partialsTypes", None)),
        dithered=of_this("enableConvDithering", False),
        group=group,
    )


def _settings(node: torch.fx.Node) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (node.meta.get("custom") or {}).get(MULTI_CONV)
    return found
