"""Products and softmaxes of matrices held in blocks, with a mask that is known when the program is compiled.

Names are those of PopLibs in snake_case; its own spelling works too (`bsMatMul`, `createBSMatMulInputLHS`).
"""

from abele.poplibs.popsparse.experimental.explain import explain_block
from abele.poplibs.popsparse.experimental.matmul import (
    block_plan,
    bs_mat_mul,
    create_bs_mat_mul_input_lhs,
    create_bs_mat_mul_input_rhs,
)
from abele.poplibs.popsparse.experimental.params import BSMatMulParams, SubBlockMask
from abele.poplibs.popsparse.experimental.softmax import bs_softmax, bs_softmax_grad, bs_softmax_in_place
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "BSMatMulParams",
    "SubBlockMask",
    "block_plan",
    "bs_mat_mul",
    "bs_softmax",
    "bs_softmax_grad",
    "bs_softmax_in_place",
    "create_bs_mat_mul_input_lhs",
    "create_bs_mat_mul_input_rhs",
    "explain_block",
]

_SOFTMAX = "dim block_size sparsity sub_block_mask"
_FORMS = {
    "bs_mat_mul": ("params prog lhs rhs",),
    "create_bs_mat_mul_input_lhs": ("params",),
    "create_bs_mat_mul_input_rhs": ("params",),
    "bs_softmax": (f"tensor {_SOFTMAX} prog", f"tensor {_SOFTMAX} groups prog"),
    "bs_softmax_in_place": (f"tensor {_SOFTMAX} prog", f"tensor {_SOFTMAX} groups prog"),
    "bs_softmax_grad": (
        "sparse_out sparse_out_grad dim block_size sparsity prog",
        "sparse_out sparse_out_grad dim block_size sparsity groups prog",
    ),
}

globals().update(guarded_functions(globals(), [n for n in __all__ if n.islower()], _FORMS))
globals().update(camel_aliases(globals(), ["block_plan", "explain_block"]))
bsMatMul = bs_mat_mul  # noqa: N816
bsSoftmax = bs_softmax  # noqa: N816
bsSoftmaxInPlace = bs_softmax_in_place  # noqa: N816
bsSoftmaxGrad = bs_softmax_grad  # noqa: N816
createBSMatMulInputLHS = create_bs_mat_mul_input_lhs  # noqa: N816
createBSMatMulInputRHS = create_bs_mat_mul_input_rhs  # noqa: N816
