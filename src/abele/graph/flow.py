"""Flow: how the steps inside a program node follow one another.

Every room that walks a program asks this and not for the class of a node: what a loop reads before it writes, which way
a debugger goes next, which branch has which title, what becomes a block of the lowered program. A new kind of loop or
branch is one more node that gives one of these four.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abele.graph.program import Program
    from abele.graph.tensor import Tensor


@dataclass(frozen=True, slots=True)
class InOrder:
    """Steps one after the other.

    Attributes:
        steps: The steps; none in a step that does something itself.
    """

    steps: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A body a fixed number of times.

    Attributes:
        count: Number of rounds.
        body: Program of one round.
    """

    count: int
    body: Program


@dataclass(frozen=True, slots=True)
class While:
    """Rounds that a predicate ends; a program computes it before each.

    Attributes:
        condition: Program that runs before each decision.
        predicate: Scalar that is tested.
        value: The truth value of the predicate for which the loop goes on.
        body: Program of one round.
    """

    condition: Program
    predicate: Tensor
    value: bool
    body: Program


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several ways, by the number in a scalar.

    Attributes:
        selector: Scalar that holds the number.
        ways: The ways.
        titles: Title of each, as in ``then``, ``case 3``.
        pick: Gives the way of a number; None where the user said that it cannot come up.
    """

    selector: Tensor
    ways: tuple[Program, ...]
    titles: tuple[str, ...]
    pick: Callable[[int], int | None]


Flow = InOrder | Rounds | While | OneOf
