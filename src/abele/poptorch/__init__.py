"""``from abele import poptorch``: the PopTorch front end under the name that programs import.

Programs that say ``import poptorch`` run unchanged with ``python -m abele.poptorch program.py``, or after
``abele.poptorch.install()``. Frameworks above PopTorch ask for hardware first: with
``abele.poptorch.install(hardware=True)``, or ``ABELE_POPTORCH_HARDWARE=1``, they take the model for it.
"""

import importlib.util
import os
import sys

from abele.frontends import popart_enums as _popart
from abele.frontends import poptorch as _front_end
from abele.frontends.poptorch import *  # noqa: F403
from abele.frontends.poptorch import __all__ as _names
from abele.frontends.poptorch.options.environment import HARDWARE_VARIABLE as _HARDWARE

_MODULES = (
    "_impl",
    "_logging",
    "_poplar_executor",
    "enums",
    "experts",
    "fp8",
    "optim",
    "options",
    "poptorch_core",
    "profiling",
    "sparse",
    "tensor_parallel",
    "testing",
    "unit_scaling",
)


def _as_modules(name: str) -> None:
    """Let submodules be imported below ``name``."""
    for module in _MODULES:
        sys.modules[f"{name}.{module}"] = getattr(_front_end, module)


def install(name: str = "poptorch", *, hardware: bool = False) -> None:
    """Let ``import poptorch`` find this package, and its submodules, from now on in this process.

    ``import popart`` finds the enumerations of PopART's session options, where no package has that name.

    Args:
        name: The name that programs import.
        hardware: True if ``ipuHardwareIsAvailable()`` is to say so, also in processes that this one starts.

    Raises:
        ImportError: Another package of this name was imported already.
    """
    own = sys.modules[__name__]
    if sys.modules.get(name, own) is not own:
        from abele.errors import MissingPackageError

        raise MissingPackageError(
            f"{name} is imported already, from {getattr(sys.modules[name], '__file__', None)}",
            remedy="call abele.poptorch.install() before that",
        )
    sys.modules[name] = own
    _as_modules(name)
    if "popart" not in sys.modules and importlib.util.find_spec("popart") is None:
        sys.modules["popart"] = _popart
    if hardware:
        os.environ[_HARDWARE] = "1"


_as_modules(__name__)

__all__ = [*_names, "install"]
