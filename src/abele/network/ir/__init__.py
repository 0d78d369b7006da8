"""Networks: their parts, and how they are built, checked, compared, printed and read."""

from abele.network.ir.builder import BlockBuilder, NetworkBuilder, RegionBuilder
from abele.network.ir.frozen import Dense, FrozenDict
from abele.network.ir.network import AllowedRange, Network, differentiable, needed
from abele.network.ir.op import SAME_ELEMENTS, ConvGroup, NetworkFunction, NetworkOp, OpBlock, PlanHint
from abele.network.ir.parser import parse
from abele.network.ir.printer import network_text
from abele.network.ir.spread import first_read, ipus_of, is_spread, place_read
from abele.network.ir.value import HERE, Place, Shape, Stage, Value
from abele.network.ir.verify import verify

__all__ = [
    "HERE",
    "SAME_ELEMENTS",
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
    "first_read",
    "ipus_of",
    "is_spread",
    "needed",
    "network_text",
    "parse",
    "place_read",
    "verify",
]
