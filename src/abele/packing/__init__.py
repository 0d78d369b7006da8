"""Packing of sequences and graphs: fewer rows with less padding, and what training on them needs."""

from abele.packing.histogram import SizeHistogram
from abele.packing.ordered import pack_in_order
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.ranks import RankPacks, share_packs
from abele.packing.solve import METHODS, Method, pack, pack_items
from abele.packing.split import ItemPieces, SplitPacks, split_items
from abele.packing.stream import PackStream, pack_stream

__all__ = [
    "METHODS",
    "ItemPieces",
    "Method",
    "PackStream",
    "PackingPlan",
    "Packs",
    "RankPacks",
    "SizeHistogram",
    "SplitPacks",
    "pack",
    "pack_in_order",
    "pack_items",
    "pack_stream",
    "share_packs",
    "split_items",
]
