"""Advice to the owner of a PyTorch model that does not fit on the tiles."""

from __future__ import annotations

from abele.errors import OutOfMemoryError
from abele.frontends.poptorch.batching import Batching
from abele.machine import System, systems
from abele.numerics import f32
from abele.parallel import Network

DEFAULT_PROPORTION = 0.6
"""Share of a tile's memory that products and convolutions plan with where nothing was chosen."""


def advised(error: OutOfMemoryError, net: Network, batching: Batching) -> OutOfMemoryError:
    """The error with what a PyTorch program can do about it."""
    hints = [*_precision(net), *_batch(net, batching), *_planning(error, batching), *_machine(batching)]
    hints.append("options.Abele.allowOutOfMemory() for a report of the program as it is")
    return OutOfMemoryError(
        error.message, tiles=error.tiles, at=error.at, because=error.because, remedy="\n".join(hints)
    )


def _precision(net: Network) -> list[str]:
    if any(v.dtype == f32 for v in (*net.parameters, *net.inputs)):
        return ["half precision: model.half() and inputs in torch.float16"]
    return []


def _batch(net: Network, batching: Batching) -> list[str]:
    sizes = [v.shape[0] for v in net.inputs if v.shape]
    size = max(sizes, default=1)
    if size == 1:
        return []
    more = "Training.gradientAccumulation" if batching.training else "deviceIterations"
    return [f"a smaller micro-batch than {size}, with options.{more}({2 * batching.micro_batches}) for the same call"]


def _planning(error: OutOfMemoryError, batching: Batching) -> list[str]:
    worst = error.tiles[0] if error.tiles else {}
    if worst.get("temporaries", 0) * 4 < worst.get("available_bytes", 1):
        return []
    share = batching.options.available_memory_proportion.get("IPU0", DEFAULT_PROPORTION)
    return [f'options.setAvailableMemoryProportion({{"IPU0": {share / 2:g}}}) instead of {share:g}']


def _machine(batching: Batching) -> list[str]:
    """The machine whose IPUs have the most memory, if that is more than those of the modelled one."""
    best = max(map(systems.get, systems.names()), key=_ipu_bytes)
    if _ipu_bytes(best) <= _ipu_bytes(batching.options.Abele.target()):
        return []
    return [f"a machine with more memory on an IPU: options.system({best.name!r})"]


def _ipu_bytes(system: System) -> int:
    return system.ipu.num_tiles * system.ipu.tile.total_bytes
