"""Helpers that every library function is built from: layouts, mappings, broadcasting, regions of vertices."""

from abele.poplibs.poputil import graphfn
from abele.poplibs.poputil.broadcast import (
    broadcast_shape,
    broadcast_to_match,
    can_broadcast_to_match,
    expand_to_match_ranks,
)
from abele.poplibs.poputil.cpp_forms import (
    FORMS,
    cast_to_device_half_value,
    castToDeviceHalfValue,
    check_accuracy_when_cast,
    checkAccuracyWhenCast,
    mapTensorLinearlyWithOffset,
    splitRegionsBetweenWorkers,
)
from abele.poplibs.poputil.groupings import detect_dim_groupings, detect_innermost_grouping, factor_dims, unfactor_dims
from abele.poplibs.poputil.guard import guarded, guarded_functions
from abele.poplibs.poputil.ipus import (
    clone_and_expand_aliasing,
    clone_to_graph,
    clone_to_ipu,
    copy_to_ipu,
    create_ipu_copy,
    dim_is_split_over_ipus,
    dim_is_split_over_tiles,
)
from abele.poplibs.poputil.layout import (
    channels_per_group,
    clone,
    clone_n,
    create_activations,
    create_broadcast_operand,
    create_output_like,
    duplicate,
)
from abele.poplibs.poputil.mapping import (
    calc_linear_tile_mapping,
    calc_linear_tile_mapping_and_new_offset,
    choose_mapping_offset,
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
from abele.poplibs.poputil.partition import (
    balanced_partition,
    calculate_unshuffling_intervals,
    flatten_index,
    flatten_intervals,
    interval_sequence_num_elements,
    merge_adjacent_regions,
    split_regions,
    split_regions_between_workers,
    unflatten_index,
)
from abele.poplibs.poputil.partitionable import create_partitionable_tensor, iterate_tensor_partitions
from abele.poplibs.poputil.regions import count_up, flat_regions, split_evenly
from abele.poplibs.poputil.templates import template_vertex
from abele.poplibs.poputil.use_tracker import TensorUseTracker

__all__ = [
    "Option",
    "Options",
    "StorageOrder",
    "TensorUseTracker",
    "balanced_partition",
    "broadcast_shape",
    "broadcast_to_match",
    "calc_linear_tile_mapping",
    "calc_linear_tile_mapping_and_new_offset",
    "calculate_unshuffling_intervals",
    "can_broadcast_to_match",
    "cast_to_device_half_value",
    "channels_per_group",
    "check_accuracy_when_cast",
    "choose_mapping_offset",
    "clone",
    "clone_and_expand_aliasing",
    "clone_n",
    "clone_to_graph",
    "clone_to_ipu",
    "copy_to_ipu",
    "count_up",
    "create_activations",
    "create_broadcast_operand",
    "create_ipu_copy",
    "create_output_like",
    "create_partitionable_tensor",
    "detect_dim_groupings",
    "detect_innermost_grouping",
    "dim_is_split_over_ipus",
    "dim_is_split_over_tiles",
    "duplicate",
    "expand_to_match_ranks",
    "factor_dims",
    "flat_regions",
    "flatten_index",
    "flatten_intervals",
    "graphfn",
    "interval_sequence_num_elements",
    "is_same_view",
    "iterate_tensor_partitions",
    "linear_mapping",
    "map_tensor_linearly",
    "map_tensor_linearly_with_offset",
    "merge_adjacent_regions",
    "read_options",
    "set_mapping",
    "split_evenly",
    "split_regions",
    "split_regions_between_workers",
    "storage_order",
    "template_vertex",
    "tile_imbalance",
    "unfactor_dims",
    "unflatten_index",
    "vector_grain",
]

globals().update(guarded_functions(globals(), __all__, FORMS))
_OWN_ORDER = {
    "castToDeviceHalfValue": castToDeviceHalfValue,
    "checkAccuracyWhenCast": checkAccuracyWhenCast,
    "mapTensorLinearlyWithOffset": guarded(mapTensorLinearlyWithOffset),
    "splitRegionsBetweenWorkers": splitRegionsBetweenWorkers,
}
globals().update(camel_aliases(globals(), __all__) | _OWN_ORDER)
getTileImbalance = tile_imbalance  # noqa: N816
dimIsSplitOverIPUs = dim_is_split_over_ipus  # noqa: N816
