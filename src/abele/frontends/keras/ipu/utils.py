"""``ipu.utils``: functions from before ``IPUConfig``'s methods, and the seed."""

from __future__ import annotations

from typing import Any

from abele.frontends.keras.ipu.config import configure_ipu_system, get_ipu_config, reset_ipu_configuration
from abele.frontends.keras.private import keras

__all__ = [
    "configure_ipu_system",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_configuration",
    "reset_ipu_seed",
]


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Begin random numbers anew; layers that are made from now on draw by it.

    Args:
        seed: The seed.
        device: Not used.
        cpu_device: Not used.
        experimental_identical_replicas: Not used: replicas draw alike.
    """
    keras.utils.set_random_seed(seed)


def get_num_of_ipus_in_device(ipu_device: str = "/device:IPU:0", device: str = "cpu") -> int:
    """IPUs that were asked for."""
    return get_ipu_config().num_ipus


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Nothing: the host initialises variables."""
