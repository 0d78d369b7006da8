"""Methods of collectives: the rows sent each way round a ring, step by step.

A ring is a list of moves per step, and nothing else differs between methods. Rows are numbered by how far clockwise
their home is from where they lie, so that "send row j that way" is one step for all members of all rings. A *lane* is a
stream of rows that runs round one way. In a reduce-scatter a lane of reach d brings each home what the d members before
it have: the row that is furthest from home starts, and each step brings it one place nearer and adds what lies there.
In an all-gather a lane of reach d sends on what came last, d times. Lanes that share columns must reach n − 1 members
between them; lanes of different columns know nothing of each other.

One lane of reach n − 1 loads the links one way only. Two lanes with half of the columns each load them both ways: half
of the time. Two lanes with all columns that go half way round and meet carry as much over each link, but in half as
many steps, of rows twice as large; where the number of members is even the last step has one lane.
Source: the methods of GCL and of popops' former replicated collectives.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal, NamedTuple, get_args

Method = Literal[
    "clockwise_ring",
    "anticlockwise_ring",
    "bidirectional_ring_pair",
    "meet_in_middle_ring",
    "quad_directional_ring",
]
METHODS: tuple[Method, ...] = get_args(Method)
"""Methods by GCL's names."""


class Lane(NamedTuple):
    """Rows that run round a ring one way.

    Attributes:
        part: Number of its part of the columns.
        way: 1 for clockwise, −1 for anticlockwise.
        reach: Steps that a row travels.
    """

    part: int
    way: int
    reach: int


class Move(NamedTuple):
    """Row that one lane sends in one step.

    Attributes:
        part: Number of its part of the columns.
        way: 1 to the next member clockwise, −1 to the one before.
        sent: Number of the row that is sent.
        received: Number of the row that it replaces, or is added to, where it arrives.
        lane: Number of the lane.
    """

    part: int
    way: int
    sent: int
    received: int
    lane: int


def lanes_of(method: Method, size: int) -> tuple[Lane, ...]:
    """The lanes of a method on rings of ``size`` members."""
    around = size - 1
    match method:
        case "clockwise_ring":
            return (Lane(0, 1, around),)
        case "anticlockwise_ring":
            return (Lane(0, -1, around),)
        case "bidirectional_ring_pair":
            return (Lane(0, 1, around), Lane(1, -1, around))
        case "quad_directional_ring":
            return tuple(Lane(part, 1 - 2 * (part % 2), around) for part in range(4))
        case "meet_in_middle_ring":
            # The lane that goes further comes first, so that two members have one lane.
            return (Lane(0, 1, around - around // 2), Lane(0, -1, around // 2))


def num_parts(lanes: tuple[Lane, ...]) -> int:
    """Parts that the columns are cut into."""
    return 1 + max(lane.part for lane in lanes)


def scatter_steps(lanes: tuple[Lane, ...], size: int) -> list[list[Move]]:
    """The steps of a reduce-scatter; in the end row 0 is complete."""
    return _steps(
        [
            # A row that is j places from home has the members behind it in it already; the next has it j − 1 from home.
            [Move(lane.part, lane.way, lane.way * j % size, lane.way * (j - 1) % size, n) for j in _down(lane.reach)]
            for n, lane in enumerate(lanes)
        ]
    )


def gather_steps(lanes: tuple[Lane, ...], size: int) -> list[list[Move]]:
    """The steps of an all-gather, from row 0; in the end all rows are there."""
    return _steps(
        [
            # What comes from j places behind lies, for the next member, one place further behind.
            [Move(lane.part, lane.way, -lane.way * j % size, -lane.way * (j + 1) % size, n) for j in range(lane.reach)]
            for n, lane in enumerate(lanes)
        ]
    )


def _down(reach: int) -> range:
    return range(reach, 0, -1)


def _steps(by_lane: list[list[Move]]) -> list[list[Move]]:
    return [[move for move in step if move is not None] for step in zip_longest(*by_lane)]
