"""Checked dictionaries of options: unknown names and wrong types are refused, and a frozen one does not change."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

from abele.errors import nearest
from abele.frontends.poptorch.errors import OptionValueError, UnknownOptionError
from abele.options import UNSET, OptionTable

FROZEN = "Can't modify frozen Options"


class Freezable:
    """Something that cannot be changed once it is in use; copies of it can."""

    def __init__(self) -> None:
        object.__setattr__(self, "_frozen", False)

    def _check_writable(self) -> None:
        if self.__dict__.get("_frozen", False):
            raise AttributeError(FROZEN)

    def _freeze(self) -> None:
        object.__setattr__(self, "_frozen", True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            object.__setattr__(made, name, copy.deepcopy(value, memo))
        object.__setattr__(made, "_frozen", False)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


class CheckedOptions(Freezable):
    """Options whose names and types are those of ``table``; they read as attributes."""

    table: ClassVar[OptionTable]

    def __init__(self) -> None:
        super().__init__()
        defaults = {name: option.default for name, option in self.table.items() if option.default is not UNSET}
        object.__setattr__(self, "_values", copy.deepcopy(defaults))

    # --- reading -------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_values" not in self.__dict__:
            raise AttributeError(name)
        values: dict[str, Any] = self.__dict__["_values"]
        if name not in values:
            raise self._unknown(name)
        return values[name]

    def _unknown(self, name: str) -> UnknownOptionError:
        setters = [n for n in dir(type(self)) if not n.startswith("_")]
        close = nearest(name, [*setters, *self._values])
        return UnknownOptionError(
            f"{type(self).__name__} has no option {name!r}", remedy=f"did you mean {close!r}?" if close else None
        )

    def exists(self, name: str) -> bool:
        """True if an option is set."""
        return name in self._values

    def toDict(self) -> dict[str, Any]:
        """All options by name."""
        return dict(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedOptions) and self.toDict() == other.toDict()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._described())})"

    def _described(self) -> list[str]:
        return [f"{name}={value!r}" for name, value in self._values.items()]

    # --- writing -------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            object.__setattr__(self, name, value)
            return
        self._check_writable()
        if name not in self._values:
            raise self._unknown(name)
        self._values[name] = self._checked(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        """The value as the option has it; PopTorch converts nothing, so numbers as text are refused."""
        option = self.table.get(name)
        if option is None or (value is None and option.default is None):
            return value
        try:
            return option.check(value)
        except ValueError:
            raise OptionValueError(f"option {name!r} takes {option.takes}, got {value!r}") from None

    def set(self, **options: Any) -> Self:
        """Set several options by name."""
        for name, value in options.items():
            setattr(self, name, value)
        return self

    def createOrSet(self, **options: Any) -> Self:
        """Set options by name, also ones that do not exist yet."""
        self._check_writable()
        self._values.update({name: self._checked(name, value) for name, value in options.items()})
        return self

    def deleteIfExists(self, name: str) -> Self:
        """Forget an option."""
        self._check_writable()
        self._values.pop(name, None)
        return self
