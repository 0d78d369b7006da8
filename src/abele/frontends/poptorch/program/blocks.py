"""Blocks: named parts of a model, which strategies put on stages and IPUs.

While a model is recorded, a block that begins leaves a note on the calls that follow: its number in the order in which
blocks begin (:mod:`.notes`).
"""

from __future__ import annotations

import builtins
import contextvars
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.fx import traceback

from abele.frontends.poptorch.errors import CheckError, Error

# Notes on recorded nodes: what PyTorch's tracer writes into the metadata of each call that it meets.
#
# A note holds inside a ``with``; a lasting one from where it is made until it is made anew, also where that is inside
# of a ``with`` that ends before.

BLOCK = "abele_block"
"""Under this name a node's notes have the number of the block that it is in, or one of the two below."""

OUTSIDE = -1
"""Number of nodes after the end of a block, in none."""

BEFORE = -2
"""Number of nodes before the first block."""

_lasting: dict[str, Any] = {}


@contextmanager
def annotate(notes: dict[str, Any]) -> Iterator[None]:
    """Calls that are recorded inside have ``notes`` in their metadata; nothing where PyTorch cannot do that yet."""
    context: Any = getattr(traceback, "annotate", None)
    if context is None:
        yield
        return
    try:
        with context(notes):
            yield
    finally:
        _renew()


@contextmanager
def keeping(name: str, first: object) -> Iterator[None]:
    """Let there be a lasting note, ``first`` for a start; see :func:`keep`."""
    keep(name, first)
    try:
        yield
    finally:
        del _lasting[name]
        _current()["custom"] = {key: note for key, note in _current().get("custom", {}).items() if key != name}


def keep(name: str, note: object) -> None:
    """Make a lasting note anew."""
    _lasting[name] = note
    _renew()


def _renew() -> None:
    if _lasting:
        _current()["custom"] = {**_current().get("custom", {}), **_lasting}


def _current() -> dict[str, Any]:
    """The metadata that the next recorded call gets."""
    module: Any = traceback
    found: dict[str, Any] = module.current_meta
    return found


Callee = TypeVar("Callee", bound=Callable[..., Any])

BlockName = str | int
"""Names of blocks as users write them."""

_PACKAGES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


@dataclass(frozen=True)
class BegunBlock:
    """A block that began while a model was recorded.

    Attributes:
        name: Its name.
        ipu: The IPU that it asks for, if any.
        location: The user's source line where it began.
    """

    name: str
    ipu: int | None
    location: str = ""

    def __str__(self) -> str:
        return repr(self.name)


class BlockRecord:
    """The blocks that a model goes through while it is recorded.

    Attributes:
        begun: In the order in which they first begin.
        again: Numbers of blocks that begin once more after another one, and where in the user's source.
        current: Number of the block that goes on, or :data:`BEFORE`, :data:`OUTSIDE`.
    """

    def __init__(self) -> None:
        self.begun: list[BegunBlock] = []
        self.again: dict[int, str] = {}
        self._numbers: dict[object, int] = {}
        self.current = BEFORE
        self._around: list[int] = []

    def begin(self, user_id: str | None, ipu: int | None, hook: object = None) -> None:
        """Begin a block, which goes on until another begins. Blocks of one name are one block.

        Args:
            user_id: Its name; with None the block is that of ``hook``, and is numbered.
            ipu: The IPU that it asks for.
            hook: Hook that begins it.

        Raises:
            Error: A block of that name is for another IPU.
        """
        key = hook if user_id is None else user_id
        if key not in self._numbers:
            self._numbers[key] = len(self.begun)
            name = self._free_number() if user_id is None else user_id
            self.begun.append(BegunBlock(name, ipu, user_line()))
        number = self._numbers[key]
        before = self.begun[number]
        if before.ipu != ipu:
            raise Error(
                f"Block {before} is used twice, for IPU {before.ipu} and for IPU {ipu}",
                at=user_line() or None,
                because=f"it began at {before.location}" if before.location else None,
                remedy="blocks of one name are one block: give each part of the model a name of its own",
            )
        if number not in (self.current, len(self.begun) - 1):
            self.again.setdefault(number, user_line())
        self._go_on_with(number)

    def _free_number(self) -> str:
        names = {block.name for block in self.begun}
        return next(str(n) for n in range(len(names), 2 * len(names) + 1) if str(n) not in names)

    def enter(self, user_id: str | None, ipu: int | None) -> None:
        """Begin a block, until :meth:`leave`, through blocks that begin inside."""
        self.begin(user_id, ipu)
        self._around.append(self.current)

    def leave(self) -> None:
        """End the block that was entered last; that of a context around goes on."""
        self._around.pop()
        self._go_on_with(self._around[-1] if self._around else OUTSIDE)

    def _go_on_with(self, number: int) -> None:
        self.current = number
        keep(BLOCK, number)


@contextmanager
def beside_their_inputs() -> Iterator[None]:
    """Calls that are recorded inside are in no block of their own: each is where the last of what it reads is."""
    record = _RECORD.get()
    if record is None:
        yield
        return
    keep(BLOCK, None)
    try:
        yield
    finally:
        keep(BLOCK, record.current)


_RECORD: contextvars.ContextVar[BlockRecord | None] = contextvars.ContextVar("poptorch_blocks", default=None)


@contextmanager
def recording_blocks() -> Iterator[BlockRecord]:
    """Record of the blocks that begin inside; calls that are recorded inside are noted with theirs."""
    record = BlockRecord()
    token = _RECORD.set(record)
    try:
        with keeping(BLOCK, BEFORE):
            yield record
    finally:
        _RECORD.reset(token)


def _begin(user_id: str | None, ipu_id: int | None, hook: object = None) -> None:
    record = _RECORD.get()
    if record is not None:
        record.begin(user_id, ipu_id, hook)


def user_line() -> str:
    """The innermost source line that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGES):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # None where there is no frame around
    return ""


class Block(torch.nn.Module):
    """A context whose operations make a block: ``with poptorch.Block("encoder", ipu_id=0): ...``.

    What comes after the context is in the block of a context around, or in none until another begins.

    Args:
        user_id: The block's name; numbered when left out.
        ipu_id: The IPU that it belongs on.
    """

    _next_auto_id = 0

    @staticmethod
    def useAutoId() -> None:
        """Number the blocks that have no name from 0 on, where they are made."""
        Block._next_auto_id = 0

    def __init__(self, user_id: BlockName | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        name, self._ipu_id = _checked_ids(user_id, ipu_id)
        self._user_id = _numbered(name)

    def __enter__(self) -> None:
        record = _RECORD.get()
        if record is not None:
            record.enter(self._user_id, self._ipu_id)

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        """The block ends."""
        record = _RECORD.get()
        if record is not None:
            record.leave()

    @staticmethod
    def start(user_id: BlockName | None = None, ipu_id: int | None = None) -> None:
        """Begin a block that goes on until another begins."""
        name, ipu = _checked_ids(user_id, ipu_id)
        _begin(_numbered(name), ipu)


def _numbered(user_id: str | None) -> str:
    if user_id is not None:
        return user_id
    number, Block._next_auto_id = Block._next_auto_id, Block._next_auto_id + 1
    return str(number)


def block_name(user_id: object) -> str:
    """The name of a block as text: 1 and "1" name the same block.

    Raises:
        CheckError: It is neither text nor a whole number from 0 on.
    """
    if isinstance(user_id, str):
        return user_id
    if type(user_id) is not int or user_id < 0:
        raise CheckError(f"the name of a block is text or a whole number from 0 on, got {user_id!r}")
    return str(user_id)


def _checked_ids(user_id: object, ipu_id: Any) -> tuple[str | None, int | None]:
    if ipu_id is not None and (type(ipu_id) is not int or ipu_id < 0):
        raise CheckError(f"the IPU of a block is a whole number from 0 on, got {ipu_id!r}")
    return None if user_id is None else block_name(user_id), ipu_id


class BlockHook:
    """A hook before ``forward`` that begins a block."""

    def __init__(self, module: torch.nn.Module, user_id: str | None, ipu_id: int | None) -> None:
        _show_blocks()
        self._user_id, self._ipu_id = user_id, ipu_id
        self._handle = module.register_forward_pre_hook(self)

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        """Begin the block."""
        _begin(self._user_id, self._ipu_id, self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let a model that was loaded show its blocks."""
        _show_blocks()
        self.__dict__ = state

    def remove(self) -> None:
        """Take the hook off its module."""
        self._handle.remove()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


def BeginBlock(layer_to_call: Any, user_id: BlockName | None = None, ipu_id: int | None = None) -> Any:
    """Begin a block before a layer, or a function, is called; it goes on until another begins.

    Args:
        layer_to_call: The layer, which is returned; or a function, which is returned wrapped.
        user_id: The block's name; numbered when left out.
        ipu_id: The IPU that it belongs on.

    Raises:
        Error: The layer begins a block already, or is neither a layer nor a function.
    """
    name, ipu = _checked_ids(user_id, ipu_id)
    if not isinstance(layer_to_call, torch.nn.Module):
        if isinstance(layer_to_call, type) or not callable(layer_to_call):
            raise Error("module is not an instance of torch.nn.Module or function.")
        return BlockFunction(name, ipu)(layer_to_call)
    if _block_hooks(layer_to_call):
        raise Error("module has already been assigned to a block.")
    BlockHook(layer_to_call, name, ipu)
    return layer_to_call


def BlockFunction(user_id: BlockName | None = None, ipu_id: int | None = None) -> Callable[[Callee], Callee]:
    """A decorator of functions that begin a block when they are called.

    Raises:
        Error: The decorated object is no function.
    """
    name, ipu = _checked_ids(user_id, ipu_id)

    def decorate(function: Callee) -> Callee:
        if isinstance(function, type) or not callable(function):
            raise Error("module is not an instance of torch.nn.Module or function.")
        return _BlockCallable(function, name, ipu)  # type: ignore[return-value]  # it has the function's signature

    return decorate


class _BlockCallable:
    """A function that begins a block when it is called; a method of classes that have it for an attribute.

    It is saved and copied with the function. One that took its function's name, as a decorator does, is saved by name.
    """

    def __init__(self, function: Callable[..., Any], user_id: str | None, ipu_id: int | None) -> None:
        functools.update_wrapper(self, function)
        self._function, self._user_id, self._ipu_id = function, user_id, ipu_id

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Begin the block, and call the function."""
        _begin(self._user_id, self._ipu_id, self)
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        name: str = getattr(self, "__qualname__", "")
        try:
            found = operator.attrgetter(name)(sys.modules[self.__module__])
        except (AttributeError, KeyError):
            found = None
        return name if found is self else (_BlockCallable, (self._function, self._user_id, self._ipu_id))


def removeBlocks(module: torch.nn.Module) -> None:
    """Take the blocks off a module and all below it.

    Raises:
        CheckError: It is no module.
    """
    if not isinstance(module, torch.nn.Module):
        raise CheckError(f"removeBlocks takes a torch.nn.Module, got {module!r}")
    for part in module.modules():
        for hook in _block_hooks(part):
            hook.remove()


def _block_hooks(module: torch.nn.Module) -> list[BlockHook]:
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, BlockHook)]


_plain_repr = torch.nn.Module.__repr__


def module_repr(module: torch.nn.Module) -> str:
    """A module as text, with the blocks that begin at it and at its parts."""
    text = _plain_repr(module)
    hooks = _block_hooks(module)
    return f"{text}: {hooks[0]!r}" if hooks else text


def _show_blocks() -> None:
    """Let modules show their blocks from now on; PyTorch's own text of a module asks for that of its parts."""
    torch.nn.Module.__repr__ = module_repr  # type: ignore[method-assign]  # as PopTorch does


def print_with_blocks(*values: object, **more: Any) -> None:
    """Print as Python's own function does, modules with their blocks."""
    builtins.print(*(module_repr(v) if isinstance(v, torch.nn.Module) else v for v in values), **more)
