"""Networks: their parts, and how they are built, checked, compared, printed and read."""

from abele.parallel.network.builder import BlockBuilder, NetworkBuilder, RegionBuilder
from abele.parallel.network.frozen import Dense, FrozenDict
from abele.parallel.network.hints import ConvGroup, PlanHint
from abele.parallel.network.network import AllowedRange, Network, differentiable, needed
from abele.parallel.network.op import NetworkFunction, NetworkOp, OpBlock
from abele.parallel.network.parser import parse
from abele.parallel.network.printer import network_text
from abele.parallel.network.value import HERE, Place, Shape, Stage, Value
from abele.parallel.network.verify import verify

__all__ = [
    "HERE",
    "AllowedRange",
    "BlockBuilder",
    "ConvGroup",
    "Dense",
    "FrozenDict",
    "Network",
    "NetworkBuilder",
    "NetworkFunction",
    "NetworkOp",
    "OpBlock",
    "Place",
    "PlanHint",
    "RegionBuilder",
    "Shape",
    "Stage",
    "Value",
    "differentiable",
    "needed",
    "network_text",
    "parse",
    "verify",
]
