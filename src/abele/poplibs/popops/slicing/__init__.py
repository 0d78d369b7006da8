"""Slices and updates of tensors at offsets that are data, by many indices at once."""

from abele.poplibs.popops.slicing import embedding
from abele.poplibs.popops.slicing.dynamic_slice import (
    create_dynamic_slice_output,
    create_sliceable_tensor_from_slice,
    dynamic_slice,
    dynamic_slice_with_output,
    dynamic_update,
)
from abele.poplibs.popops.slicing.gather import create_gather_input, gather
from abele.poplibs.popops.slicing.grouped_update import (
    grouped_multi_update_add,
    grouped_multi_update_max,
    grouped_multi_update_mul,
)
from abele.poplibs.popops.slicing.multi_check import validate_indices_by_default
from abele.poplibs.popops.slicing.multi_layout import (
    create_grouped_indices_tensor,
    create_grouped_slice_tensor,
    create_grouped_sliceable_tensor,
    create_indices_tensor,
    create_slice_tensor,
    create_sliceable_tensor,
    is_stored_for,
    stored_entries,
    stored_parts,
)
from abele.poplibs.popops.slicing.multi_slice import grouped_multi_slice, multi_slice
from abele.poplibs.popops.slicing.multi_update import (
    grouped_multi_update,
    multi_update,
    multi_update_add,
    multi_update_max,
    multi_update_mul,
)
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.popops.slicing.scatter import scatter
from abele.poplibs.popops.slicing.select_rows import select_scalar_from_rows, update_scalar_in_rows
from abele.poplibs.popops.slicing.sequence_slice import sequence_slice
from abele.poplibs.popops.slicing.step_slice import is_held_along
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "SlicePlan",
    "create_dynamic_slice_output",
    "create_gather_input",
    "create_grouped_indices_tensor",
    "create_grouped_slice_tensor",
    "create_grouped_sliceable_tensor",
    "create_indices_tensor",
    "create_slice_tensor",
    "create_sliceable_tensor",
    "create_sliceable_tensor_from_slice",
    "dynamic_slice",
    "dynamic_slice_with_output",
    "dynamic_update",
    "embedding",
    "gather",
    "grouped_multi_slice",
    "grouped_multi_update",
    "grouped_multi_update_add",
    "grouped_multi_update_max",
    "grouped_multi_update_mul",
    "is_held_along",
    "is_stored_for",
    "multi_slice",
    "multi_update",
    "multi_update_add",
    "multi_update_max",
    "multi_update_mul",
    "scatter",
    "select_scalar_from_rows",
    "sequence_slice",
    "stored_entries",
    "stored_parts",
    "update_scalar_in_rows",
    "validate_indices_by_default",
]

globals().update(camel_aliases(globals(), __all__))
