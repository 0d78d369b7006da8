"""``poptorch.experts``: mixtures of experts, whose shapes are static: routing, slots, losses, and the layer of all.

>>> layer = MixtureOfExperts(dim=64, hidden=256, num_experts=8, top_k=2)  # doctest: +SKIP
>>> output, auxiliary = layer(tokens)  # doctest: +SKIP
"""

from abele.frontends.poptorch.experts.dropless import ChoicesInOrder, PassSettings, apply_without_drops
from abele.frontends.poptorch.experts.feed_forward import ACTIVATIONS, ExpertWeights, apply_experts
from abele.frontends.poptorch.experts.figures import ExpertLoad
from abele.frontends.poptorch.experts.layer import MixtureOfExperts, MixtureOutput
from abele.frontends.poptorch.experts.losses import load_balancing_loss, router_z_loss
from abele.frontends.poptorch.experts.parallel import exchange_in_group, from_experts, to_experts
from abele.frontends.poptorch.experts.routing import ExpertChoice, Routing, capacity_of, choose_tokens, route

__all__ = [
    "ACTIVATIONS",
    "ChoicesInOrder",
    "ExpertChoice",
    "ExpertLoad",
    "ExpertWeights",
    "MixtureOfExperts",
    "MixtureOutput",
    "PassSettings",
    "Routing",
    "apply_experts",
    "apply_without_drops",
    "capacity_of",
    "choose_tokens",
    "exchange_in_group",
    "from_experts",
    "load_balancing_loss",
    "route",
    "router_z_loss",
    "to_experts",
]
