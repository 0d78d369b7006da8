"""Orders of arguments in PopLibs' poplin headers that are not our own; see :mod:`abele.poplibs.poputil.forms`."""

from __future__ import annotations

from abele.poplibs.poplin.cpp_conv import CONV_FORMS
from abele.poplibs.poputil.arguments import Forms

FORMS: Forms = {
    **CONV_FORMS,
    "convolution_bias_update": ("z_deltas biases scale options? prog",),
    "create_matmul_input_lhs": ("dtype =type a_shape b_shape",),
    "create_matmul_input_rhs": ("dtype =type a_shape b_shape",),
    "create_matmul_output": ("=type dtype a_shape b_shape",),
    "create_norm_beta": ("acts =type",),
    "create_norm_gamma": ("acts =type",),
    "create_norm_params": ("acts =type",),
    "distributed_norm_statistics": ("acts eps prog unbiased all_reduce norm_batch_size stable? =type?",),
    "distributed_norm_statistics_gradients": ("whitened grads_in inv_std_dev prog all_reduce norm_batch_size =type?",),
    "matmul": ("a b prog output_type?",),
    "matmul_grouped": ("a b prog output_type?",),
    "matmul_report_plan": ("^ out:stream input_type output_type a_shape b_shape",),
    "norm_param_gradients": ("whitened grads_in prog =type?",),
    "norm_statistics": ("acts eps prog unbiased stable? =type?",),
    "norm_statistics_gradients": ("whitened grads_in inv_std_dev prog =type?",),
    "pre_arrange_matmul_input_rhs": ("a_shape b prog =type?",),
}
