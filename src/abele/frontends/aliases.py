"""Packages under the names that programs import: ``popxl.ops`` is ``abele.frontends.popxl.ops``, the same module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from abele.errors import MissingPackageError


class _AliasFinder(MetaPathFinder, Loader):
    """Finds modules below a name where they are.

    Attributes:
        places: For the name of a package, the name of the one that it is.
    """

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = self._real(fullname)
        if real is None or importlib.util.find_spec(real) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def _real(self, fullname: str) -> str | None:
        root = fullname
        while root not in self.places:
            root, _, last = root.rpartition(".")
            if not last or not root:
                return None
        return self.places[root] + fullname[len(root) :]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        real = self._real(spec.name)
        assert real is not None
        module = importlib.import_module(real)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The machinery has given the module the alias's spec; it keeps its own, and is not run again.
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


_finder = _AliasFinder()


def alias(name: str, place: str, modules: Mapping[str, str] | None = None) -> None:
    """Let a package and all modules below it be found under another name.

    Modules that the package has imported are entered at once. Were they imported again, each would become an attribute
    of the one around, in place of a function of its name.

    Args:
        name: The name that programs import.
        place: Name of the package.
        modules: For names of modules below it those that they have here.

    Raises:
        MissingPackageError: Another package of this name was imported already, or is installed.
    """
    if name in _finder.places:
        return
    there = sys.modules.get(name)
    ours = there is not None and there.__name__.startswith("abele.")
    if (there is not None and not ours) or (there is None and importlib.util.find_spec(name) is not None):
        raise MissingPackageError(
            f"there is a package {name} already, {getattr(there, '__file__', None) or name}",
            remedy="install Abele's names before it is imported, where it is not installed itself",
        )
    importlib.import_module(place)
    _finder.places[name] = place
    for real, module in list(sys.modules.items()):
        if real.startswith(f"{place}."):
            sys.modules[f"{name}{real[len(place) :]}"] = module
    for below, real in (modules or {}).items():
        sys.modules[f"{name}.{below}"] = importlib.import_module(f"{place}.{real}")
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


__all__ = ["alias"]
