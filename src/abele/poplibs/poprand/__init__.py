"""poprand: random tensors and dropout, reproducible by seed, modifier and element."""

from abele.poplibs.poprand.cpp_forms import FORMS
from abele.poplibs.poprand.distributions import bernoulli, draw, log_uniform, uniform
from abele.poplibs.poprand.dropout import dropout, shaped_dropout
from abele.poplibs.poprand.normals import normal, truncated_normal
from abele.poplibs.poprand.seed import advance_seed, create_seed, get_seed, set_seed
from abele.poplibs.poputil.codelets import codelets_adder
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "add_codelets",
    "advance_seed",
    "bernoulli",
    "create_seed",
    "draw",
    "dropout",
    "get_seed",
    "log_uniform",
    "normal",
    "set_seed",
    "shaped_dropout",
    "truncated_normal",
    "uniform",
]

add_codelets = codelets_adder("poprand")
globals().update(guarded_functions(globals(), __all__, FORMS))
globals().update(camel_aliases(globals(), __all__))
