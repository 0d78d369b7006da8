"""``tf.data.Options``: kept as they are set; none makes a difference to the elements of a dataset."""

from __future__ import annotations

from enum import Enum
from typing import Any

from abele.errors import InvalidOptionError, nearest

_KNOWN: dict[str, tuple[str, ...]] = {
    "": (
        "autotune",
        "deterministic",
        "experimental_deterministic",
        "experimental_distribute",
        "experimental_external_state_policy",
        "experimental_optimization",
        "experimental_slack",
        "experimental_stats",
        "experimental_symbolic_checkpoint",
        "experimental_threading",
        "experimental_warm_start",
        "threading",
    ),
    "autotune": ("cpu_budget", "enabled", "ram_budget", "autotune_algorithm", "initial_parallelism"),
    "experimental_distribute": ("auto_shard_policy", "num_devices"),
    "experimental_optimization": (
        "apply_default_optimizations",
        "autotune",
        "autotune_buffers",
        "autotune_cpu_budget",
        "filter_fusion",
        "filter_parallelization",
        "inject_prefetch",
        "map_and_batch_fusion",
        "map_and_filter_fusion",
        "map_fusion",
        "map_parallelization",
        "noop_elimination",
        "parallel_batch",
        "shuffle_and_repeat_fusion",
    ),
    "threading": ("max_intra_op_parallelism", "private_threadpool_size"),
}
_KNOWN["experimental_threading"] = _KNOWN["threading"]


class DatasetOptions:
    """Options of a dataset as a tree of attributes, None where one is not set.

    Raises:
        InvalidOptionError: An option that TensorFlow does not have is set.
    """

    def __init__(self, category: str = "") -> None:
        object.__setattr__(self, "_category", category)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._check(name)
        found = DatasetOptions(name) if name in _KNOWN else None
        object.__setattr__(self, name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self._check(name)
        object.__setattr__(self, name, value)

    def merge(self, options: DatasetOptions) -> DatasetOptions:
        """These options with what is set in others."""
        merged = DatasetOptions(self._category)
        for name, value in {**vars(self), **vars(options)}.items():
            object.__setattr__(merged, name, value)
        return merged

    def _check(self, name: str) -> None:
        known = _KNOWN[self._category]
        if name not in known:
            close = nearest(name, known)
            raise InvalidOptionError(
                f"tf.data.Options{'.' * bool(self._category)}{self._category} has no {name}",
                remedy=close and f"{close} is there",
            )


class AutoShardPolicy(Enum):
    """Policy of sharing a dataset among workers; here programs do so with ``shard``."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3
