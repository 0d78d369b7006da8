"""poprand: random tensors and dropout, reproducible by seed, modifier and element."""

from abele.poplibs.poprand.distributions import bernoulli, normal, uniform
from abele.poplibs.poprand.dropout import dropout
from abele.poplibs.poprand.seed import advance_seed, create_seed
from abele.poplibs.poputil.names import camel_aliases

__all__ = ["advance_seed", "bernoulli", "create_seed", "dropout", "normal", "uniform"]

globals().update(camel_aliases(globals(), __all__))
