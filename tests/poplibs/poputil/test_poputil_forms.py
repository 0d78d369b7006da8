"""Calls in the order of PopLibs' headers do what the same calls do with our names of arguments."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench, system_of

from abele import Graph
from abele.compiler.text import program_text
from abele.errors import AbeleError, InvalidOptionError, TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Execute, Sequence, Tensor
from abele.graph.clone import TensorCloneMethod
from abele.graph.debug_context import DebugContext, DebugNameAndId
from abele.numerics import f16, f32
from abele.poplar.values import OptionFlags
from abele.poplibs import gcl, poplin, popnn, popops, poprand, poputil
from abele.poplibs.popnn import cpp_forms, gru, lstm
from abele.poplibs.popops import Operation, ReduceParams, ScaledAddSpecialisation
from abele.poplibs.popops import expr as pe
from abele.poplibs.poputil.arguments import Arguments, Forms, make_form

Case = Callable[[Graph, Sequence], Any]
POOL = popnn.PoolParams(popnn.PoolingType.MAX, (6, 6), (2, 2), (2, 2), (0, 0), (0, 0), 4, 2, f32)
LSTM = lstm.LstmParams(f32, 2, 3, (4, 5))
GRU = gru.GruParams(f32, 2, 3, (4, 5))
ADD, MAX = ReduceParams(Operation.ADD), ReduceParams(Operation.MAX)
OPTIONS = {"availableMemoryProportion": "0.3"}


def t(graph: Graph, *shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return graph.variable(dtype, shape, name=name, map="linear")


def a(g: Graph) -> Tensor:
    return t(g, 4, 4, name="a")


def b(g: Graph) -> Tensor:
    return t(g, 4, 4, name="b")


def seed(g: Graph) -> Tensor:
    return t(g, 2, dtype="u32", name="seed")


def acts(g: Graph) -> Tensor:
    return t(g, 2, 4, 6, 6, name="acts")


def ch(g: Graph) -> Tensor:
    return t(g, 4, name="channels")


def of_lstm(g: Graph) -> tuple[Any, ...]:
    return lstm.createInitialState(g, LSTM), lstm.createInput(g, LSTM), lstm.createWeights(g, LSTM)


def of_gru(g: Graph) -> tuple[Any, ...]:
    return gru.createInitialState(g, GRU), gru.createInput(g, GRU), gru.createWeights(g, GRU)


SAME: dict[str, tuple[Case, Case]] = {
    "name": (lambda g, p: popops.add(g, a(g), b(g), p, "n"), lambda g, p: popops.add(g, a(g), b(g), prog=p, name="n")),
    "name in braces": (
        lambda g, p: popops.exp(g, a(g), p, {"n"}, {}),
        lambda g, p: popops.exp(g, a(g), p, name="n"),
    ),
    "empty braces": (lambda g, p: popops.exp(g, a(g), p, {}, {}), lambda g, p: popops.exp(g, a(g), p)),
    "debug context": (
        lambda g, p: popops.mulInPlace(g, a(g), b(g), p, DebugContext("layer", "mul")),
        lambda g, p: popops.mul_in_place(g, a(g), b(g), p, name="layer/mul"),
    ),
    "debug context by name": (
        lambda g, p: popops.zero(g, a(g), p, name=DebugNameAndId("z")),
        lambda g, p: popops.zero(g, a(g), p, name="z"),
    ),
    "context and name": (
        lambda g, p: popops.zero(g, a(g), p, [DebugContext("layer"), "z"]),
        lambda g, p: popops.zero(g, a(g), p, name="layer/z"),
    ),
    "options": (
        lambda g, p: popops.map(g, pe._1 * 2.0 + 1.0, [a(g)], p, "m", {"enableGenerateCodelet": "false"}),
        lambda g, p: popops.map(g, pe._1 * 2.0 + 1.0, [a(g)], p, name="m", options={"enableGenerateCodelet": "false"}),
    ),
    "options without a name": (
        lambda g, p: popops.map(g, pe._1 * 2.0 + 1.0, [a(g)], p, {"enableGenerateCodelet": "false"}),
        lambda g, p: popops.map(g, pe._1 * 2.0 + 1.0, [a(g)], p, options={"enableGenerateCodelet": "false"}),
    ),
    "reduce": (
        lambda g, p: popops.reduce(g, a(g), f16, [0], ADD, p, "r", {"accumType.interTile": "float"}),
        lambda g, p: popops.reduce(
            g, a(g), [0], "ADD", p, out_type=f16, name="r", options={"accumType.interTile": "float"}
        ),
    ),
    "reduce without a type": (
        lambda g, p: popops.reduce(g, a(g), [1], MAX, p, "r"),
        lambda g, p: popops.reduce(g, a(g), [1], "MAX", p, name="r"),
    ),
    "reduce with a scale": (
        lambda g, p: popops.reduce(g, a(g), [1], ReduceParams(Operation.ADD, False, t(g, name="s")), p),
        lambda g, p: popops.reduce(g, a(g), [1], "ADD", p, scale=t(g, name="s")),
    ),
    "reduce into": (
        lambda g, p: popops.reduceWithOutput(g, a(g), ch(g), [0], ReduceParams(Operation.ADD, True), p, "r"),
        lambda g, p: popops.reduce_with_output(g, a(g), ch(g), [0], "ADD", p, update=True, name="r"),
    ),
    "reduce many": (
        lambda g, p: popops.reduceMany(g, [popops.SingleReduceOp(a(g), [0], ADD)], [ch(g)], p, "many"),
        lambda g, p: popops.reduce_many(g, [popops.SingleReduceOp(a(g), (0,), ADD)], p, outputs=[ch(g)], name="many"),
    ),
    "map of an enumerator": (
        lambda g, p: popops.map(g, pe.BinaryOpType.ADD, a(g), b(g), p, "m"),
        lambda g, p: popops.map(g, pe._1 + pe._2, [a(g), b(g)], p, name="m"),
    ),
    "map in place of an enumerator": (
        lambda g, p: popops.mapInPlace(g, pe.UnaryOpType.TANH, a(g), p),
        lambda g, p: popops.map_in_place(g, pe.Tanh(pe._1), [a(g)], p),
    ),
    "map into of an enumerator": (
        lambda g, p: popops.mapWithOutput(g, pe.TernaryOpType.CLAMP, a(g), b(g), b(g), a(g), p),
        lambda g, p: popops.map_with_output(g, pe.Clamp(pe._1, pe._2, pe._3), [a(g), b(g), b(g)], a(g), p),
    ),
    "scaled add": (
        lambda g, p: popops.scaledAddTo(g, a(g), b(g), 0.5, p, "s", {"optimizeForSpeed": "true"}),
        lambda g, p: popops.scaled_add_to(g, a(g), b(g), 0.5, p, name="s", options={"optimizeForSpeed": True}),
    ),
    "scaled add of both": (
        lambda g, p: popops.scaledAddTo(g, a(g), t(g, name="s"), b(g), 0.5, p),
        lambda g, p: popops.scaled_add_to(g, a(g), b(g), 0.5, p, scale_a=t(g, name="s")),
    ),
    "scaled add, specialised": (
        lambda g, p: popops.scaledAddTo(
            g, a(g), 0.1, b(g), 0.5, p, ScaledAddSpecialisation.X_MINUS_AX_PLUS_BY, "s", {}
        ),
        lambda g, p: popops.scaled_add_to(
            g, a(g), b(g), 0.5, p, scale_a=0.1, specialisation="X_MINUS_AX_PLUS_BY", name="s"
        ),
    ),
    "scaled subtract": (
        lambda g, p: popops.scaledSubtractFrom(g, a(g), 2.0, b(g), 0.5, p, "s"),
        lambda g, p: popops.scaled_subtract_from(g, a(g), b(g), 0.5, p, scale_a=2.0, name="s"),
    ),
    "cast into": (
        lambda g, p: popops.cast(g, a(g), t(g, 4, 4, dtype="f16"), p),
        lambda g, p: popops.cast_with_output(g, a(g), t(g, 4, 4, dtype="f16"), p),
    ),
    "pad without a graph": (
        lambda g, p: popops.pad(a(g), [1, 0], [0, 1], popops.PaddingType.REFLECT),
        lambda g, p: popops.pad(g, a(g), (1, 0), (0, 1), popops.PaddingType.REFLECT),
    ),
    "pad of one dimension": (
        lambda g, p: popops.pad(g, a(g), 1, 2, 1, 0.0),
        lambda g, p: popops.pad(g, a(g), (0, 1), (0, 2), 0.0),
    ),
    "encode": (
        lambda g, p: popops.encodeOneHot(g, t(g, 4, dtype="u32"), a(g), p, 0.9, 0.1, "e"),
        lambda g, p: popops.encode_one_hot(g, t(g, 4, dtype="u32"), a(g), p, on=0.9, off=0.1, name="e"),
    ),
    "histogram into": (
        lambda g, p: popops.histogram(g, a(g), t(g, 3), True, t(g, 2, name="levels"), False, p, "h"),
        lambda g, p: popops.histogram_with_output(g, a(g), t(g, 3), True, t(g, 2, name="levels"), False, p, name="h"),
    ),
    "not finite": (
        lambda g, p: popops.hasNaN(g, a(g), p, True, "n"),
        lambda g, p: popops.has_nan_or_inf(g, a(g), p, name="n"),
    ),
    "image": (
        lambda g, p: popops.normaliseImage(g, p, t(g, 2, 4, 4, 3), 1.0, t(g, 3), t(g, 3), "n"),
        lambda g, p: popops.normalise_image(g, t(g, 2, 4, 4, 3), 1.0, t(g, 3), t(g, 3), p, name="n"),
    ),
    "gather": (
        lambda g, p: popops.gather(g, a(g), t(g, 3, dtype="u32"), 0, p, {}, "n"),
        lambda g, p: popops.gather(g, a(g), t(g, 3, dtype="u32"), axis=0, prog=p, name="n"),
    ),
    "multi slice": (
        lambda g, p: popops.multiSlice(g, a(g), t(g, 3, 1, dtype="u32"), [0], [1], p, None, {}, "n"),
        lambda g, p: popops.multi_slice(g, a(g), t(g, 3, 1, dtype="u32"), (0,), (1,), p, name="n"),
    ),
    "sliceable with a grain": (
        lambda g, p: popops.createSliceableTensor(g, f32, [8, 4], [0], [1], 16, "n"),
        lambda g, p: popops.create_sliceable_tensor(g, f32, (8, 4), (0,), (1,), name="n"),
    ),
    "product": (
        lambda g, p: poplin.matMul(g, a(g), b(g), p, "mm", OPTIONS, poplin.PlanningCache()),
        lambda g, p: poplin.matmul(g, a(g), b(g), p, name="mm", options=OPTIONS),
    ),
    "product of a type": (
        lambda g, p: poplin.matMul(g, a(g), b(g), p, f32, {}, {}, poplin.matmul.PlanningCache()),
        lambda g, p: poplin.matmul(g, a(g), b(g), p, output_type=f32),
    ),
    "product onto": (
        lambda g, p: poplin.matMulAcc(g, a(g), 0.5, a(g), b(g), p, "acc", OPTIONS),
        lambda g, p: poplin.matmul_acc(g, a(g), 0.5, a(g), b(g), p, name="acc", options=OPTIONS),
    ),
    "product into": (
        lambda g, p: poplin.matMulWithOutput(g, a(g), b(g), t(g, 4, 4, name="o"), p, "mm", OPTIONS),
        lambda g, p: poplin.matmul_with_output(g, a(g), b(g), t(g, 4, 4, name="o"), p, name="mm", options=OPTIONS),
    ),
    "operand of a product": (
        lambda g, p: poplin.createMatMulInputRHS(g, f32, f32, [4, 8], [8, 4], "w", OPTIONS),
        lambda g, p: poplin.create_matmul_input_rhs(g, f32, (4, 8), (8, 4), name="w", options=OPTIONS),
    ),
    "uniform": (
        lambda g, p: poprand.uniform(g, seed(g), 1, a(g), f32, -1.0, 2.0, p, "u"),
        lambda g, p: poprand.uniform(g, seed(g), 1, a(g), p, low=-1.0, high=2.0, out_type=f32, name="u"),
    ),
    "log uniform": (
        lambda g, p: poprand.logUniform(g, seed(g), 1, a(g), f32, 1.0, 2.0, p, 10.0),
        lambda g, p: poprand.log_uniform(g, seed(g), 1, a(g), p, low=1.0, high=2.0, base=10.0, out_type=f32),
    ),
    "normal": (
        lambda g, p: poprand.normal(g, None, 1, a(g), f16, 0.5, 2.0, p),
        lambda g, p: poprand.normal(g, None, 1, a(g), p, mean=0.5, std=2.0, out_type=f16),
    ),
    "truncated normal": (
        lambda g, p: poprand.truncatedNormal(g, None, 1, a(g), f32, 0.5, 2.0, 3.0, p),
        lambda g, p: poprand.truncated_normal(g, None, 1, a(g), p, mean=0.5, std=2.0, alpha=3.0, out_type=f32),
    ),
    "bernoulli": (
        lambda g, p: poprand.bernoulli(g, seed(g), 1, a(g), f32, 0.25, p),
        lambda g, p: poprand.bernoulli(g, seed(g), 1, a(g), 0.25, p, out_type=f32),
    ),
    "dropout": (
        lambda g, p: poprand.dropout(g, seed(g), 1, a(g), b(g), 0.5, 2.0, p, "d"),
        lambda g, p: poprand.dropout(g, seed(g), 1, a(g), 0.5, p, scale=2.0, reference=b(g), name="d"),
    ),
    "pool": (
        lambda g, p: popnn.pooling.pool(g, POOL, acts(g), p, "pool"),
        lambda g, p: popnn.pool(g, acts(g), POOL, p, name="pool"),
    ),
    "pool input": (
        lambda g, p: popnn.pooling.createInput(g, POOL, "in"),
        lambda g, p: popnn.create_pool_input(g, f32, POOL, name="in"),
    ),
    "gradient of a pool": (
        lambda g, p: popnn.pooling.poolInputGradient(g, POOL, acts(g), t(g, 2, 4, 3, 3), t(g, 2, 4, 3, 3), True, p),
        lambda g, p: popnn.pool_input_gradient(
            g, POOL, t(g, 2, 4, 3, 3), acts(g), t(g, 2, 4, 3, 3), prog=p, use_scaled_gradient=True
        ),
    ),
    "batch statistics": (
        lambda g, p: popnn.bn.batchNormStatistics(g, acts(g), 1e-3, p, False, True, f32, "bn"),
        lambda g, p: popnn.batch_norm_statistics(g, acts(g), 1e-3, p, stable=True, name="bn"),
    ),
    "normalise with statistics": (
        lambda g, p: popnn.bn.batchNormalise(g, acts(g), ch(g), ch(g), p, "bn"),
        lambda g, p: popnn.batch_normalise_inference(g, acts(g), ch(g), ch(g), p, name="bn"),
    ),
    "gradients of a norm": (
        lambda g, p: popnn.bn.batchNormGradients(g, acts(g), acts(g), ch(g), ch(g), ch(g), p, f32, "bn"),
        lambda g, p: popnn.batch_norm_gradients(g, acts(g), acts(g), ch(g), ch(g), p, mean=ch(g), name="bn"),
    ),
    "group statistics": (
        lambda g, p: popnn.gn.groupNormStatistics(
            g, acts(g), 1e-3, p, 2, True, False, f32, "gn", {"groupNormStridedChannelGrouping": "false"}
        ),
        lambda g, p: popnn.group_norm_statistics(
            g, acts(g), 1e-3, p, 2, unbiased=True, name="gn", options={"groupNormStridedChannelGrouping": False}
        ),
    ),
    "loss": (
        lambda g, p: p.add(
            popnn.calcLoss(
                g, a(g), t(g, 4, dtype="u32"), ch(g), b(g), t(g, dtype="u32"), popnn.LossType.CROSS_ENTROPY_LOSS, "l"
            )
        ),
        lambda g, p: p.add(
            popnn.calc_loss(
                g,
                a(g),
                t(g, 4, dtype="u32"),
                ch(g),
                b(g),
                popnn.LossType.CROSS_ENTROPY_LOSS,
                num_correct=t(g, dtype="u32"),
                name="l",
            )
        ),
    ),
    "lstm": (
        lambda g, p: lstm.lstmFwd(
            g,
            LSTM,
            lstm.createInitialState(g, LSTM),
            lstm.createInput(g, LSTM),
            lstm.createWeights(g, LSTM),
            None,
            p,
            "f",
        ),
        lambda g, p: lstm.lstm_fwd(
            g,
            LSTM,
            lstm.create_initial_state(g, LSTM),
            lstm.create_input(g, LSTM),
            lstm.create_weights(g, LSTM),
            p,
            name="f",
        ),
    ),
    "gru": (
        lambda g, p: gru.gruFwd(g, GRU, *of_gru(g), None, p, "f", {}),
        lambda g, p: gru.gru_fwd(g, GRU, *of_gru(g), p, name="f"),
    ),
    "collective without a group": (
        lambda g, p: gcl.allReduceCrossReplica(g, a(g), gcl.CollectiveOperator.ADD, p, "ar", {}),
        lambda g, p: gcl.all_reduce_cross_replica(g, a(g), "ADD", p, name="ar"),
    ),
    "collective with a group": (
        lambda g, p: gcl.allGatherCrossReplica(g, a(g), p, gcl.CommGroup(gcl.CommGroupType.ALL, 0), "ag"),
        lambda g, p: gcl.all_gather_cross_replica(g, a(g), p, gcl.CommGroup("ALL"), name="ag"),
    ),
}


def built(case: Case) -> tuple[str, str]:
    graph, prog = Graph(system_of(16)), Sequence()
    made = case(graph, prog)
    return program_text(prog), repr(made)


@pytest.mark.parametrize("name", SAME)
def test_call__in_poplibs_order__is_the_same_call(name: str) -> None:
    theirs, ours = SAME[name]
    assert built(theirs) == built(ours)


def test_reduce__into_compute_sets__appends_to_the_list() -> None:
    graph, sets = Graph(system_of(4)), []
    out = popops.reduce(graph, a(graph), f32, [0], ADD, sets, "r")
    assert (out.shape, len(sets)) == ((4,), 1)


def test_slices__at_known_offsets__are_views() -> None:
    graph = Graph(system_of(4))
    assert popops.multiSlice(graph, a(graph), [3, 1], 0, "n").shape == (2, 1, 4)


def test_report__with_a_stream_first__writes_there() -> None:
    graph, out = Graph(system_of(4)), io.StringIO()
    poplin.matMulReportPlan(out, graph, f32, f32, [4, 4], [4, 4], {})
    assert out.getvalue().rstrip() == poplin.matmul_report_plan(graph, f32, f32, (4, 4), (4, 4))


LIBRARIES: list[tuple[Any, Forms]] = [
    (popops, popops.FORMS),
    (poplin, poplin.FORMS),
    (poprand, poprand.FORMS),
    (popnn, popnn.FORMS),
    (gcl, gcl.FORMS),
    (poputil, poputil.FORMS),
    (lstm, {k: v for k, v in cpp_forms.RECURRENT_FORMS.items() if k.startswith("lstm")}),
    (gru, {k: v for k, v in cpp_forms.RECURRENT_FORMS.items() if k.startswith("gru")}),
]


@pytest.mark.parametrize(("library", "forms"), LIBRARIES, ids=lambda x: getattr(x, "__name__", ""))
def test_forms__of_a_library__name_functions_and_parameters_that_there_are(library: Any, forms: Forms) -> None:
    for name, orders in forms.items():
        function = getattr(library, name).__wrapped__
        for order in orders:
            text, target = (order, function) if isinstance(order, str) else order
            form = make_form(target, text)
            required = set(Arguments(target).required) - {"graph"}
            given = {word.name for word in form.words} | (
                {"op", "scale", "update"} if any(word.spread for word in form.words) else set()
            )
            assert required <= given, (name, text)


WRONG: dict[str, tuple[type[AbeleError], str, Case]] = {
    "too many": (
        TypeMismatchError,
        "add: argument 7, int 3, has no meaning",
        lambda g, p: popops.add(g, a(g), b(g), p, "n", {}, 3),
    ),
    "nothing given": (TypeMismatchError, "add: x and y and prog must be given", lambda g, p: popops.add(g)),
    "no program": (TypeMismatchError, "exp: prog must be given", lambda g, p: popops.exp(g, a(g))),
    "wrong program": (
        TypeMismatchError,
        "reduce: prog must be the Sequence that steps are appended to or a list, got int 5",
        lambda g, p: popops.reduce(g, a(g), f32, [0], ADD, 5),
    ),
    "other graph": (
        AbeleError,
        "belongs to another graph",
        lambda g, p: poprand.uniform(g, None, 1, a(Graph("bow")), f32, 0.0, 1.0, p),
    ),
    "misspelt argument": (
        TypeMismatchError,
        "scaled_add_to: nme is no argument",
        lambda g, p: popops.scaledAddTo(g, a(g), b(g), 1.0, p, nme="x"),
    ),
    "argument twice": (
        TypeMismatchError,
        "exp: prog is given twice",
        lambda g, p: popops.exp(g, a(g), p, prog=p),
    ),
    "options of a function without": (
        InvalidOptionError,
        "zero has no options, got {'speed': 'fast'}",
        lambda g, p: popops.zero(g, a(g), p, "z", {"speed": "fast"}),
    ),
    "misspelt option by place": (
        InvalidOptionError,
        "did you mean 'optimizeForSpeed'?",
        lambda g, p: popops.scaledAddTo(g, a(g), b(g), 1.0, p, "n", {"optimiseForSpeed": "1"}),
    ),
    "update without an output": (
        AbeleError,
        "reduce: ReduceParams with update=True needs an output",
        lambda g, p: popops.reduce(g, a(g), [0], ReduceParams(Operation.ADD, True), p),
    ),
    "params of something else": (
        TypeMismatchError,
        "reduce: ",
        lambda g, p: popops.reduce(g, a(g), f32, [0], POOL, p),
    ),
    "expression of two in one": (
        InvalidOptionError,
        "add: 1 argument, needs 2",
        lambda g, p: popops.map(g, pe.Add(pe._1), [a(g)], p),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_call__that_fits_no_order__is_refused_in_words(name: str) -> None:
    kind, text, call = WRONG[name]
    graph = Graph(system_of(4))
    with pytest.raises(kind) as caught:
        call(graph, Sequence())
    assert text in str(caught.value)


def test_recurrent_params__in_poplibs_order__are_those_by_name() -> None:
    graph = Graph(system_of(4))
    steps = t(graph, 2, dtype="u32")
    kinds = popnn.NonLinearityType
    assert lstm.LstmParams(f32, 2, 3, [4, 5], kinds.RELU, kinds.TANH) == lstm.LstmParams(
        f32, 2, 3, (4, 5), activation="relu", recurrent_activation="tanh"
    )
    assert lstm.LstmParams(f32, 2, 3, [4, 5], kinds.RELU) == lstm.LstmParams(f32, 2, 3, (4, 5), activation="relu")
    varying = gru.GruParams(f32, 2, 3, steps, [4, 5], kinds.TANH, kinds.SIGMOID)
    assert (varying.lengths is steps, varying.layer_sizes) == (True, (4, 5))


def test_embedding_plan__with_groups__is_that_by_name() -> None:
    graph = Graph(system_of(16))
    options = {"usedForUpdate": "false"}
    theirs = popops.embedding.plan(graph, f32, 2, 50, 8, 12, options)
    assert theirs == popops.embedding.plan(graph, f32, 50, 8, 12, group_size=2, options=options)
    assert popops.embedding.planMultiple(graph, f32, 50, 8, [3, 12], options) == popops.embedding.plan(
        graph, f32, 50, 8, 12, options
    )


def test_mapping__with_offset_in_poplibs_order__begins_there() -> None:
    graph = Graph(system_of(8))
    x = graph.variable("f32", (64,))
    poputil.mapTensorLinearlyWithOffset(graph, x, 8, 4, 3)
    assert [sum(i.size() for i in tile) for tile in graph.getTileMapping(x)] == [8] * 8
    assert graph.getTileMapping(x)[3][0].begin() == 0
    poputil.mapTensorLinearlyWithOffset(graph, x, 3, False)
    assert graph.getTileMapping(x)[4][0].begin() == 0


def test_half__asked_with_a_target__is_what_it_is_without() -> None:
    target = Graph(system_of(4)).getTarget()
    assert poputil.castToDeviceHalfValue(target, 0.1) == poputil.cast_to_device_half_value(0.1)
    assert poputil.checkAccuracyWhenCast(target, 0.5, f32, f16, 1e-6)
    assert not poputil.checkAccuracyWhenCast(target, 0.1, f32, f16, 1e-6)


def test_cast__into_a_compute_set__adds_its_vertices() -> None:
    data = np.linspace(-3, 3, 16, dtype=np.float32)
    bench = Bench(4)
    x, out = bench.tensor(data), bench.tensor(np.zeros(16), "f16")
    cs = bench.graph.compute_set("casts")
    popops.cast(bench.graph, x, out, cs)
    new = popops.cast(bench.graph, x, f16, cs, "cast")
    bench.prog.add(Execute(cs))
    assert bench.graph.compute_sets == [cs]
    for got in bench.run_both(out, new):
        np.testing.assert_array_equal(got, data.astype(np.float16))


def test_non_linearity__into_a_compute_set__adds_its_vertices() -> None:
    data = np.linspace(-3, 3, 16, dtype=np.float32)
    bench = Bench(4)
    x, y = bench.tensor(data), bench.tensor(data)
    cs = bench.graph.compute_set("relu")
    popnn.nonLinearityInPlace(bench.graph, popnn.NonLinearityType.RELU, x, cs, "relu")
    gradient = popnn.nonLinearityInputGradient(bench.graph, popnn.NonLinearityType.TANH, y, y, cs)
    bench.prog.add(Execute(cs))
    got = bench.run_both(x, gradient)
    np.testing.assert_allclose(got, [np.maximum(data, 0), data * (1 - data**2)], rtol=1e-5, atol=1e-5)


def test_softmax__into_a_compute_set__is_refused() -> None:
    graph = Graph(system_of(4))
    with pytest.raises(UnsupportedOpError, match="steps do not fit one compute set"):
        popnn.nonLinearityInPlace(graph, popnn.NonLinearityType.SOFTMAX, a(graph), graph.addComputeSet("s"))


def test_plan__of_nothing__is_none() -> None:
    graph, prog = Graph(system_of(4)), Sequence()
    rows = popops.multiSlice(
        graph, t(graph, 50, 4), t(graph, 3, 1, dtype="u32"), [0], [1], prog, popops.SlicePlan(), OptionFlags(), "rows"
    )
    assert (popops.SlicePlan(), rows.shape) == (None, (3, 1, 4))


def test_loop__with_a_program_as_its_body__runs_it() -> None:
    bench = Bench(4)
    total, limit = bench.tensor(np.zeros(1, np.int32)), bench.tensor(np.full(1, 5, np.int32))
    body = Sequence()
    popops.addInPlace(bench.graph, total, 2, body)
    bench.prog.add(popops.countedForLoop(bench.graph, 0, limit, 1, body, "loop"))
    assert bench.run_both(total)[0].tolist() == [10]
    with pytest.raises(TypeMismatchError, match="body must be a function, got int 3"):
        popops.counted_loop(bench.graph, 0, 5, 1, 3)


def test_clone__with_a_method_last__is_made() -> None:
    graph = Graph(system_of(4))
    made = poputil.cloneN(graph, a(graph), 3, "copies", TensorCloneMethod.CREATE_NEW_ORDER)
    assert (made.shape, made.name) == ((3, 4, 4), "copies/0")
    assert poplin.createCholeskyInput(graph, f32, [4, 4], True, "c", {}).shape == (4, 4)


def test_recurrent_params__fields_of_poplibs__can_be_read_and_set() -> None:
    params = lstm.LstmParams(f32, 2, 3, [4, 5])
    params.outputFullSequence = False
    params.calcInputGradients = False
    assert params == lstm.LstmParams(f32, 2, 3, (4, 5), output_full_sequence=False, calc_input_gradients=False)
    assert (params.timeSteps, params.layerSizes, params.outputFullSequence) == (3, (4, 5), False)
    changed = gru.GruParams(f32, 2, 3, (4, 5))
    changed.resetAfter = True
    assert changed.reset_after
    with pytest.raises(TensorError, match="lstm: batch cannot be set once the parameters are made"):
        params.batch = 3
    with pytest.raises(InvalidOptionError, match="cell order"):
        params.cellOrder = ("forget",)
