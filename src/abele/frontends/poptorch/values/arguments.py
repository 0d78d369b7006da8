"""Arguments and results of the user's own classes: parsers that take their tensors out and put them in again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

from abele.frontends.poptorch.errors import Error


class ICustomArgParser:
    """Parser for arguments of a class: subclass it, and register an instance for the class."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """The tensors of an object, in the order in which :meth:`reconstruct` takes them."""
        raise NotImplementedError(f"{type(self).__name__} does not define yieldTensors")

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """An object like ``original_structure`` with other tensors."""
        raise NotImplementedError(f"{type(self).__name__} does not define reconstruct")


_PARSERS: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, parser: ICustomArgParser | None) -> None:
    """Take objects of a class as arguments and results of models; None to take them no longer.

    Raises:
        Error: The parser is none.
    """
    if parser is not None and not isinstance(parser, ICustomArgParser):
        raise Error("arg_parser must inherit from ICustomArgParser")
    if arg_type in _PARSERS:
        del _PARSERS[arg_type]
        pytree._deregister_pytree_node(arg_type)
    if parser is not None:
        _PARSERS[arg_type] = parser
        pytree.register_pytree_node(
            arg_type,
            lambda struct: (list(parser.yieldTensors(struct)), struct),
            lambda leaves, struct: parser.reconstruct(struct, iter(leaves)),
            serialized_type_name=f"{arg_type.__module__}.{arg_type.__qualname__}.{id(arg_type)}",
            flatten_with_keys_fn=lambda struct: (
                [(pytree.SequenceKey(i), tensor) for i, tensor in enumerate(parser.yieldTensors(struct))],
                struct,
            ),
        )


def parser_of(value: object) -> ICustomArgParser | None:
    """The parser of a value's class, or of the nearest class above it that has one."""
    return next((_PARSERS[base] for base in type(value).__mro__ if base in _PARSERS), None) if _PARSERS else None
