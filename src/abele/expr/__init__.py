"""Element-wise expressions: one table of operations, and the language of computations per element.

Host kernels compute expressions over loads from their operands, popops maps them over tensors, networks differentiate
them, and vertices evaluate them. What each needs to know of an operation stands in one entry of :data:`TABLE`.
"""

from abele.expr import operations
from abele.expr.affine import Affine, AffineLike, affine, dims
from abele.expr.evaluate import evaluate
from abele.expr.expand import Expander, expanded, is_primitive
from abele.expr.nodes import (
    Apply,
    Cast,
    Const,
    Expr,
    ExprLike,
    Index,
    Load,
    Random,
    Rounded,
    RowLoad,
    apply,
    as_expr,
    load,
    select,
)
from abele.expr.operation import (
    FUNCTIONS,
    POPOPS,
    TABLE,
    Code,
    InVertex,
    LibraryCost,
    LoopCost,
    Operation,
    Slots,
    Spelling,
    Types,
    define,
    defined,
    find_operation,
    find_popops,
    loop_cost,
)
from abele.expr.operations.nonlinearities import NONLINEARITIES, Nonlinearity
from abele.expr.types import Typing, check_computes, common_type, compute_type, element_type, result_type

__all__ = [
    "FUNCTIONS",
    "NONLINEARITIES",
    "POPOPS",
    "TABLE",
    "Affine",
    "AffineLike",
    "Apply",
    "Cast",
    "Code",
    "Const",
    "Expander",
    "Expr",
    "ExprLike",
    "InVertex",
    "Index",
    "LibraryCost",
    "Load",
    "LoopCost",
    "Nonlinearity",
    "Operation",
    "Random",
    "Rounded",
    "RowLoad",
    "Slots",
    "Spelling",
    "Types",
    "Typing",
    "affine",
    "apply",
    "as_expr",
    "check_computes",
    "common_type",
    "compute_type",
    "define",
    "defined",
    "dims",
    "element_type",
    "evaluate",
    "expanded",
    "find_operation",
    "find_popops",
    "is_primitive",
    "load",
    "loop_cost",
    "operations",
    "result_type",
    "select",
]
