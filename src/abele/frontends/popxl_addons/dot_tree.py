"""Trees of named things: ``tree.layer.weight`` is ``tree["layer.weight"]``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TextIO, TypeVar

from abele.errors import nearest
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl_addons.errors import TreeNameError

T = TypeVar("T")
S = TypeVar("S")

_MISSING: Any = object()


class DotTree(Generic[T]):
    """Names for things, in a tree.

    Names of leaves are the words on the way, with dots between. Flat listings are sorted by name, so that two trees of
    the same names list alike whatever the order in which they were made. A name that is also one of a method is read
    by ``tree["values"]``. Numbers are names too: ``tree.layer[0]`` is ``tree["layer.0"]``.

    ```python
    tree = DotTree(bias=1)
    tree.insert("layer.weight", 2)
    assert tree.layer.weight == 2
    assert tree.to_dict() == {"bias": 1, "layer.weight": 2}
    ```
    """

    _items: dict[str, Any]

    def __init__(self, **items: Any) -> None:
        object.__setattr__(self, "_items", {})
        for name, value in items.items():
            self.insert(name, value)

    # --- making

    @classmethod
    def from_dict(cls, items: Mapping[str, Any]) -> Self:
        """The tree of a dictionary: its names have dots, or its values are dictionaries."""
        made = cls()
        for name, value in items.items():
            made.insert(name, cls.from_dict(value) if isinstance(value, Mapping) else value)
        return made

    @classmethod
    def pack(cls, names: Iterable[str], values: Iterable[T]) -> Self:
        """The tree of names and as many values."""
        listed, given = list(names), list(values)
        if len(listed) != len(given):
            raise GraphArgumentError(f"a tree of {len(listed)} names takes as many values, not {len(given)}")
        return cls.from_dict(dict(zip(listed, given, strict=True)))

    def unpack(self) -> tuple[list[str], list[T]]:
        """Names of all leaves, and the leaves: what :meth:`pack` takes."""
        flat = self.to_dict()
        return list(flat), list(flat.values())

    def copy(self) -> Self:
        """A tree of the same leaves; what is inserted here is not there."""
        made = type(self)()
        for name, value in self._items.items():
            made._items[name] = value.copy() if isinstance(value, DotTree) else value
        return made

    # --- changing

    def insert(self, name: str | int, value: Any, overwrite: bool = False) -> Self:
        """Give something a name; returns the tree.

        Args:
            name: Name, which may have dots: trees on the way are made.
            value: A leaf or a tree.
            overwrite: Replace what has the name.

        Raises:
            TreeNameError: The name is taken, or one on the way is a leaf's.
        """
        first, _, rest = _checked(name).partition(".")
        there = self._items.get(first, _MISSING)
        if rest:
            if there is _MISSING:
                there = self._items[first] = type(self)()
            elif not isinstance(there, DotTree):
                raise TreeNameError(f"{name!r} goes through {first!r}, which is a leaf: {there!r}")
            there.insert(rest, value, overwrite)
            return self
        if there is not _MISSING and not overwrite:
            raise TreeNameError(f"The name {name!r} is taken already", remedy="insert(…, overwrite=True)")
        self._items[first] = value
        return self

    def update(self, other: DotTree[T] | Mapping[str, Any]) -> Self:
        """Take over all leaves of another tree; names that are there already get its values."""
        flat = other if isinstance(other, DotTree) else type(self).from_dict(other)
        for name, value in flat.to_dict().items():
            self.insert(name, value, overwrite=True)
        return self

    def pop(self, name: str | int, default: Any = _MISSING) -> Any:
        """A leaf or tree, which is taken out."""
        name = _checked(name)
        front, _, last = name.rpartition(".")
        holder = self.get(front, None) if front else self
        if not isinstance(holder, DotTree) or last not in holder._items:
            if default is _MISSING:
                raise self._no(name)
            return default
        return holder._items.pop(last)

    # --- reading

    def get(self, name: str | int, default: Any = _MISSING) -> Any:
        """The leaf or tree of a name.

        Raises:
            TreeNameError: There is none, and no ``default``.
        """
        here: Any = self
        name = _checked(name)
        for word in name.split("."):
            if not isinstance(here, DotTree) or word not in here._items:
                if default is _MISSING:
                    raise self._no(name)
                return default
            here = here._items[word]
        return here

    def keys(self) -> list[str]:
        """Names of this level."""
        return list(self._items)

    def values(self) -> list[Any]:
        """Leaves and trees of this level."""
        return list(self._items.values())

    def items(self) -> list[tuple[str, Any]]:
        """Names of this level with their leaves and trees."""
        return list(self._items.items())

    def keys_flat(self) -> list[str]:
        """Names of all leaves, sorted."""
        return list(self.to_dict())

    def values_flat(self) -> list[T]:
        """All leaves, sorted by name."""
        return list(self.to_dict().values())

    def items_flat(self) -> list[tuple[str, T]]:
        """All leaves with their names, sorted."""
        return list(self.to_dict().items())

    def to_dict(self) -> dict[str, T]:
        """All leaves by name, sorted."""
        return dict(sorted(self._walk()))

    def _walk(self, prefix: str = "") -> Iterator[tuple[str, T]]:
        for name, value in self._items.items():
            if isinstance(value, DotTree):
                yield from value._walk(f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value

    def filter_keys(self, names: Iterable[str | int] | str | int) -> Self:
        """The tree of some leaves, named by themselves or by a tree that they are in."""
        made = type(self)()
        for name in [names] if isinstance(names, str | int) else names:
            value = self.get(name)
            made.insert(name, value.copy() if isinstance(value, DotTree) else value, overwrite=True)
        return made

    def map(self, fn: Callable[[T], S]) -> Any:
        """The tree of the same names whose leaves a function makes of these."""
        return type(self).from_dict({name: fn(value) for name, value in self.to_dict().items()})

    def to_mapping(self, other: DotTree[S]) -> dict[T, S]:
        """For each leaf the other tree's of the same name, where that has one."""
        theirs = other.to_dict()
        return {value: theirs[name] for name, value in self.to_dict().items() if name in theirs}

    def print(self, file: TextIO | None = None) -> None:
        """Print the tree, a leaf per line."""
        print("\n".join(f"{name}: {value!r}" for name, value in self.to_dict().items()), file=file)

    # --- Python

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_items":
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # Python's own, such as the class of ``DotTree[int]()``.
            object.__setattr__(self, name, value)
            return
        self.insert(name, value, overwrite=True)

    def __delattr__(self, name: str) -> None:
        self.pop(name)

    def __getitem__(self, name: str | int) -> Any:
        return self.get(name)

    def __setitem__(self, name: str | int, value: Any) -> None:
        self.insert(name, value, overwrite=True)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str | int) and name != "" and self.get(name, _ABSENT) is not _ABSENT

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __bool__(self) -> bool:
        return bool(self._items)

    def __dir__(self) -> Sequence[str]:
        return [*super().__dir__(), *self._items]

    def __getstate__(self) -> dict[str, Any]:
        return self._items

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "_items", state)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, DotTree) and self._items == other._items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self._items.items())
        return f"{type(self).__name__}({inner})"

    def _no(self, name: str) -> TreeNameError:
        near = nearest(name, self.keys_flat())
        return TreeNameError(
            f"The {type(self).__name__} has no {name!r}",
            because=f"it has {', '.join(self.keys_flat()[:12]) or 'nothing'}",
            remedy=f"{near}?" if near else None,
        )


_ABSENT: Any = object()


def _checked(name: str | int) -> str:
    if isinstance(name, int) and not isinstance(name, bool) and name >= 0:
        return str(name)
    if not isinstance(name, str):
        raise GraphTypeError(f"a name in a tree is a str or a number from 0, not {name!r}")
    if not all(name.split(".")):
        raise GraphArgumentError(f"{name!r} is no name: words with dots between are")
    return name


__all__ = ["DotTree"]
