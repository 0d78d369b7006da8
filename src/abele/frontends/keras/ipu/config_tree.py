"""Trees of typed attributes: what ``IPUConfig`` is made of.

A category is a class whose attributes are values (:func:`attribute`) or other categories. Setting checks the type, an
unknown name is a ``ValueError`` with the nearest one, and a category cannot be assigned to::

    config.matmuls.poplar_options = {"partialsType": "half"}
    config.matmul = 1       # ValueError: did you mean 'matmuls'?
    config.matmuls = {}     # AbeleError: it is a category
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

from abele.errors import AbeleError, InvalidOptionError, TypeMismatchError, nearest


@dataclass(frozen=True)
class ConfigField:
    """One attribute.

    Attributes:
        default: Its value in a new configuration.
        types: Types that may be assigned; an enumeration takes its members and their names.
        doc: One line.
    """

    default: Any
    types: tuple[type, ...]
    doc: str

    @property
    def allowed(self) -> str:
        """The types in words."""
        return ", ".join(t.__name__ for t in self.types)


def attribute(default: Any, types: tuple[type, ...], doc: str) -> Any:
    """An attribute of a category, in its class: a :class:`ConfigField`, whose value instances have."""
    return ConfigField(default, types, doc)


@dataclass(frozen=True)
class AttributeMetadata:
    """Facts about an attribute.

    Attributes:
        name: Path from the root.
        types: Types that may be assigned.
        default: Value in a new configuration.
        doc: One line.
    """

    name: str
    types: tuple[type, ...]
    default: Any
    doc: str


class Category:
    """Attributes of one kind.

    Attributes:
        path: Path from the root; empty at the root.
    """

    fields: ClassVar[dict[str, ConfigField]]
    categories: ClassVar[dict[str, type[Category]]]

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
        cls.fields = {name: value for name, value in own.items() if isinstance(value, ConfigField)}
        cls.categories = {
            name: value for name, value in own.items() if isinstance(value, type) and issubclass(value, Category)
        }
        for name in (*cls.fields, *cls.categories):
            delattr(cls, name)

    def __init__(self, path: str = "") -> None:
        values = self.__dict__
        values["path"] = path
        for name, field in self.fields.items():
            values[name] = copy.deepcopy(field.default)
        for name, kind in self.categories.items():
            values[name] = kind(f"{path}.{name}" if path else name)

    def _of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unknown(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.categories:
            kind = self.categories[name]
            raise AbeleError(
                f"IPUConfig.{self._of(name)} is a category of attributes, which cannot be assigned to",
                remedy=f"assign to one of {', '.join((*kind.fields, *kind.categories))}",
            )
        if name not in self.fields:
            raise self._unknown(name)
        self.__dict__[name] = _checked(self._of(name), self.fields[name], value)

    def _unknown(self, name: str) -> InvalidOptionError:
        names = (*self.fields, *self.categories)
        close = nearest(name, names)
        return InvalidOptionError(
            f"{name!r} is no attribute of IPUConfig{'.' + self.path if self.path else ''}",
            because=f"there are {', '.join(names)}",
            remedy=f"did you mean {close!r}?" if close else None,
        )

    # --- as data -------------------------------------------------------------------------------------------------

    def _walk(self) -> Iterator[tuple[Category, str]]:
        for name in self.fields:
            yield self, name
        for name in self.categories:
            yield from getattr(self, name)._walk()

    def to_dict(self) -> dict[str, Any]:
        """Every value, by name, categories as dicts; enumerations are their members' names."""
        own = {name: _plain(getattr(self, name)) for name in self.fields}
        return own | {name: getattr(self, name).to_dict() for name in self.categories}

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    def _take(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name in self.categories and isinstance(value, Mapping):
                getattr(self, name)._take(value)
            else:
                setattr(self, name, value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A configuration with the values of :meth:`to_dict`; what is left out has its default.

        Raises:
            InvalidOptionError: An unknown name.
            TypeMismatchError: A value of a wrong type.
        """
        made = cls()
        made._take(values)
        return made

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A configuration from :meth:`to_json`."""
        return cls.from_dict(json.loads(text))

    def get_attribute_metadata(self, path: str) -> AttributeMetadata:
        """Facts about the attribute at a path such as ``matmuls.poplar_options``.

        Raises:
            InvalidOptionError: There is none.
        """
        first, _, rest = path.partition(".")
        if rest and first in self.categories:
            found: AttributeMetadata = getattr(self, first).get_attribute_metadata(rest)
            return found
        if rest or first not in self.fields:
            raise self._unknown(first)
        field = self.fields[first]
        return AttributeMetadata(self._of(first), field.types, field.default, field.doc)

    def changed(self) -> dict[str, Any]:
        """Values that differ from their defaults, by path."""
        return {
            category._of(name): getattr(category, name)
            for category, name in self._walk()
            if getattr(category, name) != category.fields[name].default
        }

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self)(self.path)
        made._take(self.to_dict())
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else copy.copy(value)


def _checked(path: str, field: ConfigField, value: Any) -> Any:
    for kind in field.types:
        if issubclass(kind, Enum):
            if isinstance(value, kind):
                return value
            if isinstance(value, str) and value in kind.__members__:
                return kind[value]
        # In Python a bool is an int; as a count it is a mistake.
        elif isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
        elif kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
    raise TypeMismatchError(
        f"IPUConfig.{path} cannot be {value!r}, a {type(value).__name__}", remedy=f"it takes {field.allowed}"
    )
