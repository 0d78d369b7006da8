"""Operators of PopART's own domain beside NumPy and PyTorch, and older versions of ONNX's beside its reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from onnx.reference import ReferenceEvaluator

from abele import popart
from frontends.popart.popart_kit import All, infer, inference

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 4)).astype(np.float32)
Y = RANDOM.uniform(0.5, 2, (3, 4)).astype(np.float32)
LABELS = np.array([1, 3, 0], np.int32)
SHARES = torch.softmax(torch.tensor(X), -1).numpy()
F = torch.nn.functional


def own(name: str, *given: Any, **named: Any) -> Callable[..., Any]:
    """A builder's method of PopART's domain."""
    return lambda builder, *args: getattr(builder.aiGraphcore, name)(list(args), *given, **named)


def nll(reduction: str, ignored: int = -100) -> Any:
    return F.nll_loss(
        torch.tensor(SHARES).log(), torch.tensor(LABELS).long(), reduction=reduction, ignore_index=ignored
    )


ELEMENTS: list[tuple[Any, tuple[Any, ...], Any]] = [
    (own("atan2"), (X, Y), np.arctan2(X, Y)),
    (own("expm1"), (X,), np.expm1(X)),
    (own("log1p"), (Y,), np.log1p(Y)),
    (own("fmod"), (X, Y), np.fmod(X, Y)),
    (own("remainder"), (X, Y), np.remainder(X, Y)),
    (own("gelu"), (X,), F.gelu(torch.tensor(X), approximate="tanh").numpy()),
    (own("geluerf"), (X,), F.gelu(torch.tensor(X)).numpy()),
    (own("swish"), (X,), F.silu(torch.tensor(X)).numpy()),
    (own("nearbyint"), (X * 3,), np.rint(X * 3)),
    (own("scale", 0.25), (X,), 0.25 * X),
    (own("scaledadd", 2.0, 3.0), (X, Y), 2 * X + 3 * Y),
    (own("incrementmod", 1.0, 3.0), (np.arange(3, dtype=np.float32),), [1, 2, 0]),
    (own("bitwiseand"), (LABELS, LABELS + 1), LABELS & (LABELS + 1)),
    (own("bitwisexnor"), (LABELS, LABELS + 1), ~(LABELS ^ (LABELS + 1))),
    (own("bucketize", 1), (X, np.array([-1, 0, 1], np.float32)), np.digitize(X, [-1, 0, 1])),
    (own("reverse", [1]), (X,), X[:, ::-1]),
    (own("slice", [3, 4], [1, 2], [0, 1]), (X,), X[1:3, 2:4]),
    (own("subsample", [2, 3]), (X,), X[::2, ::3]),
    (own("reshape", [2, 6]), (X,), X.reshape(2, 6)),
    (own("dynamicslice", [0], [2]), (X, np.array([1], np.uint32)), X[1:3]),
    (own("dynamicupdate", [0], [1]), (X, np.array([2], np.uint32), Y[:1]), np.concatenate([X[:2], Y[:1]])),
    (own("dynamicadd", [0], [1]), (X, np.array([0], np.uint32), Y[:1]), np.concatenate([X[:1] + Y[:1], X[1:]])),
    (own("dynamiczero", [0], [1]), (X, np.array([0], np.uint32)), np.concatenate([0 * X[:1], X[1:]])),
]
LOSSES: list[tuple[Any, tuple[Any, ...], Any]] = [
    (own("l1loss", 0.5), (X,), 0.5 * np.abs(X).mean()),
    (own("l1loss", 0.5, popart.ReductionType.Sum), (X,), 0.5 * np.abs(X).sum()),
    (own("l1loss", 0.5, popart.ReductionType.NoReduction), (X,), 0.5 * np.abs(X)),
    (own("identityloss"), (X,), X.mean()),
    (own("nllloss"), (SHARES, LABELS), nll("mean").numpy()),
    (own("nllloss", popart.ReductionType.Sum, 3), (SHARES, LABELS), nll("sum", 3).numpy()),
    (own("nllloss", popart.ReductionType.Mean, 3), (SHARES, LABELS), nll("mean", 3).numpy()),
    (own("nllloss", popart.ReductionType.NoReduction), (SHARES, LABELS), nll("none").numpy()),
    (own("nllloss", popart.ReductionType.Sum, None, True), (np.log(SHARES), LABELS), nll("sum").numpy()),
]


PLAIN = (0, 4, 14, 16, 20, len(ELEMENTS) + 5, len(ELEMENTS) + 6)
"""Cases of plain runs; the others are slow."""


def mostly_slow(count: int, plain: tuple[int, ...]) -> list[Any]:
    return [n if n in plain else pytest.param(n, marks=pytest.mark.slow) for n in range(count)]


@pytest.mark.parametrize("number", mostly_slow(len(ELEMENTS) + len(LOSSES), PLAIN))
def test_operator__of_arrays__is_numpys_or_pytorchs(number: int) -> None:
    make, arrays, want = (ELEMENTS + LOSSES)[number]
    np.testing.assert_allclose(infer(make, *arrays), want, rtol=2e-5, atol=2e-6)


def test_sort_and_median__of_rows__are_numpys() -> None:
    made, places = infer(own("sort", descending=1), X)
    np.testing.assert_array_equal(made, -np.sort(-X))
    np.testing.assert_array_equal(np.take_along_axis(X, places, 1), made)
    median, _ = infer(own("reducemedian", [1], 0), X)
    np.testing.assert_array_equal(median, torch.tensor(X).median(1).values.numpy())


def test_group_normalization__of_images__is_pytorchs() -> None:
    image = RANDOM.standard_normal((2, 4, 3, 3)).astype(np.float32)
    gain, shift = (RANDOM.standard_normal(4).astype(np.float32) for _ in range(2))
    made, mean, _ = infer(own("groupnormalization", 2), image, gain, shift)
    want = F.group_norm(torch.tensor(image), 2, torch.tensor(gain), torch.tensor(shift))
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean.reshape(2, 2), image.reshape(2, 2, -1).mean(-1), atol=1e-6)


@pytest.mark.parametrize("reduction", ["Sum", pytest.param("Max", marks=pytest.mark.slow), "Mul"])
def test_grouped_scatter_reduce__groups_with_their_own_numbers__are_numpys(reduction: str) -> None:
    data = RANDOM.standard_normal((2, 5, 3)).astype(np.float32)
    numbers = RANDOM.integers(0, 4, (2, 5)).astype(np.uint32)
    start = RANDOM.standard_normal((2, 4, 3)).astype(np.float32)
    join = {"Sum": np.add, "Max": np.maximum, "Mul": np.multiply}[reduction]
    want = start.copy()
    for group in range(2):
        join.at(want[group], numbers[group], data[group])
    kind = getattr(popart.ScatterReduction, reduction)
    made = infer(own("groupedscatterreduce", 4, 0, kind, 2), data, numbers, start)
    np.testing.assert_allclose(made, want, rtol=1e-5)


def test_splines__of_degree_one_and_two__sum_to_one_and_weigh_features() -> None:
    places = RANDOM.uniform(0, 0.99, (6, 2)).astype(np.float32)
    for degree in (1, 2):
        builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo("FLOAT", [6, 2]))
        size, opened = (builder.aiOnnx.constant(np.array(v, np.int32)) for v in ([4, 5], [1, 1]))
        basis, numbers = builder.aiGraphcore.splinebasis([x, size, opened], degree)
        session, found = inference(builder, [basis, numbers])
        session.run(popart.PyStepIO({x: places}, found))
        np.testing.assert_allclose(found[basis].sum(1), 1, rtol=1e-5)
    want = np.zeros((6, 9), np.float32)
    scaled = places * (np.array([4, 5]) - 2)
    for row in range(9):
        steps = np.array([row % 3, row // 3])
        at = (np.floor(scaled) + steps) % [4, 5]
        want[:, row] = at[:, 0] + 4 * at[:, 1]
    np.testing.assert_array_equal(found[numbers], want)
    features, weights = (RANDOM.standard_normal(s).astype(np.float32) for s in ((6, 2), (20, 2, 3)))
    made = infer(own("splineweighting"), features, weights, found[basis], found[numbers])
    picked = np.einsum("es,esio,ei->eo", found[basis], weights[found[numbers].astype(int)], features)
    np.testing.assert_allclose(made, picked, rtol=1e-4, atol=1e-5)


def test_replicated_reduce_scatter__two_replicas__have_a_part_of_the_sum_each() -> None:
    builder, options = popart.Builder(), popart.SessionOptions()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    made = builder.aiGraphcore.replicatedreducescatter([x])
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    session, found = inference(builder, {made: All}, options=options, ipus=2)
    given = RANDOM.standard_normal((2, 5)).astype(np.float32)
    session.run(popart.PyStepIO({x: given}, found))
    np.testing.assert_allclose(found[made].ravel(), [*given.sum(0), 0], rtol=1e-6)


def test_nll_loss__labels_of_another_shape__are_refused_in_popart_words() -> None:
    with pytest.raises(Exception, match="must have shape \\[3\\] to match all but the final dimension"):
        infer(own("nllloss"), SHARES, LABELS[:2])


# --- versions of ONNX's operators -------------------------------------------------------------------------------------

IMAGE = RANDOM.standard_normal((1, 2, 4, 4)).astype(np.float32)


def onnx_op(name: str, *given: Any, **named: Any) -> Callable[..., Any]:
    return lambda builder, *args: getattr(builder.aiOnnx, name)(list(args), *given, **named)


def sliced(builder: Any, x: str) -> str:
    parts = [builder.aiOnnx.constant(np.array(v, np.int64)) for v in ([0, 3], [3, 0], [0, 1], [1, -1])]
    return str(builder.aiOnnx.slice([x, *parts]))


VERSIONS: list[tuple[int, Any, tuple[Any, ...]]] = [
    (7, onnx_op("add"), (X, X[:1])),
    (8, onnx_op("maxpool", 1, [2, 2], strides=[2, 2]), (IMAGE,)),
    (9, onnx_op("slice", axes=[0], starts=[1], ends=[3]), (X,)),
    (9, onnx_op("clip", max=0.5, min=-0.5), (X,)),
    (9, onnx_op("pad", [0, 1, 0, 2]), (X,)),
    (10, sliced, (X,)),
    (11, onnx_op("round"), (X,)),
]


@pytest.mark.parametrize("number", mostly_slow(len(VERSIONS), (1, 2, 4)))
def test_versions__of_onnx__mean_what_the_reference_evaluator_says(number: int) -> None:
    version, make, arrays = VERSIONS[number]
    builder = popart.Builder(opsets={"ai.onnx": version})
    names = [builder.addInputTensor(popart.TensorInfo(array)) for array in arrays]
    made = make(builder, *names)
    made = made if isinstance(made, str) else made[0]
    builder.addOutputTensor(made)
    proto = onnx.load_from_string(builder.getModelProto())
    for value in proto.graph.output:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    [want] = ReferenceEvaluator(proto).run(None, dict(zip(names, arrays, strict=True)))
    session, found = inference(builder, [made])
    session.run(popart.PyStepIO(dict(zip(names, arrays, strict=True)), found))
    np.testing.assert_allclose(found[made], want, rtol=1e-5, atol=1e-6)


def test_softmax__before_opset_13__goes_over_all_dimensions_from_the_axis() -> None:
    # ONNX's evaluator gives old versions the meaning of the new one: the oracle is the text of the old schema.
    want = torch.softmax(torch.tensor(IMAGE).reshape(1, -1), 1).reshape(IMAGE.shape)
    np.testing.assert_allclose(infer(onnx_op("softmax", axis=1), IMAGE, opsets={"ai.onnx": 9}), want, rtol=1e-5)
