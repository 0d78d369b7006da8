"""``popxl_addons``: modules, named variables and transforms over popxl."""

from abele.frontends.popxl_addons import array_munging, layers, ops, optimizers, patterns, transforms, utils
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.graph import BoundGraph, GraphWithNamedArgs
from abele.frontends.popxl_addons.module import Module, ModuleList
from abele.frontends.popxl_addons.named_replica_grouping import NamedReplicaGrouping
from abele.frontends.popxl_addons.named_tensors import NamedTensorData, NamedTensors
from abele.frontends.popxl_addons.patterns import disable_fc_pass
from abele.frontends.popxl_addons.remote import (
    NamedRemoteBuffers,
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_variable_buffers,
    store_remote,
    store_remote_graph,
)
from abele.frontends.popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    get_ild_replica_grouping,
    reduce_replica_sharded_graph,
    replica_sharded_spec,
)
from abele.frontends.popxl_addons.streams import InputStreams, OutputStreams, host_load, host_store
from abele.frontends.popxl_addons.task_session import TaskSession
from abele.frontends.popxl_addons.transforms import *  # noqa: F403
from abele.frontends.popxl_addons.transforms import __all__ as _transforms
from abele.frontends.popxl_addons.utils import WeightsDict, seed_variable, timer
from abele.frontends.popxl_addons.variable_factory import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)

__all__ = [
    "BoundGraph",
    "DotTree",
    "GraphWithNamedArgs",
    "InputStreams",
    "Module",
    "ModuleList",
    "NamedRemoteBuffers",
    "NamedReplicaGrouping",
    "NamedTensorData",
    "NamedTensors",
    "NamedVariableFactories",
    "OutputStreams",
    "TaskSession",
    "VariableFactory",
    "WeightsDict",
    "add_replica_sharded_variable_input",
    "add_variable_input",
    "all_gather_replica_sharded_graph",
    "create_remote_buffer",
    "disable_fc_pass",
    "get_ild_replica_grouping",
    "host_load",
    "host_store",
    "load_remote",
    "load_remote_graph",
    "named_variable_buffers",
    "array_munging",
    "layers",
    "ops",
    "optimizers",
    "utils",
    "patterns",
    "reduce_replica_sharded_graph",
    "replica_sharded_spec",
    "seed_variable",
    "store_remote",
    "store_remote_graph",
    "timer",
    "transforms",
    *_transforms,
]
