"""A program of the table: a step from state to state, and the batches that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Program:
    """A function that is called again and again.

    Attributes:
        step: ``step(state, *batch)`` gives the new state and a result.
        state: A tree of arrays that is kept from call to call.
        batches: Arguments of the calls; as many as a test makes.
        rtol: Largest relative difference from JAX on the CPU, of the largest number of a leaf.
    """

    step: Callable[..., tuple[Any, Any]]
    state: Any
    batches: tuple[tuple[Any, ...], ...]
    rtol: float = 2e-5
