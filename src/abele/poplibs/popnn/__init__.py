"""popnn: non-linearities, softmax, losses, pooling, optimiser updates.

Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.popnn import attention, ctc, ctc_infer, gru, lstm, nonlinearity_named, norms, pooling, rnn
from abele.poplibs.popnn.argmax import arg_max, arg_min, max_and_arg_max, min_and_arg_min
from abele.poplibs.popnn.cpp_forms import FORMS
from abele.poplibs.popnn.kinds import LossType, NonLinearityType, PoolingType
from abele.poplibs.popnn.loss import (
    cross_entropy_loss,
    cross_entropy_loss_gradient,
    mse_loss,
    mse_loss_gradient,
    nll_loss,
    nll_loss_gradient,
)
from abele.poplibs.popnn.loss_calc import MASKED_LABEL_CODE, calc_accuracy, calc_loss
from abele.poplibs.popnn.nonlinearity import (
    leaky_relu,
    leaky_relu_input_gradient,
    non_linearity,
    non_linearity_in_place,
    non_linearity_input_gradient,
)
from abele.poplibs.popnn.nonlinearity_named import *  # noqa: F403
from abele.poplibs.popnn.norms import *  # noqa: F403
from abele.poplibs.popnn.norms.spaces import bn, gn, in_, ln
from abele.poplibs.popnn.optimiser import adam_bias_correction, adam_update, sgd_update
from abele.poplibs.popnn.pool_layout import create_pool_input
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.popnn.pooling import pool, pool_input_gradient
from abele.poplibs.popnn.roi_align import RoiAlignParams, roi_align_fwd, roi_align_input_gradient
from abele.poplibs.popnn.softmax import (
    log_softmax,
    log_softmax_in_place,
    log_softmax_input_gradient,
    scaled_softmax_stable,
    scaled_softmax_stable_in_place,
    softmax,
    softmax_in_place,
    softmax_input_gradient,
    softmax_scaling,
)
from abele.poplibs.popnn.spatial_softmax import spatial_softmax2d
from abele.poplibs.popnn.top_k import top_k
from abele.poplibs.poputil.codelets import codelets_adder
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "LossType",
    "NonLinearityType",
    "add_codelets",
    "attention",
    "bn",
    "gn",
    "in_",
    "ln",
    "pooling",
    "PoolParams",
    "PoolingType",
    "RoiAlignParams",
    "adam_bias_correction",
    "adam_update",
    "arg_max",
    "MASKED_LABEL_CODE",
    "calc_accuracy",
    "calc_loss",
    "lstm",
    "max_and_arg_max",
    "min_and_arg_min",
    "scaled_softmax_stable",
    "scaled_softmax_stable_in_place",
    "softmax_scaling",
    "spatial_softmax2d",
    "top_k",
    *nonlinearity_named.__all__,
    "create_pool_input",
    "ctc",
    "ctc_infer",
    "arg_min",
    "cross_entropy_loss",
    "cross_entropy_loss_gradient",
    "gru",
    "leaky_relu",
    "leaky_relu_input_gradient",
    "log_softmax",
    "log_softmax_in_place",
    "log_softmax_input_gradient",
    "mse_loss",
    "mse_loss_gradient",
    "nll_loss",
    "nll_loss_gradient",
    "non_linearity",
    "non_linearity_in_place",
    "non_linearity_input_gradient",
    "pool",
    "pool_input_gradient",
    "rnn",
    "roi_align_fwd",
    "roi_align_input_gradient",
    *norms.__all__,
    "sgd_update",
    "softmax",
    "softmax_in_place",
    "softmax_input_gradient",
]

add_codelets = codelets_adder("popnn")
globals().update(guarded_functions(globals(), __all__, FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n.islower()]))
spatialSoftMax2D = spatial_softmax2d  # noqa: N816
