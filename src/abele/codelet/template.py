"""Templates: codelets for any choice of types, numbers or options, under the names that Poplar would give them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from abele.codelet.vertex import Vertex
from abele.errors import CodeletError
from abele.numerics import ElementType

Argument = ElementType | bool | int | float | str | Enum


class Template:
    """A function that makes a codelet, called once for every choice of arguments.

    ``Saxpy[f32]`` and ``Saxpy(f32)`` are one codelet, called ``Saxpy<float>``; iteration gives those made so far.
    """

    def __init__(self, make: Callable[..., type[Vertex]]) -> None:
        functools.update_wrapper(self, make)
        self._make = make
        self._made: dict[Any, type[Vertex]] = {}
        self.__name__: str

    def __getitem__(self, arguments: Argument | tuple[Argument, ...]) -> type[Vertex]:
        return self(*arguments) if isinstance(arguments, tuple) else self(arguments)

    def __call__(self, *arguments: Argument) -> type[Vertex]:
        """The codelet for these arguments; the same class for equal ones."""
        key = tuple((type(a), a) for a in arguments)
        if key not in self._made:
            self._made[key] = self._named(arguments)
        return self._made[key]

    def __iter__(self) -> Iterator[type[Vertex]]:
        return iter(self._made.values())

    def _named(self, arguments: tuple[Argument, ...]) -> type[Vertex]:
        name = f"{self.__name__}<{','.join(map(self._text, arguments))}>"
        made = self._make(*arguments)
        if not isinstance(made, type) or "codelet" not in vars(made):
            raise CodeletError(
                f"template {self.__name__} gave {made!r} for {name}, which is no codelet",
                remedy="define a class in it, decorate that with @codelet, and return it",
            )
        if made.codelet.name == made.__name__:
            made.codelet = replace(made.codelet, name=name)
        return made

    def _text(self, argument: Any) -> str:
        """An argument as it stands in the name of a vertex."""
        if isinstance(argument, ElementType):
            return argument.poplar_name
        if isinstance(argument, Enum):
            return f"{type(argument).__qualname__.rpartition('>.')[2].replace('.', '::')}::{argument.name}"
        if isinstance(argument, bool):
            return str(argument).lower()
        if isinstance(argument, int | float | str):
            return str(argument)
        raise CodeletError(
            f"template {self.__name__} cannot be given {argument!r}",
            remedy="element types, numbers, bools, text and members of enumerations tell variants apart",
        )


def template(make: Callable[..., type[Vertex]]) -> Template:
    """Make a template of a function that returns a codelet.

    Raises:
        CodeletError: The function returns something else, or an argument cannot be named; raised when a variant is
            made.
    """
    return Template(make)
