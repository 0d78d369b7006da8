"""``ipu.config``: the configuration of IPUs as a tree of attributes, and the one that is in use."""

from __future__ import annotations

import copy
import warnings
from enum import Enum, IntEnum
from typing import Any

from abele.errors import InvalidOptionError, TypeMismatchError
from abele.frontends.keras.ipu.config_tree import AttributeMetadata, Category, attribute

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]


class ExecutionProfileType(Enum):
    """Detail of profiles of older SDKs; recorded alone."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(Enum):
    """Time at which devices are attached; ``PRE_COMPILE`` and ``NEVER`` compile alone."""

    ALWAYS = "ALWAYS"
    ON_DEMAND = "ON_DEMAND"
    PRE_COMPILE = "PRE_COMPILE"
    NEVER = "NEVER"


class SchedulingAlgorithm(IntEnum):
    """Order of ops; recorded alone."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class SelectionOrder(Enum):
    """Order of IPUs; recorded alone."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class StochasticRoundingBehaviour(Enum):
    """Rounding of float16 results."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """``ON`` or ``OFF``."""
        return cls.ON if value else cls.OFF


class MergeRemoteBuffersBehaviour(Enum):
    """Merging of remote buffers; recorded alone."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


_IPUS = (int, list, tuple)


def _libraries(what: str) -> Any:
    return attribute({}, (dict,), f"options of {what} under PopLibs' names, such as availableMemoryProportion")


def _flag(default: bool, doc: str) -> Any:
    return attribute(default, (bool,), doc)


def _bytes(doc: str) -> Any:
    return attribute(0, (int,), doc)


class ExperimentalNorms(Category):
    """Options of norms that may change."""

    distributed_batch_norm_replica_group_size = attribute(
        1, (int,), "consecutive replicas that share batch statistics in training"
    )


class IPUConfig(Category):
    """Configuration of IPUs; nothing happens before :meth:`configure_ipu_system`."""

    auto_select_ipus = attribute([], _IPUS, "a number of IPUs, or one for each device")
    select_ipus = attribute([], _IPUS, "IPUs by number, in place of auto_select_ipus; as many are modelled")
    selection_order = attribute(SelectionOrder.AUTO, (SelectionOrder,), "order of IPUs")
    allow_recompute = _flag(False, "compute activations again in the backward pass; in pipelines by stage")
    serialization_output_folder = attribute("", (str,), "folder of compiled programs, by content")
    compilation_poplar_options = attribute({}, (dict,), "engine options under Poplar's names")
    gcl_poplar_options = attribute({}, (dict,), "options of collectives")

    class convolutions(Category):  # noqa: N801
        """Convolutions."""

        poplar_options = _libraries("convolutions")

    class matmuls(Category):  # noqa: N801
        """Matrix products."""

        clear_pass_type = _flag(False, "plan products alike in both passes")
        poplar_options = _libraries("matrix products")

    class slices(Category):  # noqa: N801
        """Slices and look-ups."""

        poplar_options = _libraries("slices")

    class pooling(Category):  # noqa: N801
        """Pooling."""

        poplar_options = _libraries("pooling")

    class norms(Category):  # noqa: N801
        """Norms."""

        use_stable_statistics = _flag(False, "subtract the mean before squaring")

        experimental = ExperimentalNorms

    class device_connection(Category):  # noqa: N801
        """Attaching of devices."""

        type = attribute(DeviceConnectionType.ALWAYS, (DeviceConnectionType,), "time of attaching")
        version = attribute("", (str,), "ipu1, ipu2 or ipu21, for programs that never attach")
        enable_remote_buffers = _flag(False, "streaming memory, for programs that never attach")

    class floating_point_behaviour(Category):  # noqa: N801
        """Traps and rounding."""

        inv = _flag(False, "stop at invalid operations")
        div0 = _flag(False, "stop at divisions by zero")
        oflo = _flag(False, "stop at overflows")
        nanoo = _flag(False, "float16 overflows are no numbers, in place of the largest one")
        esr = attribute(StochasticRoundingBehaviour.OFF, (StochasticRoundingBehaviour, bool), "stochastic rounding")
        set_all = _flag(False, "all four traps and stochastic rounding")

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "set_all" and value:
                for other in ("inv", "div0", "oflo", "nanoo"):
                    super().__setattr__(other, True)
                super().__setattr__("esr", StochasticRoundingBehaviour.ON)

    class io_tiles(Category):  # noqa: N801
        """Tiles that load and store alone."""

        num_io_tiles = attribute(0, (int,), "tiles of each IPU")
        place_ops_on_io_tiles = _flag(False, "load and store while others compute")
        available_memory_proportion = attribute(0.9, (float,), "share of their memory that may hold data")

    class ipu_model(Category):  # noqa: N801
        """The modelled machine."""

        compile_ipu_code = _flag(True, "compile vertices")
        tiles_per_ipu = attribute(0, (int,), "tiles of each IPU; 0 for all")
        version = attribute("ipu2", (str,), "ipu1, ipu2 or ipu21")

    class optimizations(Category):  # noqa: N801
        """Passes."""

        prefetch_data_streams = _flag(True, "the host fetches ahead")
        merge_infeed_io_copies = _flag(True, "inputs are copied together")
        enable_graph_outlining = _flag(True, "equal stretches are one function")
        enable_gather_simplifier = _flag(True, "simplify gathers")
        enable_dynamic_slice_replacement = _flag(True, "slices become look-ups")
        combine_matmuls = _flag(False, "join products with an operand in common")
        combine_embedding_lookups = _flag(False, "join look-ups of one table")
        merge_remote_buffers = attribute(
            MergeRemoteBuffersBehaviour.IF_BENEFICIAL, (MergeRemoteBuffersBehaviour,), "merging of remote buffers"
        )
        minimum_remote_tensor_size = attribute(128, (int,), "bytes below which a tensor stays on the chip")
        maximum_cross_replica_sum_buffer_size = _bytes("bytes up to which sums over replicas are joined")
        maximum_reduce_scatter_buffer_size = _bytes("bytes up to which reduce-scatters are joined")
        maximum_all_gather_buffer_size = _bytes("bytes up to which gathers are joined")
        maximum_reduce_many_buffer_size = _bytes("bytes up to which reductions are joined")
        maximum_inter_ipu_copies_buffer_size = _bytes("bytes up to which copies between IPUs are joined")
        maximum_send_recv_cluster_size = _bytes("bytes up to which sends to the host are joined")

        class math(Category):  # noqa: N801
            """Algebra."""

            fast = _flag(False, "reorder arithmetic")
            dot_strength = _flag(True, "small products become other ops")

    class scheduling(Category):  # noqa: N801
        """Order of ops."""

        algorithm = attribute(SchedulingAlgorithm.CHOOSE_BEST, (SchedulingAlgorithm,), "how ops are ordered")
        maximum_scheduler_lookahead_depth = attribute(5, (int,), "depth of LOOK_AHEAD")
        maximum_scheduler_search_space_size = attribute(64, (int,), "width of LOOK_AHEAD")

    class experimental(Category):  # noqa: N801
        """Options that may change."""

        always_rearrange_copies_on_the_host = _flag(False, "the host orders what it sends")
        enable_remote_buffer_embedding = _flag(False, "large tables in streaming memory")
        enable_prng_stability = _flag(False, "the same random numbers however a program is compiled")

        class multi_replica_distribution(Category):  # noqa: N801
            """Processes of one program."""

            process_index = attribute(0, (int,), "this process")
            process_count = attribute(0, (int,), "processes; 0 for one")

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Take this configuration into use, for sessions that are made from now on."""
        configure_ipu_system(self, device)

    @property
    def num_ipus(self) -> int:
        """IPUs of the first device; 1 where none were asked for.

        Raises:
            InvalidOptionError: Both ways of asking are in use, or a number that is not positive.
        """
        auto, chosen = self.auto_select_ipus, self.select_ipus
        if auto not in ([], ()) and chosen not in ([], ()):
            raise InvalidOptionError(
                "IPUs are chosen both by auto_select_ipus and by select_ipus", remedy="assign to one of them"
            )
        if isinstance(chosen, int):
            return 1
        if chosen:
            first = chosen[0]
            return len(first) if isinstance(first, (list, tuple)) else 1
        count = auto if isinstance(auto, int) else (auto[0] if auto else 1)
        if not isinstance(count, int) or count < 1:
            raise InvalidOptionError(f"auto_select_ipus is a positive number of IPUs, not {auto!r}")
        return count


_in_use: IPUConfig | None = None


def get_ipu_config() -> IPUConfig:
    """The configuration that is in use; the default one before any."""
    return copy.deepcopy(_in_use) if _in_use is not None else IPUConfig()


def configure_ipu_system(config: IPUConfig, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Take a configuration into use; an equal one again changes nothing.

    Args:
        config: The configuration.
        device: The host device that TensorFlow's function asks for; not used.
        reset_configuration: False to keep what was configured before, if anything was.

    Raises:
        TypeMismatchError: Not an :class:`IPUConfig`.
        InvalidOptionError: Attributes that do not fit each other.
    """
    global _in_use
    if not isinstance(config, IPUConfig):
        raise TypeMismatchError(f"configure_ipu_system takes an IPUConfig, not {config!r}")
    _check(config)
    if _in_use is not None and _in_use != config:
        if not reset_configuration:
            return
        warnings.warn("IPUs are configured again: devices are reset, and their weights lost", stacklevel=3)
    _in_use = copy.deepcopy(config)


def reset_ipu_configuration() -> None:
    """Forget the configuration; the next one is taken without a warning."""
    global _in_use
    _in_use = None


def _check(config: IPUConfig) -> None:
    count: int = config.num_ipus
    connection: Any = config.device_connection
    if connection.type in (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER) and not connection.version:
        raise InvalidOptionError(
            f"device_connection.type is {connection.type.name}, and device_connection.version is empty",
            because="a program that attaches to no device is compiled for a version",
            remedy='device_connection.version = "ipu2"',
        )
    versions = ("", "ipu1", "ipu2", "ipu21")
    for value, name in ((connection.version, "device_connection"), (config.ipu_model.version, "ipu_model")):
        if value not in versions:
            raise InvalidOptionError(f"{name}.version is one of ipu1, ipu2, ipu21, not {value!r}")
    if config.io_tiles.place_ops_on_io_tiles and config.io_tiles.num_io_tiles <= 0:
        raise InvalidOptionError(
            "io_tiles.place_ops_on_io_tiles is set, and io_tiles.num_io_tiles is 0",
            remedy="io_tiles.num_io_tiles = 32",
        )
    group = config.norms.experimental.distributed_batch_norm_replica_group_size
    if group < 1 or (group > 1 and group > count):
        raise InvalidOptionError(f"{group} replicas cannot share batch statistics on {count} IPUs")
