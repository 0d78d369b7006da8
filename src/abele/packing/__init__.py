"""Packing of sequences and graphs: fewer rows with less padding, and what training on them needs."""

from abele.packing.assign import ItemPieces, SplitPacks, split_items
from abele.packing.histogram import SizeHistogram
from abele.packing.ordered import pack_in_order
from abele.packing.packs import Packs
from abele.packing.plan import ExpectedSpeedUp, PackingPlan, expected_speed_up
from abele.packing.ranks import RankPacks, share_packs
from abele.packing.reading import read_lengths
from abele.packing.solve import METHODS, Method, pack, pack_items
from abele.packing.stream import PackStream, pack_stream

__all__ = [
    "METHODS",
    "ExpectedSpeedUp",
    "ItemPieces",
    "Method",
    "PackStream",
    "PackingPlan",
    "Packs",
    "RankPacks",
    "SizeHistogram",
    "SplitPacks",
    "expected_speed_up",
    "pack",
    "pack_in_order",
    "pack_items",
    "pack_stream",
    "read_lengths",
    "share_packs",
    "split_items",
]
