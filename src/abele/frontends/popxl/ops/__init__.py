"""``popxl.ops``: operations on tensors of the current graph."""

from abele.frontends.popxl.calls import (
    call,
    call_with_info,
    conditional,
    conditional_with_info,
    repeat,
    repeat_with_info,
)
from abele.frontends.popxl.ops import var_updates
from abele.frontends.popxl.ops.common import emit_block as emit_block
from abele.frontends.popxl.ops.elementwise import *  # noqa: F403
from abele.frontends.popxl.ops.elementwise import __all__ as _elementwise
from abele.frontends.popxl.ops.host import *  # noqa: F403
from abele.frontends.popxl.ops.host import __all__ as _host
from abele.frontends.popxl.ops.indexing import *  # noqa: F403
from abele.frontends.popxl.ops.indexing import __all__ as _indexing
from abele.frontends.popxl.ops.layers import *  # noqa: F403
from abele.frontends.popxl.ops.layers import __all__ as _layers
from abele.frontends.popxl.ops.random import *  # noqa: F403
from abele.frontends.popxl.ops.random import __all__ as _random
from abele.frontends.popxl.ops.reductions import *  # noqa: F403
from abele.frontends.popxl.ops.reductions import __all__ as _reductions
from abele.frontends.popxl.ops.views import *  # noqa: F403
from abele.frontends.popxl.ops.views import __all__ as _views

__all__ = [
    "call",
    "call_with_info",
    "conditional",
    "conditional_with_info",
    "repeat",
    "repeat_with_info",
    "var_updates",
    *_elementwise,
    *_host,
    *_indexing,
    *_layers,
    *_random,
    *_reductions,
    *_views,
]
