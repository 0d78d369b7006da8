"""Layers of the addons."""

from abele.frontends.popxl_addons.layers.conv import Conv2D
from abele.frontends.popxl_addons.layers.embedding import Embedding
from abele.frontends.popxl_addons.layers.linear import Linear
from abele.frontends.popxl_addons.layers.linear_fp8 import LinearFP8
from abele.frontends.popxl_addons.layers.linear_gq import LinearGQ
from abele.frontends.popxl_addons.layers.norms import GroupNorm, LayerNorm, LayerNormDistributed

__all__ = ["Conv2D", "Embedding", "GroupNorm", "LayerNorm", "LayerNormDistributed", "Linear", "LinearFP8", "LinearGQ"]
