"""Modules by TensorFlow's names: what is there, what is refused and why, and the nearest name of what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from abele.errors import AbeleError, nearest

PAGE = "docs/tensorflow_names.md"


class MissingNameError(AbeleError, AttributeError):
    """A name of TensorFlow that is not there."""


class RefusedNameError(AbeleError, NotImplementedError):
    """Something of TensorFlow that a program called, and that has no meaning here."""


class Lookalike(ModuleType):
    """A module of names.

    Args:
        name: The full name that programs import.
        names: Its contents.
        over: A module that has further names.
        refused: Names that raise an error when they are called, with what to do instead.
        lazy: Functions that make a name when it is read first.
    """

    def __init__(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        over: ModuleType | None = None,
        refused: Mapping[str, str] | None = None,
        lazy: Mapping[str, Callable[[], Any]] | None = None,
        doc: str | None = None,
    ) -> None:
        super().__init__(name, doc or f"Names of ``{name}``.")
        self.__path__: list[str] = []
        self.__dict__.update(names or {})
        self.__dict__.update({key: _refusal(f"{name}.{key}", remedy) for key, remedy in (refused or {}).items()})
        self._over, self._lazy = over, dict(lazy or {})

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [key for key in dir(self) if not key.startswith("_")]
        if name.startswith("__") or name in ("_over", "_lazy"):
            raise AttributeError(name)
        if name in self._lazy:
            self.__dict__[name] = made = self._lazy[name]()
            return made
        if self._over is not None and hasattr(self._over, name):
            return getattr(self._over, name)
        close = nearest(name, [key for key in dir(self) if not key.startswith("_")])
        raise MissingNameError(
            f"{self.__name__} has no {name} here",
            because="this is Abele's lookalike of TensorFlow, over Keras 3 and JAX",
            remedy=(f"{self.__name__}.{close}; " if close else "") + f"{PAGE} has what is there",
        )

    def __dir__(self) -> list[str]:
        over = [] if self._over is None else dir(self._over)
        return sorted({*self.__dict__, *self._lazy, *over})

    def __repr__(self) -> str:
        return f"<module '{self.__name__}' of Abele, a lookalike of TensorFlow's>"


def _refusal(name: str, remedy: str) -> Any:
    """Something that raises an error when it is called, subclassed or asked for an attribute."""

    class Refused:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise refused(name, remedy)

        def __init_subclass__(cls, **_: Any) -> None:
            raise refused(name, remedy)

    Refused.__name__ = Refused.__qualname__ = name.rpartition(".")[2]
    Refused.__doc__ = f"Refused: {remedy}."
    return Refused


def refused(name: str, remedy: str) -> RefusedNameError:
    """The error of a call of something that has no meaning here."""
    return RefusedNameError(f"{name} is not there", because="TensorFlow itself does not run here", remedy=remedy)
