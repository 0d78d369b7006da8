"""Packing of sequences and graphs: fewer rows with less padding, and what training on them needs."""

from abele.packing.packs import Packs

__all__ = ["Packs"]
