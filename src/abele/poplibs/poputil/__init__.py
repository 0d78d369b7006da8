"""Helpers that every library function is built from: layouts, mappings, broadcasting, regions of vertices."""

from abele.poplibs.poputil.broadcast import broadcast_shape, broadcast_to_match
from abele.poplibs.poputil.layout import channels_per_group, clone, create_activations, create_output_like, duplicate
from abele.poplibs.poputil.mapping import (
    calc_linear_tile_mapping,
    linear_mapping,
    map_tensor_linearly,
    map_tensor_linearly_with_offset,
    set_mapping,
    tile_imbalance,
    vector_grain,
)
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Option, Options, read_options
from abele.poplibs.poputil.order import StorageOrder, is_same_view, storage_order
from abele.poplibs.poputil.regions import count_up, flat_regions, split_evenly
from abele.poplibs.poputil.templates import template_vertex

__all__ = [
    "Option",
    "Options",
    "StorageOrder",
    "broadcast_shape",
    "broadcast_to_match",
    "calc_linear_tile_mapping",
    "channels_per_group",
    "clone",
    "count_up",
    "create_activations",
    "create_output_like",
    "duplicate",
    "flat_regions",
    "is_same_view",
    "linear_mapping",
    "map_tensor_linearly",
    "map_tensor_linearly_with_offset",
    "read_options",
    "set_mapping",
    "split_evenly",
    "storage_order",
    "template_vertex",
    "tile_imbalance",
    "vector_grain",
]

globals().update(camel_aliases(globals(), __all__))
