"""Packing of sequences and graphs: fewer rows with less padding, and what training on them needs."""

from abele.packing.histogram import SizeHistogram
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.solve import METHODS, pack, pack_items
from abele.packing.split import SplitPacks

__all__ = ["METHODS", "PackingPlan", "Packs", "SizeHistogram", "SplitPacks", "pack", "pack_items"]
