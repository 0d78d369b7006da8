"""``popdist.popxl``: devices for sessions of PopXL, all of which mean the modelled machine."""

from abele.frontends.popdist.popart import getDevice

__all__ = ["getDevice"]
