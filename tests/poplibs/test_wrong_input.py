"""Mistakes of users: every function says in its words, with the operands' names, what does not fit and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from poplibs_kit import system_of

from abele.errors import (
    AbeleError,
    ConstantWriteError,
    GraphReplicationError,
    InvalidOptionError,
    OutOfMemoryError,
    TensorError,
    TileMappingError,
    TypeMismatchError,
)
from abele.graph import Graph, Sequence, Tensor
from abele.poplibs import gcl, poplin, popnn, popops, poprand, poputil
from abele.poplibs.popnn import ctc, ctc_infer, gru, lstm
from abele.poplibs.popops import embedding

Case = Callable[[Graph, Sequence], Any]


def t(graph: Graph, *shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return graph.variable(dtype, shape, name=name).map_linear()


def refused(case: Case) -> AbeleError:
    with pytest.raises(AbeleError) as caught:
        case(Graph(system_of(64)), Sequence())
    return caught.value


POOL = popnn.PoolParams("max", (4, 4), (2, 2), (2, 2), (0, 0), (0, 0), 4, 1)
CONV = poplin.ConvParams(1, 4, 4, (6, 6), (3, 3))
LSTM = lstm.LstmParams("f32", 2, 3, (4, 5))
GRU = gru.GruParams("f32", 2, 3, (4, 5))

OPERANDS: dict[str, Callable[[Graph, Sequence, Any], Any]] = {
    "exp": lambda g, p, x: popops.exp(g, x, p),
    "add": lambda g, p, x: popops.add(g, t(g, 4), x, p),
    "sub_in_place": lambda g, p, x: popops.sub_in_place(g, t(g, 4), x, p),
    "reduce": lambda g, p, x: popops.reduce(g, x, (0,), "ADD", p),
    "cast": lambda g, p, x: popops.cast(g, x, "f16", p),
    "zero": lambda g, p, x: popops.zero(g, x, p),
    "fill": lambda g, p, x: popops.fill(g, x, p, 2.0),
    "map": lambda g, p, x: popops.map(g, popops._1 + 1, [x], p),
    "matmul": lambda g, p, x: poplin.matmul(g, t(g, 4, 4), x, p),
    "convolution": lambda g, p, x: poplin.convolution(g, x, t(g, 4, 4, 3, 3), CONV, p),
    "cholesky": lambda g, p, x: poplin.cholesky(g, x, True, p),
    "softmax": lambda g, p, x: popnn.softmax(g, x, p),
    "relu": lambda g, p, x: popnn.relu(g, x, p),
    "sort": lambda g, p, x: popops.sort(g, x, 0, p),
    "top_k": lambda g, p, x: popops.top_k(g, p, x, popops.TopKParams(2)),
    "multi_slice": lambda g, p, x: popops.multi_slice(g, x, [1], (0,), (1,), p),
    "dynamic_slice": lambda g, p, x: popops.dynamic_slice(g, t(g, 8, 4), x, (0,), (1,), p),
    "gather": lambda g, p, x: popops.gather(g, t(g, 8, 4), x, 0, p),
    "scaled_add_to": lambda g, p, x: popops.scaled_add_to(g, t(g, 4), x, 1.0, p),
    "encode_one_hot": lambda g, p, x: popops.encode_one_hot(g, x, t(g, 4, 5), p),
    "has_nan": lambda g, p, x: popops.has_nan(g, x, p),
    "pool": lambda g, p, x: popnn.pool(g, x, POOL, p),
    "group_norm_statistics": lambda g, p, x: popnn.group_norm_statistics(g, x, 1e-5, p, 2),
    "calc_loss": lambda g, p, x: popnn.calc_loss(g, x, t(g, 4), t(g, 4), t(g, 4, 5), "CROSS_ENTROPY_LOSS"),
    "dropout": lambda g, p, x: poprand.dropout(g, None, 0, x, 0.5, p),
    "uniform": lambda g, p, x: poprand.uniform(g, None, 0, x, p),
    "map_tensor_linearly": lambda g, p, x: poputil.map_tensor_linearly(g, x),
    "duplicate": lambda g, p, x: poputil.duplicate(g, x, p),
    "all_reduce_cross_replica": lambda g, p, x: gcl.all_reduce_cross_replica(g, x, "ADD", p),
    "gru_fwd": lambda g, p, x: gru.gru_fwd(g, GRU, x, t(g, 3, 2, 4), gru.create_weights(g, GRU), p),
    "batch_norm_whiten": lambda g, p, x: popnn.bn.batchNormWhiten(g, t(g, 2, 4), x, t(g, 4), p),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operand__of_another_graph__is_named(name: str) -> None:
    error = refused(lambda g, p: OPERANDS[name](g, p, t(Graph(system_of(64)), 4, 4, name="stranger")))
    assert isinstance(error, TensorError)
    assert error.message.startswith(f"{name}: ")
    assert "'stranger'" in error.message
    assert error.message.endswith("belongs to another graph")


@pytest.mark.parametrize("given", [np.ones((4, 4)), None, "four"], ids=["array", "nothing", "text"])
@pytest.mark.parametrize("name", OPERANDS)
def test_operand__no_tensor__is_refused(name: str, given: Any) -> None:
    error = refused(lambda g, p: OPERANDS[name](g, p, given))
    assert isinstance(error, TypeMismatchError)
    assert error.message.startswith(f"{name}: ")
    assert re.search("must be a tensor( or a number)?, got", error.message)


def test_operand__of_the_whole_graph_in_a_virtual_one__is_taken() -> None:
    graph, prog = Graph(system_of(64)), Sequence()
    x = graph.variable("f32", (4,), name="x").map(0)
    assert popops.exp(graph.virtual(0, 8), x, prog).shape == (4,)


@pytest.mark.parametrize(
    "call",
    [
        lambda g, p: popops.exp(g, t(g, 4), None),
        lambda g, p: popops.reduce(g, t(g, 4), p, "ADD", (0,)),
        lambda g, p: popops.add(g, t(g, 4), 2.0, t(g, 4)),
        lambda g, p: poplin.matmul(g, t(g, 4, 4), t(g, 4, 4), "prog"),
    ],
)
def test_program__no_sequence__says_what_it_must_be(call: Case) -> None:
    error = refused(call)
    assert isinstance(error, (TypeMismatchError, TensorError))
    assert "must be" in error.message


def test_graph__left_out__says_that_it_comes_first() -> None:
    graph, prog = Graph(system_of(4)), Sequence()
    with pytest.raises(TypeMismatchError, match="softmax: the first argument is the graph, got Tensor"):
        popnn.softmax(t(graph, 4, 4), graph, prog)


CASES: dict[str, tuple[type[AbeleError], str, Case]] = {
    "sqrt of integers": (
        TypeMismatchError,
        "sqrt does not take i32",
        lambda g, p: popops.sqrt(g, t(g, 4, dtype="i32"), p),
    ),
    "types that differ": (
        TypeMismatchError,
        "add: f32 and i32 meet in one operation",
        lambda g, p: popops.add(g, t(g, 4), t(g, 4, dtype="i32"), p),
    ),
    "fraction and integers": (
        TypeMismatchError,
        "add: constant 1.5 cannot be i32",
        lambda g, p: popops.add(g, t(g, 4, dtype="i32"), 1.5, p),
    ),
    "comparison in place": (
        TypeMismatchError,
        "eq: the expression gives bool, the output holds f32",
        lambda g, p: popops.eq_in_place(g, t(g, 4), t(g, 4), p),
    ),
    "predicate of numbers": (
        TypeMismatchError,
        "select: the predicate Tensor(f32[4] of 'x', tile 0) is f32, it must be bool",
        lambda g, p: popops.select(g, t(g, 4, dtype="bool"), t(g, 4), t(g, 4), p),
    ),
    "write to a constant": (
        ConstantWriteError,
        "add: cannot write to Tensor(f32[4] of 'one', tile 0)",
        lambda g, p: popops.add_in_place(g, g.constant("f32", (4,), 1.0, name="one"), 1.0, p),
    ),
    "fill a constant": (
        ConstantWriteError,
        "zero: cannot write to",
        lambda g, p: popops.zero(g, g.constant("f32", (4,), 1.0, name="one"), p),
    ),
    "write to what repeats": (
        ConstantWriteError,
        "exp: cannot write to",
        lambda g, p: popops.exp_in_place(g, t(g, 1, 4).broadcast_to((3, 4)), p),
    ),
    "function of two for one": (
        TensorError,
        "the function of a map does not take 1 argument",
        lambda g, p: popops.map(g, lambda x, y: x + y, [t(g, 4)], p),
    ),
    "no outputs": (
        TensorError,
        "0 expressions for 0 outputs",
        lambda g, p: popops.map_with_outputs(g, [], [t(g, 4)], [], p),
    ),
    "outputs without expressions": (
        TensorError,
        "map: 1 expression for 2 outputs",
        lambda g, p: popops.map_with_outputs(g, [popops._1], [t(g, 4)], [t(g, 4), t(g, 4)], p),
    ),
    "cast to another shape": (
        TensorError,
        "cast: Tensor(f32[4] of 'x', tile 0) of shape [4] does not go with the output",
        lambda g, p: popops.cast_with_output(g, t(g, 4), t(g, 5, dtype="f16"), p),
    ),
    "fill with text": (
        TypeMismatchError,
        "fill: value must be a number, got str 'x'",
        lambda g, p: popops.fill(g, t(g, 4), p, "x"),
    ),
    "type that there is not": (
        TypeMismatchError,
        "'flaot' is no element type",
        lambda g, p: popops.cast(g, t(g, 4), "flaot", p),
    ),
    "fill out of range": (
        InvalidOptionError,
        "fill: Tensor(u8[4] of 'x', tile 0) cannot hold 300",
        lambda g, p: popops.fill(g, t(g, 4, dtype="u8"), p, 300),
    ),
    "fill integers with a fraction": (
        InvalidOptionError,
        "cannot hold 1.5",
        lambda g, p: popops.fill(g, t(g, 4, dtype="i32"), p, 1.5),
    ),
    "fill integers with nan": (
        InvalidOptionError,
        "cannot hold nan",
        lambda g, p: popops.fill(g, t(g, 4, dtype="i32"), p, float("nan")),
    ),
    "dimension that is no list": (
        TensorError,
        "reduce: dims must be whole numbers, as in (0, 1), got int 0",
        lambda g, p: popops.reduce(g, t(g, 4, 4), 0, "ADD", p),
    ),
    "shape of fractions": (
        TensorError,
        "create_matmul_input_lhs: a_shape must be whole numbers",
        lambda g, p: poplin.create_matmul_input_lhs(g, "f32", (4.5, 5), (5, 4)),
    ),
    "scale that is text": (
        TypeMismatchError,
        "scaled_add_to: scale_b must be a number or a tensor, got str 'a'",
        lambda g, p: popops.scaled_add_to(g, t(g, 4), t(g, 4), "a", p),
    ),
    "pad with text": (
        InvalidOptionError,
        "pad: cannot pad with 'reflekt'",
        lambda g, p: popops.pad(g, t(g, 4), (1,), (0,), "reflekt"),
    ),
    "order of top-k": (
        InvalidOptionError,
        "top_k: no sort order 'DOWN'",
        lambda g, p: popops.TopKParams(2, True, "DOWN"),
    ),
    "fractional offset": (
        TensorError,
        "multi_slice: offsets must be a tensor or whole numbers, as in (0, 1), got list [1.5]",
        lambda g, p: popops.multi_slice(g, t(g, 8, 4), [1.5], (0,), (1,), p),
    ),
    "offset out of range": (
        TensorError,
        "multi_slice: offset 8 is out of range: the table has 8 entries",
        lambda g, p: popops.multi_slice(g, t(g, 8, 4), [8], (0,), (1,), p),
    ),
    "plan of another table": (
        TensorError,
        "multi_slice: the plan is for 1 x 10 x 4 elements, not for 1 x 8 x 4",
        lambda g, p: popops.multi_slice(
            g, t(g, 8, 4), t(g, 2, dtype="u32"), (0,), (1,), p, embedding.plan(g, "f32", 10, 4, 4)
        ),
    ),
    "normal integers": (
        TypeMismatchError,
        "normal: normally distributed numbers are f16 or f32, not i32",
        lambda g, p: poprand.normal(g, None, 0, t(g, 4), p, out_type="i32"),
    ),
    "negative deviation": (
        InvalidOptionError,
        "truncated_normal: std is -1.0, it must be at least 0",
        lambda g, p: poprand.truncated_normal(g, None, 0, t(g, 4), p, std=-1.0),
    ),
    "negative epsilon": (
        InvalidOptionError,
        "statistics: eps is -1.0",
        lambda g, p: popnn.batch_norm_statistics(g, t(g, 2, 4, 3), -1.0, p),
    ),
    "layer sizes of one number": (TensorError, "lstm: layer sizes 5", lambda g, p: lstm.LstmParams("f32", 2, 3, 5)),
    "lstm option": (
        InvalidOptionError,
        "lstm has no option 'inferenceonly'; did you mean 'inferenceOnly'?",
        lambda g, p: lstm.create_weights(g, LSTM, options={"inferenceonly": True}),
    ),
    "gru input": (
        TensorError,
        "gru: input Tensor(f32[3, 2, 9] of 'x', tile 0) has shape [3, 2, 9], needs [3, 2, 4]",
        lambda g, p: gru.gru_fwd(g, GRU, t(g, 2, 5), t(g, 3, 2, 9), gru.create_weights(g, GRU), p),
    ),
    "ctc without sequences": (
        TensorError,
        "ctc.plan takes at least one sequence",
        lambda g, p: ctc.plan(g, "f32", "f32", 0, 4, 2, 3),
    ),
    "no beam": (
        TensorError,
        "got 1 sequences, 4 steps, 0 beams, 3 classes",
        lambda g, p: ctc_infer.plan(g, "f32", 1, 4, 3, 0),
    ),
    "negative grain": (
        TileMappingError,
        "400 elements cannot be spread in grains of -3",
        lambda g, p: poputil.map_tensor_linearly(g, t(g, 400), grain=-3),
    ),
    "parameter of a template": (
        TypeMismatchError,
        "[1] cannot be a parameter of a vertex template",
        lambda g, p: poputil.template_vertex("popops::Zero", [1]),
    ),
    "kind of group": (InvalidOptionError, "no groups of kind 'SOME'", lambda g, p: gcl.CommGroup("SOME", 3)),
    "group that is a word": (
        TypeMismatchError,
        "all_reduce_cross_replica: group must be CommGroup, got str 'ALL'",
        lambda g, p: gcl.all_reduce_cross_replica(g, t(g, 4), "ADD", p, "ALL"),
    ),
    "replicas that do not divide": (
        GraphReplicationError,
        "CONSECUTIVE groups of 3 replicas, stride 1: 1 replicas do not divide so",
        lambda g, p: gcl.all_reduce_cross_replica(g, t(g, 4), "ADD", p, gcl.CommGroup.consecutive(3)),
    ),
    "plan that fits nowhere": (
        OutOfMemoryError,
        "the smallest needs",
        lambda g, p: poplin.matmul(g, t(g, 20000, 20000), t(g, 20000, 20000), p),
    ),
    "kind of vertex": (
        InvalidOptionError,
        "matmul: option 'planConstraints' is not understood: no split, method or transform 'XYZ'",
        lambda g, p: poplin.matmul(
            g, t(g, 4, 4), t(g, 4, 4), p, options={"planConstraints": '{"method":{"type":"XYZ"}}'}
        ),
    ),
    "kernel too large": (
        TensorError,
        "the kernel does not fit the field in dimension 0",
        lambda g, p: poplin.ConvParams(1, 4, 4, (6, 6), (7, 7)),
    ),
    "state that is none": (
        TypeMismatchError,
        "lstm_fwd: state must be LstmState, got None",
        lambda g, p: lstm.lstm_fwd(g, LSTM, None, lstm.create_input(g, LSTM), lstm.create_weights(g, LSTM), p),
    ),
    "state of another graph": (
        TensorError,
        "belongs to another graph",
        lambda g, p: lstm.lstm_fwd(
            g,
            LSTM,
            lstm.create_initial_state(Graph(system_of(4)), LSTM),
            lstm.create_input(g, LSTM),
            lstm.create_weights(g, LSTM),
            p,
        ),
    ),
    "parameters of another layer": (
        TypeMismatchError,
        "create_weights: params must be LstmParams, got GruParams",
        lambda g, p: lstm.create_weights(g, GRU),
    ),
    "no parameters": (
        TypeMismatchError,
        "convolution: params must be ConvParams",
        lambda g, p: poplin.convolution(g, t(g, 1, 4, 6, 6), t(g, 4, 4, 3, 3), None, p),
    ),
    "fractions of samples": (
        TensorError,
        "convolution: batch 1.5 must be whole numbers",
        lambda g, p: poplin.ConvParams(1.5, 4, 4, (6, 6), (3, 3)),
    ),
    "steps that are text": (TensorError, "must be whole numbers", lambda g, p: lstm.LstmParams("f32", 2, "3", (4, 5))),
    "dimension that is text": (
        TypeMismatchError,
        "sort: dim must be a whole number, got str 'a'",
        lambda g, p: popops.sort(g, t(g, 4, 4), "a", p),
    ),
    "epsilon that is text": (
        TypeMismatchError,
        "batch_norm_statistics: eps must be a number, got str '1e-5'",
        lambda g, p: popnn.batch_norm_statistics(g, t(g, 2, 4), "1e-5", p),
    ),
    "kind that is none": (
        TypeMismatchError,
        "non_linearity: kind must be text, got None",
        lambda g, p: popnn.non_linearity(g, None, t(g, 4), p),
    ),
    "options that are no mapping": (
        InvalidOptionError,
        "matmul: options must be a mapping from names to values, got str 'fast'",
        lambda g, p: poplin.matmul(g, t(g, 4, 4), t(g, 4, 4), p, options="fast"),
    ),
    "reductions that are tensors": (
        TypeMismatchError,
        "reduce_many: reductions[0] must be SingleReduceOp",
        lambda g, p: popops.reduce_many(g, [t(g, 4)], p),
    ),
    "range that is none": (
        InvalidOptionError,
        "uniform: [nan, 1.0] is no range of numbers",
        lambda g, p: poprand.uniform(g, None, 0, t(g, 4), p, low=float("nan")),
    ),
    "dropout scale": (
        TypeMismatchError,
        "dropout: scale must be a number, got str 'twice'",
        lambda g, p: poprand.dropout(g, None, 0, t(g, 4), 0.5, p, scale="twice"),
    ),
    "elements of top-k": (InvalidOptionError, "top_k: k is '3'", lambda g, p: popops.TopKParams("3")),
    "layout like nothing": (
        TileMappingError,
        "uniform/out: Tensor(f32[4] of 'x', unmapped) is not mapped to tiles completely",
        lambda g, p: poprand.uniform(g, None, 0, g.variable("f32", (4,), name="x"), p),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_call__wrong__is_refused_in_words(name: str) -> None:
    kind, text, call = CASES[name]
    error = refused(call)
    assert isinstance(error, kind)
    assert text in error.message


OPTIONS: dict[str, tuple[str, Case]] = {
    "map": ("enableGenerateCodelet", lambda g, o: popops.exp(g, t(g, 4), Sequence(), options=o)),
    "reduce": ("accumType.interTile", lambda g, o: popops.reduce(g, t(g, 4, 4), (0,), "ADD", Sequence(), options=o)),
    "scaled add": (
        "optimizeForSpeed",
        lambda g, o: popops.scaled_add_to(g, t(g, 4), t(g, 4), 1.0, Sequence(), options=o),
    ),
    "histogram": (
        "useFloatArithmetic",
        lambda g, o: popops.histogram(g, t(g, 4), t(g, 2), False, Sequence(), options=o),
    ),
    "dynamic slice": (
        "remapOutOfBoundIndices",
        lambda g, o: popops.dynamic_slice(g, t(g, 8, 4), t(g, 1, dtype="u32"), (0,), (1,), Sequence(), options=o),
    ),
    "multi slice": (
        "validateIndices",
        lambda g, o: popops.multi_slice(g, t(g, 8, 4), t(g, 1, dtype="u32"), (0,), (1,), Sequence(), options=o),
    ),
    "embedding": ("indicesDistribution", lambda g, o: embedding.plan(g, "f32", 8, 4, 2, options=o)),
    "matmul": ("partialsType", lambda g, o: poplin.matmul(g, t(g, 4, 4), t(g, 4, 4), Sequence(), options=o)),
    "convolution": (
        "remapOutputTensor",
        lambda g, o: poplin.convolution(g, t(g, 1, 4, 6, 6), t(g, 4, 4, 3, 3), CONV, Sequence(), options=o),
    ),
    "cholesky": ("blockSize", lambda g, o: poplin.cholesky(g, t(g, 4, 4), True, Sequence(), options=o)),
    "group norm": (
        "groupNormStridedChannelGrouping",
        lambda g, o: popnn.group_norm_statistics(g, t(g, 2, 4, 3), 1e-5, Sequence(), 2, options=o),
    ),
    "lstm": ("recomputationMode", lambda g, o: lstm.create_weights(g, LSTM, options=o)),
    "gru": ("weightAccumulatorsType", lambda g, o: gru.create_weights(g, GRU, options=o)),
    "ctc": ("availableMemoryProportion", lambda g, o: ctc.plan(g, "f32", "f32", 1, 4, 2, 3, options=o)),
    "ctc inference": ("availableMemoryProportion", lambda g, o: ctc_infer.plan(g, "f32", 1, 4, 3, 2, options=o)),
    "collective": (
        "useReplicatedImplementation",
        lambda g, o: gcl.all_reduce_cross_replica(g, t(g, 4), "ADD", Sequence(), options=o),
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option__misspelt__names_the_right_one(name: str) -> None:
    option, call = OPTIONS[name]
    error = refused(lambda g, p: call(g, {option[:-1] + "x" + option[-1]: "1"}))
    assert isinstance(error, InvalidOptionError)
    assert f"did you mean {option!r}?" in error.message


@pytest.mark.parametrize("name", OPTIONS)
def test_option__value_that_it_does_not_take__is_refused(name: str) -> None:
    option, call = OPTIONS[name]
    error = refused(lambda g, p: call(g, {option: "a lot"}))
    assert isinstance(error, AbeleError)
    assert "a lot" in error.message
