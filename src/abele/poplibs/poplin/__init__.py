"""poplin: matmuls, convolutions and their gradients, planned over the tiles.

Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.poplin import multiconv, norms
from abele.poplibs.poplin.conv_params.cpp_params import CppInputTransform, CppOutputTransform
from abele.poplibs.poplin.conv_params.flops import (
    get_bwd_flops,
    get_bwd_perfect_cycle_count,
    get_fwd_flops,
    get_fwd_perfect_cycle_count,
    get_wu_flops,
    get_wu_perfect_cycle_count,
)
from abele.poplibs.poplin.conv_params.index_queries import (
    get_gradient_params,
    get_input_index,
    get_input_range,
    get_kernel_index,
    get_kernel_range,
    get_output_index,
    get_output_range,
    get_weight_update_params,
)
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import InputTransform, OutputTransform, TransformedConv
from abele.poplibs.poplin.cpp_forms import FORMS
from abele.poplibs.poplin.explain import (
    explain_convolution,
    explain_matmul,
    matmul_report_plan,
    preplan_convolutions,
    preplan_matmuls,
    report_plan_estimated_costs,
    report_plan_info,
)
from abele.poplibs.poplin.linalg import (
    cholesky,
    create_cholesky_input,
    create_qr_factorization_matrices,
    create_triangular_solve_input_lhs,
    create_triangular_solve_input_rhs,
    linspace,
    lu_factorization,
    meshgrid2d,
    qr_factorization,
    triangular_mask,
    triangular_solve,
)
from abele.poplibs.poplin.norms.per_channel import *  # noqa: F403
from abele.poplibs.poplin.operations.arranged import (
    fully_connected_weight_transpose,
    matmul_grouped_with_output,
    matmul_with_output,
    pre_arrange_matmul_input_rhs,
    transpose_grouped_matrix,
    weights_transpose_chans_flip_xy,
)
from abele.poplibs.poplin.operations.bias import add_bias, bias_gradient, convolution_bias_update
from abele.poplibs.poplin.operations.convolution import calculate_weight_deltas, convolution, convolution_backward_data
from abele.poplibs.poplin.operations.create import (
    create_biases,
    create_input,
    create_matmul_input_lhs,
    create_matmul_input_rhs,
    create_matmul_output,
    create_weights,
)
from abele.poplibs.poplin.operations.matmul import matmul, matmul_grouped
from abele.poplibs.poplin.operations.pow2scaled import conv_pow2scaled, matmul_pow2scaled
from abele.poplibs.poplin.operations.update import convolution_weight_update, matmul_acc
from abele.poplibs.poplin.planner.plan import ContractionPlan as Plan
from abele.poplibs.poplin.preplanning import MatMulParams, preplan, preplanConvolutions, preplanMatMuls
from abele.poplibs.poputil.codelets import codelets_adder
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.kinds import PlanningCache
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "ConvParams",
    "InputTransform",
    "OutputTransform",
    "Plan",
    "MatMulParams",
    "PlanningCache",
    "preplan",
    "TransformedConv",
    "add_bias",
    "add_codelets",
    "bias_gradient",
    "calculate_weight_deltas",
    "cholesky",
    "convolution",
    "convolution_backward_data",
    "convolution_bias_update",
    "convolution_weight_update",
    "create_biases",
    "create_cholesky_input",
    "create_input",
    "create_matmul_input_lhs",
    "create_matmul_input_rhs",
    "create_matmul_output",
    "create_qr_factorization_matrices",
    "create_triangular_solve_input_lhs",
    "create_triangular_solve_input_rhs",
    "create_weights",
    "fully_connected_weight_transpose",
    "linspace",
    "explain_convolution",
    "explain_matmul",
    "get_bwd_flops",
    "get_bwd_perfect_cycle_count",
    "get_fwd_flops",
    "get_fwd_perfect_cycle_count",
    "get_gradient_params",
    "get_input_index",
    "get_input_range",
    "get_kernel_index",
    "get_kernel_range",
    "get_output_index",
    "get_output_range",
    "get_weight_update_params",
    "get_wu_flops",
    "get_wu_perfect_cycle_count",
    "matmul_report_plan",
    "preplan_convolutions",
    "preplan_matmuls",
    "report_plan_estimated_costs",
    "report_plan_info",
    "lu_factorization",
    "matmul",
    "matmul_acc",
    "matmul_pow2scaled",
    "conv_pow2scaled",
    "matmul_grouped",
    "matmul_grouped_with_output",
    "matmul_with_output",
    "meshgrid2d",
    "multiconv",
    "pre_arrange_matmul_input_rhs",
    "transpose_grouped_matrix",
    "qr_factorization",
    "triangular_mask",
    "triangular_solve",
    "weights_transpose_chans_flip_xy",
    *norms.__all__,
]

add_codelets = codelets_adder("poplin")
globals().update(guarded_functions(globals(), __all__, FORMS))

# In C++ ``poplin::matmul`` is a namespace too.
vars(matmul)["PlanningCache"] = PlanningCache
ConvParams.InputTransform, ConvParams.OutputTransform = CppInputTransform, CppOutputTransform

_MATMUL_NAMES = {
    "matMul": matmul,
    "matMulGrouped": matmul_grouped,
    "matMulAcc": matmul_acc,
    "matMulReportPlan": matmul_report_plan,
    "preplanMatMuls": preplanMatMuls,
    "preplanConvolutions": preplanConvolutions,
    "matMulGroupedAcc": matmul_acc,
    "matMulWithOutput": matmul_with_output,
    "matMulGroupedWithOutput": matmul_grouped_with_output,
    "createMatMulOutput": create_matmul_output,
    "createMatMulGroupedOutput": create_matmul_output,
    "matMulGroupedReportPlan": matmul_report_plan,
    "preArrangeMatMulInputRHS": pre_arrange_matmul_input_rhs,
    "preArrangeMatMulGroupedInputRHS": pre_arrange_matmul_input_rhs,
    "weightsTransposeChansFlipXY": weights_transpose_chans_flip_xy,
    "calculateWeightDeltas": calculate_weight_deltas,
    "createMatMulInputLHS": create_matmul_input_lhs,
    "createMatMulInputRHS": create_matmul_input_rhs,
    "createMatMulGroupedInputLHS": create_matmul_input_lhs,
    "createMatMulGroupedInputRHS": create_matmul_input_rhs,
    "createTriangularSolveInputLHS": create_triangular_solve_input_lhs,
    "createTriangularSolveInputRHS": create_triangular_solve_input_rhs,
    "createQRFactorizationMatrices": create_qr_factorization_matrices,
    "QRFactorization": qr_factorization,
    "LUFactorization": lu_factorization,
}
globals().update(camel_aliases(globals(), __all__[2:]) | _MATMUL_NAMES)
