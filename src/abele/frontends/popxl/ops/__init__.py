"""``popxl.ops``: operations on tensors of the current graph."""

from typing import Any

from abele.errors import nearest
from abele.frontends.popxl.calls import CallSiteInfo as CallSiteInfo
from abele.frontends.popxl.calls import ConditionalSiteInfo as ConditionalSiteInfo
from abele.frontends.popxl.calls import (
    call,
    call_with_info,
    conditional,
    conditional_with_info,
    repeat,
    repeat_with_info,
)
from abele.frontends.popxl.ops import collectives, var_updates
from abele.frontends.popxl.ops.common import emit_block as emit_block
from abele.frontends.popxl.ops.convolutions import *  # noqa: F403
from abele.frontends.popxl.ops.convolutions import __all__ as _convolutions
from abele.frontends.popxl.ops.elementwise import *  # noqa: F403
from abele.frontends.popxl.ops.elementwise import __all__ as _elementwise
from abele.frontends.popxl.ops.float8 import *  # noqa: F403
from abele.frontends.popxl.ops.float8 import __all__ as _float8
from abele.frontends.popxl.ops.host import *  # noqa: F403
from abele.frontends.popxl.ops.host import InitType as InitType
from abele.frontends.popxl.ops.host import __all__ as _host
from abele.frontends.popxl.ops.images import *  # noqa: F403
from abele.frontends.popxl.ops.images import __all__ as _images
from abele.frontends.popxl.ops.indexing import *  # noqa: F403
from abele.frontends.popxl.ops.indexing import __all__ as _indexing
from abele.frontends.popxl.ops.layers import *  # noqa: F403
from abele.frontends.popxl.ops.layers import __all__ as _layers
from abele.frontends.popxl.ops.random import *  # noqa: F403
from abele.frontends.popxl.ops.random import __all__ as _random
from abele.frontends.popxl.ops.reductions import *  # noqa: F403
from abele.frontends.popxl.ops.reductions import __all__ as _reductions
from abele.frontends.popxl.ops.remote import *  # noqa: F403
from abele.frontends.popxl.ops.remote import __all__ as _remote
from abele.frontends.popxl.ops.scattering import *  # noqa: F403
from abele.frontends.popxl.ops.scattering import __all__ as _scattering
from abele.frontends.popxl.ops.views import *  # noqa: F403
from abele.frontends.popxl.ops.views import __all__ as _views

__all__ = [
    "call",
    "call_with_info",
    "collectives",
    "conditional",
    "conditional_with_info",
    "repeat",
    "repeat_with_info",
    "var_updates",
    *_convolutions,
    *_elementwise,
    *_float8,
    *_host,
    *_images,
    *_indexing,
    *_layers,
    *_random,
    *_reductions,
    *_remote,
    *_scattering,
    *_views,
]


def __getattr__(name: str) -> Any:
    close = nearest(name, __all__)
    raise AttributeError(f"popxl.ops has no {name!r}" + (f"; {close!r} is near" if close else ""))
