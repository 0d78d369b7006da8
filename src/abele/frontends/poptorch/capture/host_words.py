"""Operators of PopTorch's own, as PyTorch records them: their types, and their meaning where no device is.

``poptorch.for_loop`` and ``poptorch.cond`` record their bodies where they stand, every node with a note of the body's
number; the operator after them says which body it runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from abele.frontends.poptorch.program.blocks import annotate

BODY = "abele_body"
"""Under this name a node's notes have the numbers of the bodies that it is in, the outermost first."""

_numbers = itertools.count()
_open: list[int] = []


@contextmanager
def body() -> Iterator[int]:
    """Note on the nodes recorded inside that they are of a new body; gives its number."""
    number = next(_numbers)
    _open.append(number)
    try:
        with annotate({BODY: tuple(_open)}):
            yield number
    finally:
        _open.pop()


@torch.library.custom_op("abele::enter", mutates_args=())
def enter(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Arguments of a body, as tensors of their own."""
    return [t.clone() for t in inputs]


@enter.register_fake
def _(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in inputs]


@torch.library.custom_op("abele::for_loop", mutates_args=())
def for_loop(
    number: int,
    count: int,
    inputs: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Values of ``parameters`` after ``count`` trips of a body that makes ``results`` of them. Buffers that are
    ``before`` it at first are ``after`` it in the end.
    """
    return [t.clone() for t in results]


@for_loop.register_fake
def _(
    number: int,
    count: int,
    inputs: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in results]


@torch.library.custom_op("abele::branch", mutates_args=())
def branch(
    numbers: Sequence[int],
    condition: torch.Tensor,
    then: Sequence[torch.Tensor],
    otherwise: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    between: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """The results of one of two bodies, with buffers before them, between them and after them."""
    return [t.clone() for t in (then if bool(condition) else otherwise)]


@branch.register_fake
def _(
    numbers: Sequence[int],
    condition: torch.Tensor,
    then: Sequence[torch.Tensor],
    otherwise: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    between: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in then]


@torch.library.custom_op("abele::keep", mutates_args=())
def keep(value: torch.Tensor) -> torch.Tensor:
    """A value that is kept as it is."""
    return value.clone()


@torch.library.custom_op("abele::print_tensor", mutates_args=())
def print_tensor(value: torch.Tensor, title: str, gradient: bool, layout: str) -> torch.Tensor:
    """A value that is printed whenever it is computed."""
    return value.clone()


@torch.library.custom_op("abele::plan_with", mutates_args=())
def plan_with(value: torch.Tensor, proportion: float) -> torch.Tensor:
    """A value whose product plans with a share of a tile's memory."""
    return value.clone()


@plan_with.register_fake
def _(value: torch.Tensor, proportion: float) -> torch.Tensor:
    return torch.empty_like(value)


@keep.register_fake
def _(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


@print_tensor.register_fake
def _(value: torch.Tensor, title: str, gradient: bool, layout: str) -> torch.Tensor:
    return torch.empty_like(value)


@torch.library.custom_op("abele::ctc_decode", mutates_args=())
def ctc_decode(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The most likely label sequences; the device has it."""
    raise NotImplementedError("the beam search runs on the device")


@ctc_decode.register_fake
def _(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    steps, batch, _ = probs.shape
    paths = (batch, top_paths)
    return (
        probs.new_empty(paths),
        lengths.new_empty(paths, dtype=torch.int32),
        lengths.new_empty((*paths, steps), dtype=torch.int32),
    )
