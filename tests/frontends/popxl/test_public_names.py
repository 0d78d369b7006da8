"""Names, signatures and refusals that public programs and tests of popxl read."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from abele import popxl
from abele.errors import UnsupportedOpError
from abele.frontends.popxl.errors import ElementTypesError, GraphArgumentError
from abele.popart._internal import ir as private
from abele.popxl import ops

updates, collectives = ops.var_updates, ops.collectives
untyped: Any = popxl


def _floats(*shape: int) -> popxl.Tensor:
    return popxl.variable(np.ones(shape, np.float32))


def _seed() -> popxl.Tensor:
    return popxl.variable(np.array([1, 2], np.uint32))


def _one() -> popxl.Tensor:
    return popxl.variable(1)


def _graph() -> popxl.Graph:
    return popxl.gir().create_graph(lambda x: x + x, popxl.TensorSpec((2,), popxl.float32))


# What is built, PopART's type and class of its op, and the number of tensors of the graph.
OPS: dict[str, tuple[Any, str, int]] = {
    "Add": (lambda: ops.add(_one(), _one()), "AddOp", 3),
    "AddLhsInplace": (lambda: ops.add_(_one(), _one()), "AddLhsInplaceOp", 3),
    "Sub": (lambda: ops.sub(_one(), _one()), "SubtractOp", 3),
    "Neg": (lambda: -_one(), "NegateOp", 2),
    "And": (lambda: popxl.variable(True) & popxl.variable(False), "AndOp", 3),
    "Cast": (lambda: ops.cast(_one(), data_type=popxl.float32), "CastOp", 2),
    "Gelu": (lambda: ops.gelu(_one()), "GeluOp", 2),
    "ExpInplace": (lambda: ops.exp_(_one()), "ExpInplaceOp", 2),
    "IsNaN": (lambda: ops.isnan(_floats(2)), "IsNaN", 2),
    "ReduceSum": (lambda: ops.sum(_floats(2, 3), 0), "ReduceSumOp", 2),
    "ArgMax": (lambda: ops.argmax(_floats(2, 3)), "ArgMaxOp", 2),
    "TopK": (lambda: ops.topk(_floats(4), 2, 0, True, True, available_memory_proportion=0.2), "TopKOp", 3),
    "MatMul": (lambda: _floats(2, 2) @ _floats(2, 2), "MatMulOp", 3),
    "GroupNormalization": (lambda: ops.layer_norm(_floats(1, 4), _floats(4), _floats(4)), "GroupNormOp", 6),
    "Resize": (lambda: ops.interpolate(_floats(1, 1, 2, 2)), "ResizeOp", 2),
    "TiedGather": (lambda: ops.tied_gather(_floats(4), popxl.variable([0, 1])), "TiedGatherOp", 3),
    "Subsample": (lambda: ops.subsample(_floats(4, 4), 2), "SubsampleOp", 2),
    "Squeeze": (lambda: ops.squeeze(_floats(1, 2)), "SqueezeOp", 2),
    "ShapedDropout": (lambda: ops.shaped_dropout(_floats(2, 3), _seed(), (2, 1), 0.3), "ShapedDropoutOp", 3),
    "ModifyRandomSeed": (lambda: ops.split_random_seed(_seed()), "ModifyRandomSeedOp", 3),
    "Init": (lambda: ops.init((2,), popxl.float32, init_type="ZERO"), "InitOp", 1),
    "AccumulatorZero": (lambda: updates.accumulator_scale_(_one(), 0.0), "AccumulatorZeroOp", 2),
    "AdamVarUpdate": (
        lambda: updates.adam_var_update(t=_floats(2), x=_floats(2), r1=_floats(), r2=_floats(), learning_rate=0.1),
        "AdamVarUpdateOp",
        5,
    ),
    "ReplicatedAllReduce": (lambda: collectives.replicated_all_reduce(_one()), "collectives.ReplicatedAllReduceOp", 2),
    "HostLoad": (lambda: ops.host_load(popxl.h2d_stream((), popxl.float32)), "exchange.HostLoadOp", 1),
    "RemoteLoadInplace": (
        lambda: ops.remote_load_(popxl.remote_buffer((2,), popxl.float32), 0, _floats(2)),
        "exchange.RemoteLoadInplaceOp",
        2,
    ),
    "RemoteCodeLoad": (lambda: ops.remote_code_load(_graph()), "RemoteCodeLoadOp", 0),
    "Call": (lambda: ops.call(_graph(), _floats(2)), "CallOp", 2),
    "Loop": (lambda: ops.repeat(_graph(), 2, _floats(2)), "LoopOp", 2),
}


@pytest.mark.parametrize("kind", OPS)
def test_op__by_popart_names__is_found(kind: str) -> None:
    build, name, count = OPS[kind]
    graph = popxl.Ir(replication=2 if kind.startswith("Replicated") else 1).main_graph
    with graph:
        build()
    made = [op for op in graph._pb_graph.getOps() if op.opType() == kind]
    found: Any = private.op
    for word in name.split("."):
        found = getattr(found, word)
    assert [isinstance(op, found) for op in made] == [True]
    assert len(graph.tensors) == count
    assert not isinstance(made[0], private.op.CosOp)


def test_op_class__of_no_op__is_refused_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="popxl has no ops 'AdOp'; 'AddOp' is near"):
        _ = private.op.AdOp


PLACES = (
    "abele.popxl.ops.add.add",
    "abele.popxl.ops.init.InitType",
    "abele.popxl.ops.call.CallSiteInfo",
    "abele.popxl.ops.conditional.ConditionalSiteInfo",
    "abele.popxl.ops.collectives.collectives.CollectiveOps",
    "abele.popxl.ops.var_updates.accumulate.accumulate_",
    "abele.popxl.tensor.graph_input",
    "abele.popxl.tensor.remote_variable",
    "abele.popxl.tensor.HostTensor",
    "abele.popxl.tensor_location.TensorLocation",
    "abele.popxl.transforms.merge_exchange.merge_exchange",
    "abele.popxl.dtypes.np_dtype_float8_143",
    "abele.popart._internal.ir.op",
)


@pytest.mark.parametrize("place", PLACES)
def test_name__of_popxl_modules__is_there(place: str) -> None:
    module, _, name = place.rpartition(".")
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize(
    ("act", "kinds", "words"),
    [
        (lambda _: untyped.Tensor(), (RuntimeError,), "popxl.Tensor cannot be constructed directly."),
        (lambda _: untyped.Graph(), (RuntimeError,), "popxl.Graph cannot be constructed directly."),
        (lambda _: popxl.dtype.as_dtype("bfloat3"), (ValueError, TypeError), "There is not a `popxl.dtype`"),
        (lambda _: popxl.dtype.as_dtype(None), (ValueError, TypeError), "There is not a `popxl.dtype`"),
        (lambda _: popxl.variable(None, popxl.float32), (ValueError, TypeError), "Data of object make no tensor"),
        (lambda _: ops.print_tensor(_one(), summarize=1), (TypeError,), "unexpected keyword argument"),
        (lambda _: ops.call(_graph(), None), (TypeError,), "input 0 of .* is None"),
        (lambda _: untyped.ops.repeat(_graph(), 2.5, _floats(2)), (TypeError,), "Repeat trip count"),
        (
            lambda _: ops.call_with_info(_graph(), _floats(2)).graph_to_parent_input_index(1),
            (IndexError,),
            "out of range",
        ),
        (lambda _: popxl.h2d_stream((-2,), popxl.float32), (ValueError,), "the shape of a stream"),
        (lambda ir: setattr(ir, "num_host_transfers", 0), (ValueError,), "num_host_transfers is a positive"),
    ],
)
def test_refusal__of_wrong_arguments__has_popxls_kind(act: Any, kinds: Any, words: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        for kind in kinds:
            with pytest.raises(kind, match=words):
                act(ir)


def test_recursion__of_a_graph__is_refused() -> None:
    with popxl.Ir().main_graph:
        outer = _graph()
        inner = popxl.gir().create_graph(lambda x: ops.call(outer, x), popxl.TensorSpec((2,), popxl.float32))
        with outer, pytest.raises(GraphArgumentError, match="cannot be called in"):
            ops.call(inner, outer.inputs[0])


def test_ops_of_floats__on_integers__are_refused_by_the_session() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.d2h_stream((), popxl.int32)
        ops.host_store(stream, ops.sqrt(_one()))
    with pytest.raises(ElementTypesError, match="sqrt takes floats, 'v' is int32"):
        popxl.Session(ir)


def test_doubles__kept_as_they_are__are_refused_by_the_ops_that_read_them() -> None:
    with popxl.Ir().main_graph:
        wide = popxl.variable(np.ones(2), downcast=False)
        assert (wide.dtype, popxl.variable(np.ones(2)).dtype) == (popxl.float64, popxl.float32)
        with pytest.raises(UnsupportedOpError, match="float64"):
            ops.add(wide, wide)


def test_conditional_info__of_two_graphs__relates_both() -> None:
    with popxl.Ir().main_graph:
        first, second = _graph(), _graph()
        a, b = _floats(2), _floats(2)
        made = ops.conditional_with_info(popxl.constant(True), first, second, [a], [b])
        assert made.called_graphs == (first, second) == (made.then_graph, made.else_graph)
        assert [made.graph_to_parent(g.inputs[0]) for g in (first, second)] == [a, b]
        assert made.parent_to_graph(b) == second.inputs[0]
        assert made.graph_to_parent(second.outputs[0]) == made.outputs[0]
        with pytest.raises(GraphArgumentError, match="not an input or output"):
            made.graph_to_parent(a)


def test_prints__whose_results_nothing_reads__are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        a = popxl.variable([1.0, 2.0], popxl.float32)
        ops.print_tensor(a, "own", digits=3, separator=", ")

        def body(x: popxl.Tensor) -> popxl.Tensor:
            ops.print_tensor(x, "trip")
            return x + 1

        ops.repeat(ir.create_graph(body, a), 2, a)

        def loss(x: popxl.Tensor) -> popxl.Tensor:
            return ops.sum(ops.print_tensor(x * x, "square", print_self=False, print_gradient=True))

        graph = ir.create_graph(loss, a)
        info = popxl.transforms.autodiff(graph)
        call = ops.call_with_info(graph, a)
        (gradient,) = ops.call(info.graph, 1.0, inputs_dict=info.inputs_dict(call))
        stream = popxl.d2h_stream(gradient.shape, gradient.dtype)
        ops.host_store(stream, gradient)
    with popxl.Session(ir) as session:
        assert list(session.create_host_outputs()) == [stream]
        np.testing.assert_array_equal(session.run()[stream], [2.0, 4.0])
    printed = capfd.readouterr().err.splitlines()
    assert sorted(printed) == [
        "Gradient___square: [1.0000000 1.0000000]",
        "own: [1.00, 2.00]",
        "trip: [1.0000000 2.0000000]",
        "trip: [2.0000000 3.0000000]",
    ]
