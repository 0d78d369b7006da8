"""``ipu.utils``: functions from before ``IPUConfig``'s methods, and the seed."""

from __future__ import annotations

from typing import Any, NoReturn

from abele.errors import UnsupportedOpError
from abele.frontends.keras.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from abele.frontends.keras.model.seeds import SeedChoice
from abele.frontends.keras.private import keras

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
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
        experimental_identical_replicas: True to let all replicas draw the same numbers; programs that are compiled
            from now on do.
    """
    SeedChoice.identical = bool(experimental_identical_replicas)
    keras.utils.set_random_seed(seed)


def get_num_of_ipus_in_device(ipu_device: str = "/device:IPU:0", device: str = "cpu") -> int:
    """IPUs that were asked for."""
    return get_ipu_config().num_ipus


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Nothing: the host initialises variables."""


def _refused(name: str, remedy: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedOpError(f"ipu.utils.{name} is not there", remedy=remedy)

    function.__name__, function.__doc__ = name, f"Refused: {remedy}."
    return function


_FORMER = {
    "create_ipu_config": "ipu.config.IPUConfig()",
    "auto_select_ipus": "IPUConfig().auto_select_ipus = ...",
    "select_ipus": "IPUConfig().select_ipus = [...]",
    "set_ipu_model_options": "IPUConfig().ipu_model.tiles_per_ipu = ...",
    "set_ipu_connection_type": "IPUConfig().device_connection.type = ...",
    "set_compilation_options": "IPUConfig().compilation_poplar_options = {...}",
    "set_convolution_options": "IPUConfig().convolutions.poplar_options = {...}",
    "set_matmul_options": "IPUConfig().matmuls.poplar_options = {...}",
    "set_pooling_options": "IPUConfig().pooling.poplar_options = {...}",
    "set_recomputation_options": "IPUConfig().allow_recompute = True",
    "set_floating_point_behaviour_options": "IPUConfig().floating_point_behaviour",
    "set_norm_options": "IPUConfig().norms",
    "set_optimization_options": "IPUConfig().optimizations",
    "set_serialization_options": "IPUConfig().serialization_output_folder = ...",
    "set_report_options": "model.ipu_report, or POPLAR_ENGINE_OPTIONS",
    "set_experimental_multi_replica_distribution_options": "popdist",
    "export_dataset_to_file": "numpy.savez of dataset.as_numpy_iterator()",
    "export_inputs_to_file": "numpy.savez",
    "extract_all_strings_from_event_trace": "model.ipu_report",
    "extract_compile_reports": "model.ipu_report",
    "extract_execute_reports": "model.ipu_report",
    "extract_poplar_serialized_graphs": "model.ipu_session.save(...)",
}
"""Functions of older SDKs, with what does the same now."""
globals().update({name: _refused(name, remedy) for name, remedy in _FORMER.items()})
