"""PopART names of popxl ops, for programs that look for ops of a graph.

``opType()`` of what ``ops.add_`` makes is ``AddLhsInplace``. An op without a name here has its own.
"""

from __future__ import annotations

from abele.errors import nearest

_INPLACE = {"exp_", "relu_", "gelu_", "geluerf_", "swish_", "reshape_", "transpose_", "detach_", "slice_", "concat_"}
_INPLACE |= {"dynamic_update_", "increment_mod_", "replicated_all_reduce_"}

_REDUCTIONS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "median": "ReduceMedian",
    "prod": "ReduceProd",
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "logsum": "ReduceLogSum",
    "logsumexp": "ReduceLogSumExp",
    "sumsquare": "ReduceSumSquare",
}

_UPDATES = {
    "accumulate_": "Accumulate",
    "accumulate_square_": "Accumulate",
    "accumulate_mean_": "Accumulate",
    "accumulate_moving_average_": "Accumulate",
    "accumulate_moving_average_square_": "Accumulate",
    "accumulator_scale_": "AccumulatorScale",
    "accumulator_zero_": "AccumulatorZero",
    "sparse_accumulate_": "SparseAccumulate",
    "copy_var_update_": "CopyVarUpdate",
    "adam_updater": "AdamUpdater",
    "adamax_updater": "AdamUpdater",
    "lamb_updater": "AdamUpdater",
    "adam_var_update": "AdamVarUpdate",
}

_IRREGULAR = {
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "add_": "AddLhsInplace",
    "batch_norm_inference": "BatchNormalization",
    "conv_pow2scaled": "Conv",
    "conv_transpose_pow2scaled": "ConvTranspose",
    "cumsum": "CumSum",
    "flatten": "Reshape",
    "flatten_": "ReshapeInplace",
    "geluerf": "GeluErf",
    "group_norm": "GroupNormalization",
    "groupedgather": "GroupedGather",
    "interpolate": "Resize",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "layer_norm": "GroupNormalization",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "matmul": "MatMul",
    "matmul_pow2scaled": "MatMul",
    "maximum": "Max",
    "negate": "Neg",
    "nll_loss": "Nll",
    "nll_loss_with_softmax_grad": "NlllWithSoftmaxGradDirect",
    "onehot": "OneHot",
    "pow2scale_cast_from_fp8": "CastThenPow2Scale",
    "pow2scale_cast_to_fp8": "Pow2ScaleThenCast",
    "replica_sharded_slice": "ReplicatedReduceScatter",
    "scaled_add_": "ScaledAddLhsInplace",
    "split_random_seed": "ModifyRandomSeed",
    "topk": "TopK",
}

_CLASSES = {
    "BatchNormOp": "BatchNormalization",
    "GroupNormOp": "GroupNormalization",
    "IsInf": "IsInf",
    "IsNaN": "IsNaN",
    "NegateOp": "Neg",
    "OnehotOp": "OneHot",
    "SubtractOp": "Sub",
}
"""Classes of ops whose names are not ``opType()`` with "Op" after it."""

_PLAIN = (
    "abs add all_reduce all_reduce_identical_grad_inputs all_reduce_identical_inputs average_pool cast ceil clip "
    "concat conv conv_transpose cos detach div dropout dynamic_slice dynamic_update equal exp floor fmod gather "
    "gelu greater grouped_scatter_reduce histogram identity increment_mod init io_tile_copy ipu_copy isfinite "
    "lamb_square log log2 max_pool mul pow print_tensor random_normal random_uniform relu replicated_all_gather "
    "replicated_all_reduce replicated_reduce_scatter replicated_slice reshape roi_align scaled_add scatter "
    "scatter_reduce shaped_dropout sign sin slice softmax split sqrt squeeze sub subsample swish tanh tied_gather "
    "transpose where "
)
"""Ops whose names differ by capitals alone."""


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


OP_TYPES = {name: _camel(name) for name in _PLAIN.split()} | _REDUCTIONS | _UPDATES | _IRREGULAR
OP_TYPES |= {name: f"{OP_TYPES.get(name[:-1], _camel(name[:-1]))}Inplace" for name in _INPLACE}

_OTHERS = (
    "Call",
    "If",
    "Loop",
    "HostLoad",
    "HostStore",
    "RemoteLoad",
    "RemoteLoadInplace",
    "RemoteStore",
    "RemoteCodeLoad",
)
_KNOWN = {f"{name}Op": name for name in (*OP_TYPES.values(), *_OTHERS)} | _CLASSES


def op_type(kind: str) -> str:
    """PopART's name of an op; of a gradient with ``Grad`` after it."""
    whole = kind.removesuffix("Grad")
    return OP_TYPES.get(whole, whole) + kind[len(whole) :]


class OpClass(type):
    """Class of the ops of one type: ``isinstance`` asks an op for its ``opType()``."""

    op_type: str | None = None

    def __instancecheck__(cls, instance: object) -> bool:
        kind = getattr(instance, "opType", None)
        return callable(kind) and (cls.op_type is None or kind() == cls.op_type)


class Op(metaclass=OpClass):
    """Any op of a graph; ``_ir.op.AddOp`` are those whose ``opType()`` is ``Add``."""


def op_class(name: str) -> OpClass:
    """The class of ops of a name.

    Raises:
        AttributeError: popxl makes no such ops.
    """
    if name not in _KNOWN:
        close = nearest(name, _KNOWN)
        raise AttributeError(f"popxl has no ops {name!r}" + (f"; {close!r} is near" if close else ""))
    made = _made.get(name)
    if made is None:
        made = _made[name] = OpClass(name, (Op,), {"op_type": _KNOWN[name]})
    return made


_made: dict[str, OpClass] = {}

__all__ = ["OP_TYPES", "Op", "OpClass", "op_class", "op_type"]
