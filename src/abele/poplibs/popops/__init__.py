"""popops: element-wise maps, reductions, casts and fills.

Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.popops import expr, padding, rearrange, slicing
from abele.poplibs.popops.circ_buf import CircBuf
from abele.poplibs.popops.cpp_forms import FORMS
from abele.poplibs.popops.elementwise import named
from abele.poplibs.popops.elementwise.cast import cast, cast_with_output
from abele.poplibs.popops.elementwise.create_output import create_output_for_element_wise_op
from abele.poplibs.popops.elementwise.fill import fill, iota, zero
from abele.poplibs.popops.elementwise.map import map, map_in_place, map_with_output, map_with_outputs
from abele.poplibs.popops.elementwise.named import *  # noqa: F403
from abele.poplibs.popops.elementwise.pow2scale import pow2scale_cast_from_fp8, pow2scale_cast_to_fp8
from abele.poplibs.popops.elementwise.scaled_add import ScaledAddSpecialisation, scaled_add_to, scaled_subtract_from
from abele.poplibs.popops.expr import (
    Cast,
    Const,
    ConstHalf,
    Expr,
    Op,
    PlaceHolder,
    _1,
    _2,
    _3,
    _4,
    _5,
    _6,
    _7,
    _8,
    _9,
)
from abele.poplibs.popops.expressions import names as expr_names
from abele.poplibs.popops.expressions.names import BinaryOpType, Operation, UnaryOpType
from abele.poplibs.popops.image import create_normalise_image_input, normalise_image
from abele.poplibs.popops.layout.host_tensors import create_host_sliceable_tensor, create_host_transferable_tensor
from abele.poplibs.popops.layout.pad import PaddingType, pad
from abele.poplibs.popops.layout.regroup import partial_transpose, regroup_if_beneficial, regroup_tensor
from abele.poplibs.popops.programs.loops import counted_for_loop, counted_loop
from abele.poplibs.popops.programs.side_by_side import zip_programs
from abele.poplibs.popops.reductions.cumulative import cum_sum, linear_recurrence, scan
from abele.poplibs.popops.reductions.has_nan import has_nan, has_nan_or_inf
from abele.poplibs.popops.reductions.histogram import histogram, histogram_with_output
from abele.poplibs.popops.reductions.reduce import (
    ReduceParams,
    SingleReduceOp,
    all_true,
    reduce,
    reduce_many,
    reduce_with_output,
)
from abele.poplibs.popops.slicing import *  # noqa: F403
from abele.poplibs.popops.slicing.one_hot import MASKED_LABEL_CODE, encode_one_hot
from abele.poplibs.popops.sorting import (
    SortOrder,
    TopKParams,
    search_sorted,
    sort,
    sort_in_place,
    sort_key_value,
    sort_key_value_in_place,
    sort_with_permutation,
    top_k,
    top_k_key_value,
    top_k_with_permutation,
)
from abele.poplibs.popops.spline import spline_basis, spline_weighting
from abele.poplibs.poputil.codelets import codelets_adder
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "spline_basis",
    "spline_weighting",
    "CircBuf",
    "ScaledAddSpecialisation",
    "add_codelets",
    "create_output_for_element_wise_op",
    "MASKED_LABEL_CODE",
    "BinaryOpType",
    "UnaryOpType",
    "PaddingType",
    "counted_for_loop",
    "counted_loop",
    "cum_sum",
    "linear_recurrence",
    "scan",
    "create_host_sliceable_tensor",
    "create_host_transferable_tensor",
    "create_normalise_image_input",
    "encode_one_hot",
    "expr",
    "expr_names",
    "padding",
    "rearrange",
    "normalise_image",
    "pad",
    "partial_transpose",
    "regroup_if_beneficial",
    "regroup_tensor",
    "Cast",
    "Const",
    "ConstHalf",
    "Expr",
    "Op",
    "Operation",
    "PlaceHolder",
    "ReduceParams",
    "SingleReduceOp",
    "SortOrder",
    "TopKParams",
    "_1",
    "_2",
    "_3",
    "_4",
    "_5",
    "_6",
    "_7",
    "_8",
    "_9",
    "all_true",
    "cast",
    "cast_with_output",
    "pow2scale_cast_from_fp8",
    "pow2scale_cast_to_fp8",
    "fill",
    "has_nan",
    "has_nan_or_inf",
    "histogram",
    "histogram_with_output",
    "iota",
    "map",
    "map_in_place",
    "map_with_output",
    "map_with_outputs",
    "reduce",
    "reduce_many",
    "reduce_with_output",
    "scaled_add_to",
    "scaled_subtract_from",
    "search_sorted",
    "sort",
    "sort_in_place",
    "sort_key_value",
    "sort_key_value_in_place",
    "sort_with_permutation",
    "top_k",
    "top_k_key_value",
    "top_k_with_permutation",
    "zero",
    "zip_programs",
    *named.__all__,
    *slicing.__all__,
]

add_codelets = codelets_adder("popops")
globals().update(guarded_functions(globals(), __all__, FORMS))
globals().update(camel_aliases(globals(), __all__))
hasNaN, hasNaNOrInf = has_nan, has_nan_or_inf  # noqa: N816
