"""Multi-convolutions: several at the same time, each on a share of the tiles, in the supersteps of one.

Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.poplin.multiconv.args import (
    CalculateWeightDeltasArgs,
    ConvolutionArgs,
    ConvWeightUpdateArgs,
    CreateTensorArgs,
)
from abele.poplibs.poplin.multiconv.convs import (
    calculate_weight_deltas,
    convolution,
    convolution_weight_update,
    create_input,
    create_weights,
)
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "CalculateWeightDeltasArgs",
    "ConvWeightUpdateArgs",
    "ConvolutionArgs",
    "CreateTensorArgs",
    "calculate_weight_deltas",
    "convolution",
    "convolution_weight_update",
    "create_input",
    "create_weights",
]

FORMS: Forms = {"convolution": ("args transpose_and_flip_weights prog",)}
globals().update(guarded_functions(globals(), __all__[4:], FORMS))
globals().update(camel_aliases(globals(), __all__[4:]))
