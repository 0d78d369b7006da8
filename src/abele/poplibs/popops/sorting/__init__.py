"""Sorting, and finding the largest or smallest, with bitonic networks over tiles."""

from abele.poplibs.popops.sorting.search import search_sorted
from abele.poplibs.popops.sorting.sort import (
    sort,
    sort_in_place,
    sort_key_value,
    sort_key_value_in_place,
    sort_with_permutation,
)
from abele.poplibs.popops.sorting.top_k import SortOrder, TopKParams, top_k, top_k_key_value, top_k_with_permutation

__all__ = [
    "SortOrder",
    "TopKParams",
    "search_sorted",
    "sort",
    "sort_in_place",
    "sort_key_value",
    "sort_key_value_in_place",
    "sort_with_permutation",
    "top_k",
    "top_k_key_value",
    "top_k_with_permutation",
]
