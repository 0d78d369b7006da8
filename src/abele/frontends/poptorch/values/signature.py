"""Signature that a model was compiled for: structure, types and shapes of its arguments, and checks of later calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.errors import ArgumentError, CheckError, Error
from abele.frontends.poptorch.values import structures

MISMATCH = (
    "This error occurred because the inputs passed at runtime don't match the inputs used to compile the model. "
    "To recompile the model for these inputs, first call model.destroy()."
)


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of a tensor argument."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class LevelSpec:
    """A class that is made of tensors: its parts with their names."""

    kind: type
    names: tuple[Any, ...]
    parts: tuple[Any, ...]


class ForwardSignature:
    """The arguments that a model's ``forward`` takes.

    Args:
        forward: The function that is captured.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.signature = inspect.signature(forward)
        self.compiled: Any = None
        self._warned: set[str] = set()

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments in one form, however they were passed, defaults filled in; tensors contiguous, without gradients.

        Raises:
            CheckError: Too many positional arguments.
            Error: A missing or an unknown one.
        """
        parameters = self.signature.parameters
        kinds = inspect.Parameter
        takes_any = any(p.kind == kinds.VAR_POSITIONAL for p in parameters.values())
        positional = [
            p.name for p in parameters.values() if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        if not takes_any and len(args) > len(positional):
            raise CheckError(
                f"Too many arguments provided: expected {positional} ({len(positional)}) but got {len(args)}"
            )
        takes_keywords = any(p.kind == kinds.VAR_KEYWORD for p in parameters.values())
        for name in kwargs:
            if name not in parameters and not takes_keywords:
                raise Error(f"{name} is not a valid parameter.", remedy=", ".join(parameters))
            if name in positional[: len(args)]:
                raise Error(f"{name} is given both by position and by name")
        for name in self._missing(positional[len(args) :], kwargs):
            raise Error(f"Mandatory parameter {name} missing")
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        bound.arguments.update({name: self._plain(name, value) for name, value in bound.arguments.items()})
        return bound.args, bound.kwargs

    def _plain(self, name: str, value: Any) -> Any:
        """An argument whose tensors take no gradient and are contiguous."""
        tensors = [leaf for leaf in structures.leaves(value) if isinstance(leaf, torch.Tensor)]
        gradient = any(tensor.requires_grad for tensor in tensors)
        if gradient:
            self._warn_once(
                f"Input tensor has requires_grad=True set. This tensor will be detached because backward pass via "
                f"inputs is not supported. (the argument {name})"
            )
        scattered = any(t.layout == torch.strided and not t.is_contiguous() and not t.is_meta for t in tensors)
        if scattered:
            self._warn_once(
                "At least one input tensor is not contiguous: non-contiguous tensors will be converted. "
                f"(the argument {name})"
            )
        return structures.map_tensors(torch.Tensor.detach, value) if gradient else value

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logs.warn(message, stacklevel=5)

    def _missing(self, positional: list[str], kwargs: Mapping[str, Any]) -> Iterator[str]:
        for name, parameter in self.signature.parameters.items():
            needed = name in positional or parameter.kind == inspect.Parameter.KEYWORD_ONLY
            if needed and name not in kwargs and parameter.default is inspect.Parameter.empty:
                yield name

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Remember these arguments as those compiled for; returns their tensors in order.

        Raises:
            Error: A tensor without elements, or one that is not dense on the host.
            ArgumentError: A NumPy array.
        """
        named = self._named(args, kwargs)
        for name, value in named.items():
            _check_leaves(name, value)
        tensors = [t for t in structures.leaves(named) if isinstance(t, torch.Tensor)]
        for tensor in tensors:
            if tensor.numel() == 0:
                raise Error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)}).")
        self.compiled = {name: _spec(value) for name, value in named.items()}
        return tensors

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The tensors of a later call, in the order of the compiled one.

        Raises:
            Error: They differ in structure, type, shape or value from what was compiled.
        """
        named = self._named(args, kwargs)
        tensors: list[torch.Tensor] = []
        for name, expected in self.compiled.items():
            kind = self.signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_POSITIONAL and len(named[name]) != len(expected) - 1:
                before = len(self.compiled) - 1
                raise _mismatch(
                    f"Number of positional arguments mismatch: expected {before + len(expected) - 1} arguments but got "
                    f"{before + len(named[name])}"
                )
            _match(name, expected, named[name], tensors)
        return tensors

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()  # A call without any other arguments has none of them, and not no such parameter.
        return dict(bound.arguments)


def _check_leaves(name: str, tree: Any) -> None:
    """Raise at what can never be an input; ``name`` is the parameter that it is passed as."""
    for leaf in structures.leaves(tree):
        if isinstance(leaf, np.ndarray):
            raise ArgumentError(
                f"{name} is a NumPy array of shape {list(leaf.shape)}",
                remedy=f"torch.from_numpy({name}) gives a tensor",
            )
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            raise Error(f"{name} is a tensor of layout {leaf.layout}", remedy=f"{name}.to_dense()")
        if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
            raise Error(
                f"{name} is on the device {str(leaf.device)!r}; the host sends inputs from its own memory",
                remedy="make it with device='cpu'" if leaf.is_meta else f"{name}.cpu()",
            )


def _spec(tree: Any) -> Any:
    """The tree with every tensor replaced by its shape and type."""
    if isinstance(tree, torch.Tensor):
        return TensorSpec(tree.shape, tree.dtype)
    if isinstance(tree, dict):
        return {key: _spec(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [type(tree), *map(_spec, tree)]
    level = structures.level_of(tree)
    return tree if level is None else LevelSpec(type(tree), level.names, tuple(map(_spec, level.parts)))


def _match(name: str, expected: Any, got: Any, tensors: list[torch.Tensor]) -> None:
    """Raise where ``got`` differs from ``expected``; append its tensors in order."""
    match expected:
        case TensorSpec():
            _match_tensor(name, expected, got)
            tensors.append(got)
        case dict():
            _match_type(name, dict, got)
            _match_keys(name, expected, got)
            for key, part in expected.items():
                _match(f"{name}[{key!r}]", part, got[key], tensors)
        case [type() as kind, *parts]:
            _match_type(name, kind, got)
            if len(parts) != len(got):
                raise _mismatch(f"Length mismatch for {name}: expected {len(parts)} elements but got {len(got)}")
            for index, (part, value) in enumerate(zip(parts, got, strict=True)):
                _match(f"{name}[{index}]", part, value, tensors)
        case LevelSpec(kind, names, parts):
            _match_type(name, kind, got)
            level = structures.level_of(got)
            assert level is not None
            if len(level.parts) != len(parts):
                raise _mismatch(
                    f"Length mismatch for {name}: expected {len(parts)} elements but got {len(level.parts)}"
                )
            for key, part, value in zip(names, parts, level.parts, strict=True):
                _match(f"{name}.{key}", part, value, tensors)
        case _:
            _match_type(name, type(expected), got)
            if expected != got:
                raise _mismatch(f"Value mismatch for {name}: expected {expected} but got {got}")


def _match_tensor(name: str, expected: TensorSpec, got: Any) -> None:
    if not isinstance(got, torch.Tensor):
        raise _mismatch(f"Type mismatch for {name}: expected {torch.Tensor} but got {type(got)}")
    if got.dtype != expected.dtype:
        raise _mismatch(f"Data type mismatch for {name}: expected {expected.dtype} but got {got.dtype}")
    if got.shape != expected.shape:
        raise _mismatch(f"Shape mismatch for {name}: expected {expected.shape} but got {got.shape}")
    _check_leaves(name, got)


def _match_type(name: str, expected: type, got: Any) -> None:
    if not isinstance(got, expected):
        raise _mismatch(f"Type mismatch for {name}: expected {expected} but got {type(got)}")


def _match_keys(name: str, expected: dict[Any, Any], got: dict[Any, Any]) -> None:
    extra, missing = sorted(map(str, got.keys() - expected.keys())), sorted(map(str, expected.keys() - got.keys()))
    if extra or missing:
        raise _mismatch(
            f"Keys mismatch for {name}:"
            + (f" Unexpected arguments: {', '.join(extra)}." if extra else "")
            + (f" Missing arguments: {', '.join(missing)}." if missing else "")
        )


def _mismatch(message: str) -> Error:
    return Error(message, because=MISMATCH)
