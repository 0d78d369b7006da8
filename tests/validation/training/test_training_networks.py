"""Networks of published runs: what they compute, beside PyTorch, and how their layers are cut into stages."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from abele.errors import InvalidOptionError
from abele.network import evaluate, verify
from abele.network.ir import Network, NetworkBuilder
from abele.numerics import f16
from abele.validation.training.bert import Bert
from abele.validation.training.resnet import ResNet
from abele.validation.training.runs import Gpt, Vit
from abele.validation.training.transformer import LayerBuilder, LayerSizes, StagePlan

torch = pytest.importorskip("torch")
functional = torch.nn.functional

SIZES = LayerSizes(hidden=16, heads=2, feed_forward=32)
Array = npt.NDArray[np.generic]


def values(net: Network, **inputs: Array) -> dict[str, Array]:
    """The inputs, and weights that keep the size of what they multiply."""
    rng = np.random.default_rng(0)
    made = {}
    for p in net.parameters:
        scale = 1.0 if len(p.shape) < 2 else 1 / math.sqrt(np.prod(p.shape[1:]))
        made[p.name] = (rng.normal(size=p.shape) * scale * 0.5 + p.name.endswith("gain")).astype(p.dtype.np)
    return {**made, **inputs}


def results(net: Network, given: dict[str, Array]) -> list[Array]:
    found = evaluate(net, {v: given[v.name] for v in (*net.inputs, *net.parameters)})
    return [np.asarray(found[v]) for v in net.outputs]


def layers_in_torch(given: dict[str, Array], count: int, x, mask, *, norms_first: bool):  # type: ignore[no-untyped-def]
    """Layers in 64 bits: x [samples, tokens, hidden], True in the mask where a token is seen."""
    w = {name: torch.tensor(np.asarray(a, np.float64)) for name, a in given.items()}

    def norm(y, name):  # type: ignore[no-untyped-def]
        return functional.layer_norm(y, y.shape[-1:], w[f"{name}/gain"], w[f"{name}/shift"], SIZES.eps)

    def linear(y, name):  # type: ignore[no-untyped-def]
        return y @ w[f"{name}/weight"].T + w[f"{name}/bias"]

    def attention(y, name):  # type: ignore[no-untyped-def]
        q, k, v = linear(y, f"{name}/qkv").chunk(3, -1)
        q, k, v = (t.reshape(*t.shape[:2], SIZES.heads, -1).transpose(1, 2) for t in (q, k, v))
        context = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return linear(context.transpose(1, 2).reshape(y.shape), f"{name}/out")

    def feed_forward(y, name):  # type: ignore[no-untyped-def]
        return linear(functional.gelu(linear(y, f"{name}/up"), approximate="tanh"), f"{name}/down")

    for number in range(count):
        for part, what in ((attention, "attention"), (feed_forward, "feed_forward")):
            name = f"layer{number}/{what}"
            x = x + part(norm(x, f"{name}/norm"), name) if norms_first else norm(x + part(x, name), f"{name}/norm")
    return x, w, norm, linear


@pytest.mark.parametrize("norms_first", [False, True])
def test_layers__two__are_what_pytorch_computes(norms_first: bool) -> None:
    net, samples, tokens = NetworkBuilder(), 2, 5
    x = net.input((samples * tokens, SIZES.hidden), f16, "x")
    plan = StagePlan.of_layers((2,))
    made = LayerBuilder(net, SIZES, plan, samples, tokens, checkpoints=True, norms_first=norms_first)
    net.output(made.layers(x))
    network = net.finish()
    given = values(network, x=np.random.default_rng(1).normal(size=x.shape).astype(np.float16))
    (ours,) = results(network, given)
    start = torch.tensor(given["x"].astype(np.float64)).reshape(samples, tokens, -1)
    theirs = layers_in_torch(given, 2, start, None, norms_first=norms_first)[0]
    np.testing.assert_allclose(ours.reshape(theirs.shape), theirs.numpy(), atol=0.03)


def test_bert__packed_sequences__see_only_themselves() -> None:
    model = Bert(SIZES, StagePlan(((1, 0), (1, 2))), 6, packed=2, masked=3, vocabulary=11)
    net = model.network(2)
    verify(net)
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 11, (2, 6)).astype(np.int32)
    groups = np.array([[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 1, 1]], np.int32)
    positions = np.array([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]], np.int32)
    masked, labels = np.array([[0, 3, 5], [1, 4, 0]], np.int32), np.array([[4, 0, 7], [1, 2, 0]], np.int32)
    starts, following = np.array([[0, 3], [0, 4]], np.int32), np.array([[1, 0], [0, 1]], np.int32)
    given = values(
        net,
        word_ids=ids,
        position_ids=positions,
        segment_ids=np.zeros_like(ids),
        sequence_ids=groups,
        masked_positions=masked,
        masked_labels=labels,
        sequence_starts=starts,
        next_sentence_labels=following,
    )
    (loss,) = results(net, given)
    w = {name: torch.tensor(np.asarray(a, np.float64)) for name, a in given.items()}
    x = w["embedding/word"][ids] + w["embedding/position"][positions] + w["embedding/segment"][0]
    mask = torch.tensor(groups[:, None, :, None] == groups[:, None, None, :])
    x = functional.layer_norm(x, x.shape[-1:], w["embedding/norm/gain"], w["embedding/norm/shift"], SIZES.eps)
    x, _, norm, linear = layers_in_torch(given, 2, x, mask, norms_first=False)
    rows = torch.stack([x[i, masked[i]] for i in range(2)]).reshape(6, -1)
    rows = norm(functional.gelu(linear(rows, "head/dense"), approximate="tanh"), "head/norm")
    logits = rows @ w["embedding/word"].T + w["head/bias"]
    words = functional.cross_entropy(logits, torch.tensor(labels.reshape(-1).astype(np.int64)), reduction="none")
    first = torch.stack([x[i, starts[i]] for i in range(2)]).reshape(4, -1)
    sentences = linear(torch.tanh(linear(first, "pooler")), "next_sentence")
    second = functional.cross_entropy(sentences, torch.tensor(following.reshape(-1).astype(np.int64)))
    wanted = (words * torch.tensor(labels.reshape(-1) != 0)).sum() / 6 + second
    assert float(loss) == pytest.approx(float(wanted), rel=0.02)


def test_gpt__tokens__see_those_before_them() -> None:
    net = Gpt(SIZES, StagePlan.of_layers((0, 1)), tokens=4, vocabulary=9).network(2)
    verify(net)
    rng = np.random.default_rng(3)
    ids, labels = rng.integers(0, 9, (2, 2, 4)).astype(np.int32)
    given = values(net, word_ids=ids, labels=labels)
    (loss,) = results(net, given)
    w = {name: torch.tensor(np.asarray(a, np.float64)) for name, a in given.items()}
    x = w["embedding/word"][ids] + w["embedding/position"]
    x, _, norm, _ = layers_in_torch(given, 1, x, torch.ones(4, 4, dtype=torch.bool).tril(), norms_first=True)
    logits = norm(x, "head/norm").reshape(8, -1) @ w["embedding/word"].T
    wanted = functional.cross_entropy(logits, torch.tensor(labels.reshape(-1).astype(np.int64)))
    assert float(loss) == pytest.approx(float(wanted), rel=0.02)


def test_vit__images__are_patches_and_a_token() -> None:
    net = Vit(SIZES, StagePlan.of_layers((1, 0)), image=8, patch=4, classes=5).network(2)
    verify(net)
    rng = np.random.default_rng(4)
    image, label = rng.normal(size=(2, 3, 8, 8)).astype(np.float16), np.array([3, 1], np.int32)
    given = values(net, image=image, label=label)
    (loss,) = results(net, given)
    w = {name: torch.tensor(np.asarray(a, np.float64)) for name, a in given.items()}
    kernel = w["patches/weight"].reshape(16, 3, 4, 4)
    patches = functional.conv2d(torch.tensor(image.astype(np.float64)), kernel, w["patches/bias"], stride=4)
    tokens = [w["class_token"].expand(2, 1, 16), patches.flatten(2).transpose(1, 2)]
    x = torch.cat(tokens, 1) + w["positions"]
    x, _, norm, linear = layers_in_torch(given, 1, x, None, norms_first=True)
    logits = linear(norm(x, "head/norm")[:, 0], "head")
    wanted = functional.cross_entropy(logits, torch.tensor(label.astype(np.int64)))
    assert float(loss) == pytest.approx(float(wanted), rel=0.02)


def test_resnet__stretches_computed_again__change_nothing() -> None:
    small = {"blocks": (1, 1), "widths": (4, 8), "image": 16, "classes": 5}
    plain, again = ResNet(**small).network(4), ResNet(**small, recompute_after=(1,)).network(4)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    image, label = rng.integers(0, 256, (4, 3, 16, 16)).astype(np.uint8), np.array([0, 4, 2, 2], np.int32)
    losses = [results(net, values(net, image=image, label=label))[0] for net in (plain, again)]
    assert losses[0] == losses[1]
    assert [op.kind for op in again.ops].count("checkpoint") == 1


def test_stages__that_do_not_cut_a_row_of_layers__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="stages up to 0 have 4 attention and 5 feed-forward"):
        StagePlan(((4, 5), (7, 6)))
    with pytest.raises(InvalidOptionError, match="no whole layers"):
        StagePlan(((2, 2), (1, 0)))
    plan = StagePlan(((5, 4), (6, 7)), (0.1, 0.2))
    assert plan.attention == [0] * 5 + [1] * 6
    assert plan.feed_forward == [0] * 4 + [1] * 7
    assert plan.layers == 11
    hint = plan.hint(3)
    assert hint is not None
    assert hint.proportion == 0.2
