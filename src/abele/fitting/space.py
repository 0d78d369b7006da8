"""The space: what a search for the best way to spread a model goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from abele.counts import is_whole
from abele.errors import FittingError, InvalidOptionError
from abele.fitting.plan import Recomputation, StatePlace
from abele.machine import System
from abele.network import Group, Network, Split
from abele.session import Settings
from abele.words import counted

PROPORTIONS = (None, 0.25, 0.15)
"""Shares of a tile's memory that products plan with, most first; None is the libraries' own."""


@dataclass(frozen=True)
class Model:
    """A model for one size of the micro-batch.

    Attributes:
        net: The network before any pass.
        groups: Optimisers and the parameters that they update; None for inference.
        splits: Splits of the parameters of which replicas of a group have parts, by name.
    """

    net: Network
    groups: tuple[Group, ...] | None
    splits: tuple[tuple[str, Split], ...] = ()


@dataclass(frozen=True, kw_only=True)
class FitSpace:
    """Plans to search.

    Attributes:
        system: The machine.
        batch: Samples of an update; None for any.
        micro_batches: Sizes of the micro-batch, ascending.
        first: The size to begin with, from which others are tried while that pays; None to try all.
        proportions: Shares of a tile's memory that products plan with, most first.
        recompute: Choices of activations that stages may compute again.
        states: Places for the optimiser's state, the nearest first.
        turns: True to try pipelines in which forward and backward stages take turns, where others do not fit.
        narrow_stash: True to try 8-bit floats for activations on their way, where nothing fits else; they round what
            the backward pass reads.
        away: True to try activations that wait in streaming memory, where others do not fit.
        phases: True to try phases on one IPU, whose tensors come from streaming memory, where no pipeline fits.
        io_tiles: Numbers of tiles of each IPU that load and send for the host while the others compute; see
            :class:`~abele.network.Schedule`.
        settings: Settings with which networks are compiled.
        starts: Module paths at which a stage may begin; None where it may begin anywhere.
        group_sizes: Numbers of replicas that compute a model together (tensor parallelism); with 1 each is a model.

    Raises:
        InvalidOptionError: IO tiles that leave none to compute, shares of memory that are none, groups that the machine
            has no IPUs for or that do not divide them, no machine to try, or no size of the micro-batch.
    """

    system: System
    batch: int | None = None
    micro_batches: tuple[int, ...]
    first: int | None = None
    proportions: tuple[float | None, ...] = PROPORTIONS
    recompute: tuple[Recomputation, ...] = tuple(Recomputation)
    states: tuple[StatePlace, ...] = tuple(StatePlace)
    turns: bool = True
    narrow_stash: bool = True
    away: bool = True
    phases: bool = True
    io_tiles: tuple[int, ...] = (0,)
    settings: Settings = field(default_factory=Settings)
    starts: frozenset[str] | None = None
    group_sizes: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        tiles = self.system.ipu.num_tiles
        for name in ("micro_batches", "proportions", "recompute", "states", "io_tiles", "group_sizes"):
            if not getattr(self, name):
                raise InvalidOptionError(f"a search needs something to try, and {name} is empty")
        for share in self.proportions:
            if share is not None and not 0 < share <= 1:
                raise InvalidOptionError(
                    f"products cannot plan with {share:g} of a tile's memory",
                    remedy="proportions above 0, up to 1; None for the libraries' own",
                )
        for count in self.io_tiles:
            if count < 0:
                raise InvalidOptionError(f"an IPU cannot have {count} IO tiles")
            if count >= tiles:
                raise InvalidOptionError(
                    f"{count} IO tiles leave none to compute: an IPU of {self.system.name} has {tiles} tiles",
                    remedy="32 IO tiles are enough for most programs",
                )
        self._check_groups()

    def _check_groups(self) -> None:
        ipus = self.system.num_ipus
        sizes = [n for n in range(1, ipus + 1) if ipus % n == 0]
        for size in self.group_sizes:
            if size not in sizes:
                raise InvalidOptionError(
                    f"groups of {counted(size, 'replica')} cannot share {self.system.name}",
                    because=f"a replica has an IPU at least, and the machine has {counted(ipus, 'IPU')}",
                    remedy=f"groups of {', '.join(map(str, sizes))}",
                )

    def replicas(self, ipus: int, group: int) -> int:
        """Replicas of so many IPUs that the machine has room for, in whole groups; 0 where not one group fits."""
        return self.system.num_ipus // (ipus * group) * group

    def computing(self, io_tiles: int) -> System:
        """The machine without IO tiles, of which each IPU has so many."""
        if not io_tiles:
            return self.system
        return self.system.evolve(ipu={"num_tiles": self.system.ipu.num_tiles - io_tiles})

    @property
    def ipus(self) -> tuple[int, ...]:
        """Numbers of IPUs to a replica: powers of two."""
        return tuple(1 << n for n in range(self.system.num_ipus.bit_length()) if 1 << n <= self.system.num_ipus)

    def accumulation(self, size: int, models: int) -> int | None:
        """Micro-batches of one model that make the batch; None where it does not divide, 0 where it is free."""
        if self.batch is None:
            return 0
        whole, rest = divmod(self.batch, size * models)
        return whole if whole and not rest else None

    def check_batch(self) -> None:
        """Raise unless some micro-batch and number of replicas divide the batch.

        Raises:
            FittingError: None does.
        """
        if self.batch is None:
            return
        counts = [self.replicas(n, group) // group for n in self.ipus for group in self.group_sizes]
        sizes = [(m, models) for m in self.micro_batches for models in counts if models]
        if all(self.batch % (m * r) for m, r in sizes):
            tried = ", ".join(str(m) for m in self.micro_batches)
            fewest = min(m * r for m, r in sizes)
            raise FittingError(
                f"no division of a batch of {self.batch:,} is left to try",
                because=f"micro-batches of {tried} on {', '.join(str(r) for r in sorted({r for _, r in sizes}))} "
                "replicas do not divide it",
                remedy=f"a batch that is a multiple of {fewest}, or other micro-batches",
            )


LARGEST = 6
"""Largest number of times that the size of a micro-batch to begin with is doubled or halved."""


def sizes_around(own: int, batch: int | None) -> tuple[int, ...]:
    """A size of the micro-batch with its halves and doubles, those that divide a fixed batch: of 4 are 1, 2, 4, 8, …"""
    halves = [own >> n for n in range(1, LARGEST + 1) if own % (1 << n) == 0]
    found = [*reversed(halves), own, *(own << n for n in range(1, LARGEST + 1))]
    return tuple(size for size in found if batch is None or batch % size == 0) or (own,)


def check_counts(batch: int | None, micro_batches: Sequence[int] | None, check: int) -> None:
    """Raise unless the numbers of a search are numbers of samples and plans.

    Raises:
        InvalidOptionError: One is not.
    """
    counts = [("batch", batch)] if batch is not None else []
    counts += [("micro_batches", size) for size in micro_batches or ()]
    for name, count in counts:
        if not is_whole(count) or count < 1:
            raise InvalidOptionError(f"fit: {name} takes positive whole numbers, got {count!r}")
    if micro_batches is not None and not micro_batches:
        raise InvalidOptionError("fit: micro_batches is empty", remedy="leave it out, or name a size")
    if not is_whole(check) or check < 0:
        raise InvalidOptionError(f"fit: check is a number of plans, got {check!r}")
