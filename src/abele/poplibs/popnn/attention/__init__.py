"""Attention over caches of keys and values."""

from abele.poplibs.popnn.attention.cached import cached_attention, create_cache, page_places
from abele.poplibs.popnn.attention.view import CacheView

__all__ = ["CacheView", "cached_attention", "create_cache", "page_places"]
