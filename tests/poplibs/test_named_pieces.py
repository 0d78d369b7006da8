"""Functions that are others under PopLibs' names, in groups or into given tensors."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import TensorError, TypeMismatchError
from abele.expr import POPOPS as OPS
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import gcl, poplin, popnn, popops
from abele.poplibs.popnn import gru, lstm, rnn
from abele.poplibs.popops.expressions import names as expr_names
from abele.runtime import Engine

NUMBERS = np.array([0.25, 0.5, 0.75, 0.9], np.float32)
SPECIAL = {"bool": np.array([True, False, True, True]), "i32": np.array([1, 2, 3, 1], np.int32)}


def operands(bench: Bench, name: str) -> list[object]:
    """Operands that the operation takes."""
    arity = OPS[name].arity
    if name.startswith("logical"):
        kind = "bool"
    elif name.startswith(("bitwise", "shift")) or name in ("popcount", "count_leading_zeros", "hash"):
        kind = "i32"
    else:
        kind = "f32"
    values = SPECIAL.get(kind, NUMBERS)
    made = [bench.tensor(np.roll(values, n), kind) for n in range(arity)]
    if name == "select":
        made[2] = bench.tensor(SPECIAL["bool"])
    return made


def test_triads__in_place_and_with_output__are_the_functions() -> None:
    bench, made = Bench(4), {}
    for name in sorted(n for n in OPS if hasattr(popops, n)):
        args = operands(bench, name)
        new = getattr(popops, name)(bench.graph, *args, bench.prog)
        out = bench.tensor(np.zeros(4), new.dtype)
        getattr(popops, f"{name}_with_output")(bench.graph, *args, out, bench.prog)
        made[name] = [new, out]
        if new.dtype == args[0].dtype:
            own = bench.tensor(bench.data[args[0]], args[0].dtype)
            getattr(popops, f"{name}_in_place")(bench.graph, own, *args[1:], bench.prog)
            made[name].append(own)
    found = iter(bench.run_both(*itertools.chain(*made.values())))
    for name, results in made.items():
        wanted, *others = (next(found) for _ in results)
        for got in others:
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_expressions__names_of_poplibs__are_the_functions() -> None:
    bench = Bench(4)
    x, y = bench.tensor(NUMBERS), bench.tensor(NUMBERS[::-1].copy())
    made = [
        popops.map(bench.graph, build(popops._1, popops._2), [x, y], bench.prog)
        for build in (expr_names.Gte, expr_names.Lte, expr_names.Atan2, lambda a, b: expr_names.NearbyInt(a))
    ]
    made.append(popops.map(bench.graph, expr_names.IsNaN(popops._1 / 0.0 * 0.0), [x], bench.prog))
    n = bench.tensor(np.array([-8, 8, -1, 3], np.int32))
    made.append(popops.map(bench.graph, expr_names.ShrSE(popops._1, popops.Const(1)), [n], bench.prog))
    got = bench.run_both(*made)
    other = NUMBERS[::-1]
    for result, wanted in zip(got[:2], (other <= NUMBERS, other >= NUMBERS), strict=True):
        np.testing.assert_array_equal(result, wanted)
    np.testing.assert_allclose(got[2], np.arctan2(NUMBERS, other), rtol=1e-6)
    np.testing.assert_array_equal(got[3], np.rint(NUMBERS))
    assert got[4].all()
    assert got[5].tolist() == [-4, 4, -1, 1]


@pytest.mark.parametrize("operation", ["max", "mul"])
def test_grouped_update__by_name__is_that_of_each_group(operation: str) -> None:
    bench, random = Bench(64), np.random.default_rng(0)
    table = random.integers(1, 5, (2, 6, 3)).astype(np.float32)
    slices = random.integers(1, 5, (2, 4, 1, 3)).astype(np.float32)
    offsets = random.integers(0, 6, (2, 4, 1)).astype(np.uint32)
    target = bench.tensor(table)
    update = getattr(popops, f"groupedMultiUpdate{operation.capitalize()}")
    update(bench.graph, target, bench.tensor(slices), bench.tensor(offsets), (0,), (1,), bench.prog)
    wanted = table.copy()
    join = {"max": np.maximum, "mul": np.multiply}[operation]
    for group in range(2):
        join.at(wanted[group], offsets[group, :, 0], slices[group, :, 0])
    np.testing.assert_array_equal(bench.run_both(target)[0], wanted)


def test_namespaces_of_norms__hold_poplibs_names() -> None:
    bench = Bench(16)
    acts = bench.tensor(np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32))
    for space, kind in ((popnn.bn, "batch"), (popnn.gn, "group"), (popnn.ln, "layer"), (popnn.in_, "instance")):
        gamma, beta = getattr(space, f"create{kind.capitalize()}NormParams")(bench.graph, acts)
        assert gamma.shape == beta.shape == (4,)
        assert getattr(space, f"{kind}Normalise") is getattr(space, f"{kind}_normalise")
    (mean,) = bench.run_both(popnn.ln.layerNormStatistics(bench.graph, acts, 1e-5, bench.prog)[0])
    np.testing.assert_allclose(mean.flatten(), bench.values(acts).mean((1, 2)), atol=1e-6)


def test_kinds__as_enumerators__are_taken_like_names() -> None:
    bench = Bench(4)
    x = bench.tensor(NUMBERS)
    one = popnn.non_linearity(bench.graph, popnn.NonLinearityType.GELU_ERF, x, bench.prog)
    other = popnn.non_linearity(bench.graph, "gelu_erf", x, bench.prog)
    a, b = bench.tensor(NUMBERS), bench.tensor(NUMBERS)
    form = popops.ScaledAddSpecialisation.X_MINUS_AX_PLUS_BY
    popops.scaled_add_to(bench.graph, a, b, 2.0, bench.prog, scale_a=0.5, specialisation=form)
    got = bench.run_both(one, other, a)
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_allclose(got[2], NUMBERS * 2.5, rtol=1e-6)


def test_shifted_sequence__first_step__is_the_single_one() -> None:
    bench = Bench(4)
    base, single = bench.tensor(np.arange(12, dtype=np.float32).reshape(3, 4)), bench.tensor(np.full(4, -1, np.float32))
    made = rnn.shift_rnn_tensor(bench.graph, base, single, bench.prog)
    (got,) = bench.run_both(made)
    np.testing.assert_array_equal(got, [[-1] * 4, range(4), range(4, 8)])
    with pytest.raises(TensorError, match="does not have the shape of a step of"):
        rnn.shift_rnn_tensor(bench.graph, base, base, bench.prog)
    with pytest.raises(TypeMismatchError, match="is i32"):
        rnn.shift_rnn_tensor(bench.graph, base, bench.tensor(np.zeros(4, np.int32)), bench.prog)


def test_param_delta_update__one_step__adds_outer_products() -> None:
    bench, layer, random = Bench(16), rnn.RnnParams("f32", 2, 3, (5, 4)), np.random.default_rng(0)
    deltas = rnn.create_weights(bench.graph, layer)
    gradient, x, before = (bench.tensor(random.standard_normal((2, n)).astype(np.float32)) for n in (4, 5, 4))
    tensors = [deltas.input, deltas.output, deltas.biases]
    for tensor in tensors:
        bench.data[tensor] = random.standard_normal(tensor.shape).astype(np.float32)
    rnn.param_delta_update(bench.graph, gradient, x, before, deltas, bench.prog)
    g = bench.values(gradient)
    added = [bench.values(x).T @ g, bench.values(before).T @ g, g.sum(0)]
    for got, tensor, term in zip(bench.run_both(*tensors), tensors, added, strict=True):
        np.testing.assert_allclose(got[0], bench.values(tensor)[0] + term, atol=1e-5)


def test_recurrent_tensors__shapes__follow_from_the_layer() -> None:
    bench, layer = Bench(16), rnn.RnnParams("f32", 2, 3, (5, 4))
    assert rnn.createInputTensor(bench.graph, layer).shape == (3, 2, 5)
    assert rnn.createOutputTensor(bench.graph, layer).shape == (3, 2, 4)
    of_lstm = lstm.LstmParams("f32", 2, 3, (5, 4))
    assert lstm.createInitialOutput(bench.graph, of_lstm).shape == (2, 4)
    assert lstm.createInitialCellState(bench.graph, of_lstm).shape == (2, 4)
    with pytest.raises(TensorError, match="0 columns"):
        rnn.create_recurrent_tensor(bench.graph, layer, 0)


def test_gru_with_attention__names_of_its_own__same_values_and_gradients() -> None:
    bench, layer, random = Bench(16), gru.GruParams("f32", 2, 3, (4, 4)), np.random.default_rng(0)
    state, x = gru.create_initial_state(bench.graph, layer), gru.create_input(bench.graph, layer)
    weights, attention = gru.create_weights(bench.graph, layer), gru.create_attention(bench.graph, layer)
    for tensor in (state, x, weights.input, weights.output, weights.biases, attention):
        bench.data[tensor] = (random.random(tensor.shape) * 0.5).astype(np.float32)
    results = []
    for named in (True, False):
        if named:
            made = gru.auGruFwd(bench.graph, layer, state, x, weights, attention, bench.prog)
            given = layer, state, made.intermediates, weights, x, attention, made.output, bench.prog
            back, with_update = gru.auGruBwd(bench.graph, *given), gru.auGruBwdWithWU(bench.graph, *given)
            updated = gru.auGruWU(bench.graph, layer, back, x, bench.prog)
            results += [updated.input, with_update.weights.input, updated.output, with_update.weights.output]
        else:
            made = gru.gru_fwd(bench.graph, layer, state, x, weights, bench.prog, attention=attention)
            given = layer, state, made.intermediates, weights, x, made.output, bench.prog
            back = gru.gru_bwd(bench.graph, *given, attention=attention)
        results += [made.output, back.input, back.state, back.attention]
    got = bench.run(*results)
    np.testing.assert_allclose(got[0], got[1], atol=1e-5)
    np.testing.assert_allclose(got[2], got[3], atol=1e-5)
    for one, other in zip(got[4:8], got[8:], strict=True):
        np.testing.assert_array_equal(one, other)


def replicas(n: int) -> Graph:
    whole = systems.get("bow-pod16").with_ipus(n)
    return Graph(replace(whole, ipu=replace(whole.ipu, num_tiles=4)), replicas=n)


def test_collectives__into_destinations__are_the_collectives() -> None:
    graph, prog = replicas(2), Sequence()
    x = graph.variable("f32", (5,), name="x").map_linear()
    part, whole = (graph.variable("f32", shape, name="out").map_linear() for shape in ((3,), (2, 5)))
    gcl.reduceScatterToDestinationCrossReplica(graph, x, part, "ADD", prog)
    gcl.allGatherToDestinationCrossReplica(graph, x, whole, prog)
    gcl.allReduceInPlaceCrossReplica(graph, x, gcl.CollectiveOperator.MAX, prog, gcl.CommGroup(gcl.CommGroupType.ALL))
    values = np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], np.float32)
    with Engine(graph, prog, mode="tiles", keep=[x, part, whole]) as engine:
        engine[x] = values
        engine.run()
        assert np.asarray(engine[part]).tolist() == [[6, 6, 6], [6, 6, 0]]
        assert np.asarray(engine[whole]).tolist() == [values.tolist()] * 2
        assert np.asarray(engine[x]).tolist() == [[5, 4, 3, 4, 5]] * 2


def test_collectives__destination_that_does_not_fit__is_named() -> None:
    graph, prog = replicas(2), Sequence()
    x = graph.variable("f32", (5,), name="x").map_linear()
    short = graph.variable("f32", (2,), name="short").map_linear()
    half = graph.variable("f16", (2, 5), name="half").map_linear()
    with pytest.raises(TensorError, match=r"'short'.* has shape \[2\], the result has \[3\]"):
        gcl.reduce_scatter_cross_replica_to_destination(graph, x, short, "ADD", prog)
    with pytest.raises(TypeMismatchError, match="their types differ"):
        gcl.all_gather_cross_replica_to_destination(graph, x, half, prog)


def test_report_of_grouped_products__names_of_poplibs__is_a_plan() -> None:
    graph = Bench(64).graph
    assert "plan" in poplin.matMulGroupedReportPlan(graph, "f16", "f16", (2, 8, 16), (2, 16, 8)).lower()
