"""``import tensorflow``: found here once it is installed, with its submodules, and nowhere else touched."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from abele.errors import MissingPackageError, nearest
from abele.frontends.keras.lookalike import PAGE

from .root import tensorflow

_BESIDE = {
    "horovod": "abele.frontends.keras.tensorflow.beside.horovod",
    "ipu_tensorflow_addons": "abele.frontends.keras.addons",
    "popdist": "abele.frontends.keras.popdist",
    "libpvti": "abele.pvti",
    "pva": "abele.pva",
    "tensorflow_addons": "abele.frontends.keras.tensorflow.beside.tensorflow_addons",
}
"""Packages that programs import beside TensorFlow, and where they are here."""
_ABSENT = {
    "tensorflow_datasets": "tf.keras.datasets, or tf.data.Dataset.from_tensor_slices of arrays that NumPy reads",
    "tensorflow_hub": "models of keras.applications",
    "tensorflow_probability": "jax.scipy.stats and keras.random",
    "tensorflow_text": "keras.preprocessing.text.Tokenizer",
    "tensorflow_io": "tf.data.Dataset.from_generator",
}
"""Packages that need TensorFlow itself, with what to use in their place."""
_OF_KERAS = "keras.ipu"


class _LookalikeFinder(MetaPathFinder, Loader):
    """Finds modules by the attributes of the lookalike, and those beside it by their place here.

    Args:
        roots: For the first part of a name, the module, or where it is.
    """

    def __init__(self, roots: dict[str, ModuleType | str]) -> None:
        self.roots = roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, *rest = self._parted(fullname)
        if first in _ABSENT and not rest and not _is_elsewhere(first):
            raise MissingPackageError(
                f"{first} is not there", because="it needs TensorFlow itself", remedy=_ABSENT[first]
            )
        if first not in self.roots:
            return None
        found = self._found(self.roots[first], rest)
        if isinstance(found, ModuleType):
            return ModuleSpec(fullname, self, is_package=True)
        parent = self._found(self.roots[first], rest[:-1])
        names = [name for name, part in vars(parent).items() if isinstance(part, ModuleType)] if parent else []
        close = nearest(rest[-1], names)
        raise MissingPackageError(
            f"there is no module {fullname} here",
            remedy=(f"{fullname.rpartition('.')[0]}.{close}; " if close else "") + f"{PAGE} has what is there",
        )

    def _found(self, root: ModuleType | str, rest: list[str]) -> Any:
        found: Any = importlib.import_module(root) if isinstance(root, str) else root
        for name in rest:
            part = getattr(found, name, None)
            if part is None and not hasattr(found, "_over"):
                part = _submodule(found, name)
            if part is None:
                return None
            found = part
        return found

    def exec_module(self, module: ModuleType) -> None:
        first, *rest = self._parted(module.__name__)
        found = sys.modules[module.__name__] = self._found(self.roots[first], rest)
        if not hasattr(found, "__path__"):
            found.__path__ = []  # Programs import names of it as modules.

    def _parted(self, fullname: str) -> list[str]:
        """The name of a root, and what comes after it."""
        if fullname == _OF_KERAS or fullname.startswith(f"{_OF_KERAS}."):
            return [_OF_KERAS, *fullname.split(".")[2:]]
        return fullname.split(".")


def _submodule(package: ModuleType, name: str) -> Any:
    full = f"{package.__name__}.{name}"
    return importlib.import_module(full) if importlib.util.find_spec(full) is not None else None


_finder: _LookalikeFinder | None = None


def install(name: str = "tensorflow", *, shadow: bool = False) -> None:
    """Let ``import tensorflow`` find the lookalike, and its submodules, from now on in this process.

    Packages beside it, such as ``ipu_tensorflow_addons``, ``popdist`` and ``libpvti``, and ``keras.ipu`` are found as
    well, where no package has those names.

    Args:
        name: The name that programs import.
        shadow: True if the lookalike is to be found although a package of this name is installed.

    Raises:
        MissingPackageError: Another package of this name was imported already, or is installed and not shadowed.
    """
    global _finder
    made = tensorflow()
    there = sys.modules.get(name)
    if there is made:
        return
    if there is not None:
        raise MissingPackageError(
            f"{name} is imported already, from {getattr(there, '__file__', None)}",
            remedy="call abele.keras.install() before that",
        )
    installed = importlib.util.find_spec(name)
    if installed is not None and not shadow:
        raise MissingPackageError(
            f"{name} is installed, at {installed.origin}",
            because="programs that import it get that one",
            remedy="abele.keras.install(shadow=True), or python -m abele.keras --shadow program.py; "
            "the installed one is left as it is",
        )
    beside: dict[str, ModuleType | str] = {
        other: place for other, place in _BESIDE.items() if _is_free(other) and importlib.util.find_spec(place)
    }
    _finder = _LookalikeFinder({name: made, _OF_KERAS: "abele.frontends.keras.ipu", **beside})
    sys.meta_path.insert(0, _finder)
    made.__spec__ = ModuleSpec(name, _finder, is_package=True)
    sys.modules[name] = made


def _is_elsewhere(name: str) -> bool:
    """True for a package that is installed."""
    return any(find(name, None) is not None for find in _other_finders())


def _other_finders() -> list[Any]:
    return [
        finder.find_spec
        for finder in sys.meta_path
        if hasattr(finder, "find_spec") and not isinstance(finder, _LookalikeFinder)
    ]


def _is_free(name: str) -> bool:
    return name not in sys.modules and importlib.util.find_spec(name) is None


def uninstall() -> None:
    """Let ``import tensorflow`` find what it found before :func:`install`."""
    global _finder
    if _finder is None:
        return
    sys.meta_path.remove(_finder)
    for name in [name for name in sys.modules if _finder._parted(name)[0] in _finder.roots]:
        del sys.modules[name]
    vars(sys.modules["keras"]).pop("ipu", None)
    _finder = None
