"""Networks that are split over replicas: the same as the whole network in PyTorch, in training and inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.compiler.durations import host_cycles
from abele.distribution import tensor_parallel as tp
from abele.errors import GraphReplicationError, InvalidOptionError, TensorIndexError
from abele.graph import Copy, Graph
from abele.network import Adam, Group, Lamb, Network, NetworkBuilder, Optimiser, Schedule, Sgd, Split
from abele.network.ops import build
from abele.network.schedule import OutputMode
from abele.poplibs.gcl import CommGroup
from abele.session import Session, Settings, SharedArrays, compile_network
from support.examples import examples
from support.thread_ranks import ThreadRanks, in_ranks

ENTRIES, WIDTH, HEADS, TOKENS, BATCH = 11, 8, 4, 5, 2
RNG = np.random.default_rng(17)
WEIGHTS: dict[str, np.ndarray] = {
    name: RNG.normal(0, scale, shape).astype(np.float32)
    for name, shape, scale in [
        ("table", (ENTRIES, WIDTH), 1.0),
        ("gain", (WIDTH,), 1.0),
        ("shift", (WIDTH,), 1.0),
        ("qkv", (3 * WIDTH, WIDTH), 0.4),
        ("qkv_bias", (3 * WIDTH,), 0.4),
        ("out", (WIDTH, WIDTH), 0.4),
        ("out_bias", (WIDTH,), 0.4),
        ("up", (12, WIDTH), 0.4),
        ("up_bias", (12,), 0.4),
        ("down", (WIDTH, 12), 0.4),
        ("down_bias", (WIDTH,), 0.4),
    ]
}


def split_network(group: CommGroup) -> tuple[Network, tp.SplitParameters]:
    """A small transformer whose table is also its last layer; each replica has a part."""
    net = NetworkBuilder()
    parts = tp.SplitParameters(net, group)
    ids, labels = net.input((BATCH, TOKENS), "i32", "ids"), net.input((BATCH * TOKENS,), "i32", "labels")

    def made(name: str, dim: int | None = None, blocks: int = 1) -> Any:
        shape = WEIGHTS[name].shape
        if dim is None:
            return net.parameter(shape, "f32", name)
        return parts.parameter(shape, "f32", name, dim=dim, blocks=blocks)

    table = made("table", 0)
    hidden = tp.vocabulary_embedding(net, table, ids, ENTRIES, group)
    rows = build.reshape(net, hidden, (BATCH * TOKENS, WIDTH))
    rows = build.norm(net, rows, 1, 1e-5, made("gain"), made("shift"))[0]
    layer = tp.Attention((made("qkv", 0, 3), made("qkv_bias", 0, 3)), (made("out", 1), made("out_bias")), HEADS)
    hidden = tp.attention(net, build.reshape(net, rows, (BATCH, TOKENS, WIDTH)), layer, group, causal=True)
    inner = tp.column_linear(net, hidden, made("up", 0), made("up_bias", 0), group)
    hidden = tp.row_linear(net, build.nonlinearity(net, "tanh", inner), made("down", 1), made("down_bias"), group)
    scores = tp.column_linear(net, hidden, table, None, group)
    net.output(tp.gather_features(net, scores, ENTRIES, group))
    flat = build.reshape(net, scores, (BATCH * TOKENS, scores.shape[-1]))
    net.loss = tp.vocabulary_cross_entropy(net, flat, labels, ENTRIES, group)
    net.output(net.loss)
    return net.finish(), parts


def whole(
    weights: dict[str, torch.Tensor], ids: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The network in PyTorch."""
    f, w = torch.nn.functional, weights
    hidden = f.layer_norm(f.embedding(ids, w["table"]), (WIDTH,), w["gain"], w["shift"])
    qkv = f.linear(hidden, w["qkv"], w["qkv_bias"]).split(WIDTH, -1)
    query, key, value = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in qkv)
    mixed = f.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
    hidden = f.linear(mixed, w["out"], w["out_bias"])
    hidden = f.linear(torch.tanh(f.linear(hidden, w["up"], w["up_bias"])), w["down"], w["down_bias"])
    scores = f.linear(hidden, w["table"])
    return scores, f.cross_entropy(scores.flatten(0, 1), labels.flatten().long())


def data(models: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Tokens for so many models, and labels of which one does not count."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, ENTRIES, (models * BATCH * TOKENS,)).astype(np.int32)
    labels[3] = -100
    return rng.integers(0, ENTRIES, (models * BATCH, TOKENS)).astype(np.int32), labels


def compiled(group: CommGroup, replicas: int, groups: Any = None, mode: str = "native", **schedule: Any) -> Session:
    net, parts = split_network(group)
    return Session.of(
        net,
        parts.schedule(Schedule(replicas=replicas, **schedule)),
        groups=None if groups is None else [Group(groups, net.parameters)],
        settings=Settings(system="bow-2000" if replicas <= 4 else "bow-pod16", mode=mode),
        weights=WEIGHTS,
    )


@pytest.mark.parametrize(
    ("group", "replicas", "mode"),
    [
        (CommGroup.consecutive(2), 2, "tiles"),
        (CommGroup.consecutive(4), 4, "native"),
        (CommGroup.consecutive(2), 4, "native"),
        (CommGroup.orthogonal(2), 4, "native"),
    ],
    ids=str,
)
def test_inference__of_a_split_transformer__is_pytorch(group: CommGroup, replicas: int, mode: str) -> None:
    models = replicas // group.size
    ids, labels = data(models)
    scores, losses = compiled(group, replicas, mode=mode)(ids, labels)
    weights = {name: torch.tensor(a) for name, a in WEIGHTS.items()}
    rows = labels.reshape(models, BATCH * TOKENS)
    expected = [
        whole(weights, torch.tensor(i), torch.tensor(r))
        for i, r in zip(ids.reshape(models, BATCH, TOKENS), rows, strict=True)
    ]
    np.testing.assert_allclose(scores, torch.cat([s for s, _ in expected]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.ravel(losses), [loss.item() for _, loss in expected], rtol=1e-5)


OPTIMISERS: dict[str, tuple[Optimiser, Any]] = {
    "sgd": (Sgd(lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    # Keys' biases have no effect: a small eps would make steps of what rounding leaves of their gradients.
    "adam": (Adam(lr=0.01, eps=1e-3), lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3)),
}


def trained(make: Any, models: int, accumulation: int, updates: int, mean: bool) -> dict[str, np.ndarray]:
    """The weights after as many updates in PyTorch."""
    weights = {name: torch.tensor(a, requires_grad=True) for name, a in WEIGHTS.items()}
    optimiser = make(list(weights.values()))
    for update in range(updates):
        ids, labels = data(models * accumulation, update)
        rows = labels.reshape(-1, BATCH * TOKENS)
        parts = zip(ids.reshape(-1, BATCH, TOKENS), rows, strict=True)
        losses = [whole(weights, torch.tensor(i), torch.tensor(r))[1] for i, r in parts]
        optimiser.zero_grad()
        (sum(losses) / (len(losses) if mean else 1)).backward()
        optimiser.step()
    return {name: t.detach().numpy() for name, t in weights.items()}


@pytest.mark.parametrize(
    ("name", "group", "replicas", "accumulation", "mean"),
    [
        ("adam", CommGroup.consecutive(2), 4, 1, True),
        ("sgd", CommGroup.consecutive(2), 4, 2, False),
        ("sgd", CommGroup.orthogonal(2), 4, 1, True),
        ("adam", CommGroup.consecutive(4), 4, 1, False),
    ],
    ids=str,
)
def test_training__tensor_and_data_parallel__is_pytorch_on_the_whole_batch(
    name: str, group: CommGroup, replicas: int, accumulation: int, mean: bool
) -> None:
    mine, theirs = OPTIMISERS[name]
    session = compiled(group, replicas, mine, accumulation=accumulation, mean=mean)
    models = replicas // group.size
    for update in range(3):
        session(*data(models * accumulation, update))
    expected = trained(theirs, models, accumulation, 3, mean)
    for weight, values in expected.items():
        np.testing.assert_allclose(session.weights[weight], values, rtol=1e-4, atol=2e-5, err_msg=weight)
    if name == "adam":
        assert session.state["qkv/moment1"].shape == WEIGHTS["qkv"].shape
    # Weights that replicas have alike stay so to the bit.
    engine = session._loaded("be looked at")
    rows = engine.read(session.compiled.ends.weights["gain"].handle).view(np.uint32)
    assert (rows == rows[0]).all()


@pytest.mark.parametrize("name", ["lamb", "clipped"])
def test_training__by_norms_of_layers__takes_those_of_whole_layers(name: str) -> None:
    optimiser = {"lamb": Lamb(lr=0.02, weight_decay=0.1, eps=1e-3), "clipped": Sgd(lr=0.1, max_grad_norm=0.2)}[name]
    alone = compiled(CommGroup.consecutive(1), 1, optimiser)
    split = compiled(CommGroup.consecutive(2), 2, optimiser)
    for update in range(2):
        given = data(1, update)
        np.testing.assert_allclose(split(*given)[1], alone(*given)[1], rtol=1e-5)
    for weight in WEIGHTS:
        np.testing.assert_allclose(split.weights[weight], alone.weights[weight], rtol=1e-4, atol=1e-5, err_msg=weight)


def test_split_weights__written_on_the_host__reach_every_replica_and_come_back_whole() -> None:
    session = compiled(CommGroup.consecutive(4), 4)
    ids, labels = data(1)
    session(ids, labels)
    other = {name: np.flip(a, 0).copy() for name, a in WEIGHTS.items()}
    for name, values in other.items():
        session.weights[name] = values
    scores, _ = session(ids, labels)
    session.download()
    expected, _ = whole({n: torch.tensor(a) for n, a in other.items()}, torch.tensor(ids), torch.tensor(labels))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    for name, values in other.items():
        np.testing.assert_array_equal(session.weights[name], values)


@given(
    parts=st.integers(1, 5),
    each=st.integers(1, 4),
    blocks=st.integers(1, 3),
    dim=st.integers(0, 2),
    less=st.integers(0, 4),
)
@examples(15)
def test_split__of_any_array__comes_together_again(parts: int, each: int, blocks: int, dim: int, less: int) -> None:
    extent = parts * each * blocks
    extent -= min(less, extent - 1) if blocks == 1 else 0
    shape = [2, 3, 4]
    shape[dim] = extent
    array = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    split = Split(dim, extent, blocks)
    cut = split.cut(array, parts)
    assert cut.shape == (parts, *(split.part_extent(parts) if d == dim else n for d, n in enumerate(shape)))
    np.testing.assert_array_equal(split.join(cut), array)
    assert split.whole_shape(cut.shape[1:]) == tuple(shape)
    if blocks > 1:
        first = np.split(array, blocks, dim)
        own = np.concatenate([np.split(b, parts, dim)[0] for b in first], dim)
        np.testing.assert_array_equal(cut[0], own)


def test_schedule__that_does_not_go_with_a_split_model__is_refused() -> None:
    two = CommGroup.consecutive(2)
    with pytest.raises(
        GraphReplicationError, match="replicas 0, 1 compute one model together, and are given different"
    ):
        Schedule(replicas=4, tensor_parallel=two)
    with pytest.raises(GraphReplicationError, match="different inputs"):
        Schedule(replicas=4, tensor_parallel=two, input_groups=CommGroup.orthogonal(2))
    with pytest.raises(GraphReplicationError, match="STRIDED groups of replicas cannot compute models"):
        tp.SplitParameters(NetworkBuilder(), CommGroup.strided(2, 2)).schedule(Schedule(replicas=4))
    with pytest.raises(InvalidOptionError, match="do not divide into 4 parts"):
        tp.SplitParameters(NetworkBuilder(), CommGroup.consecutive(4)).parameter((9, 2), "f32", "qkv", blocks=3)


def test_token__outside_of_the_whole_vocabulary__is_refused() -> None:
    session = compiled(CommGroup.consecutive(2), 2)
    ids, labels = data(1)
    ids[0, 0] = ENTRIES
    with pytest.raises(TensorIndexError, match="11"):
        session(ids, labels)


def test_split_model__shared_by_ranks__has_the_bits_of_one_process() -> None:
    whole_job = compiled(CommGroup.consecutive(2), 4, OPTIMISERS["adam"][0])
    ids, labels = data(2)
    expected = whole_job(ids, labels)

    def one(ranks: ThreadRanks) -> Any:
        net, parts = split_network(CommGroup.consecutive(2))
        session = Session(
            compile_network(
                net,
                parts.schedule(Schedule(replicas=4, ranks=2)),
                groups=[Group(OPTIMISERS["adam"][0], net.parameters)],
                settings=Settings(system="bow-2000"),
            ),
            weights=SharedArrays(WEIGHTS),
            ranks=ranks,
        )
        own = slice(ranks.rank * BATCH, (ranks.rank + 1) * BATCH)
        made = session(ids[own], labels.reshape(2, -1)[ranks.rank])
        return made, {name: session.weights[name] for name in WEIGHTS}

    found = in_ranks(2, one)
    for rank, result in enumerate(found):
        assert not isinstance(result, Exception), result
        made, weights = result
        np.testing.assert_array_equal(made[0], expected[0][rank * BATCH : (rank + 1) * BATCH])
        np.testing.assert_array_equal(np.ravel(made[1]), np.ravel(expected[1])[rank])
        for name, values in weights.items():
            np.testing.assert_array_equal(values, whole_job.weights[name], err_msg=name)


def test_own_values__of_which_a_rank_has_none__are_refused() -> None:
    with pytest.raises(GraphReplicationError, match="'w', and some process has no replica of one"):
        Schedule(replicas=4, ranks=2, own_values=(("w", CommGroup.consecutive(2)),))
    across = CommGroup.orthogonal(2)
    with pytest.raises(GraphReplicationError, match="one model together are in several of the 2 processes"):
        Schedule(replicas=4, ranks=2, tensor_parallel=across, input_groups=across)


@pytest.mark.parametrize("outputs", [OutputMode.ALL, OutputMode.FINAL, OutputMode.SUM, OutputMode.EVERY_N], ids=str)
@pytest.mark.parametrize("size", [2, 4])
def test_outputs__of_replicas_that_are_one_model__are_sent_once(outputs: OutputMode, size: int) -> None:
    net, group = NetworkBuilder(), CommGroup.consecutive(size)
    parts = tp.SplitParameters(net, group)
    up, down = parts.parameter((12, 8), "f32", "up"), parts.parameter((8, 12), "f32", "down", dim=1)
    hidden = tp.column_linear(net, net.input((3, 8), "f32", "x"), up, None, group)
    net.output(tp.row_linear(net, build.nonlinearity(net, "relu", hidden), down, None, group))
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=s).astype(np.float32) for n, s in (("up", (12, 8)), ("down", (8, 12)))}
    schedule = parts.schedule(Schedule(4, outputs=outputs, period=2, replicas=4))
    session = Session.of(net.finish(), schedule, weights=weights, settings=Settings(system="bow-pod16"))
    x = rng.normal(size=(schedule.micro_batches * 3, 8)).astype(np.float32)
    rounds = (np.maximum(x @ weights["up"].T, 0) @ weights["down"].T).reshape(4, -1, 3, 8)
    wanted = {
        OutputMode.ALL: rounds,
        OutputMode.FINAL: rounds[-1],
        OutputMode.SUM: rounds.sum(0),
        OutputMode.EVERY_N: rounds[1::2],
    }[outputs]
    np.testing.assert_allclose(session(x)[0], wanted.reshape(-1, 8), rtol=1e-4, atol=1e-5)
    streams = session.compiled.executable.graph.streams
    assert [s.replicated for name, s in streams.items() if name.startswith("output")] == [size < 4]


def test_stream__that_is_not_replicated__costs_what_the_first_replica_sends() -> None:
    cycles = {}
    for replicated in (True, False):
        graph = Graph("bow-pod16", replicas=8)
        x = graph.map_linear(graph.variable("f32", (1_000_000,), name="x"))
        stream = graph.host_stream_out("out", "f32", x.shape, replicated=replicated)
        cycles[replicated] = compile_program(graph, Copy(x, stream)).report.cycles().host
        replicas = 8 if replicated else 1
        # Each has two of the sixteen IPUs.
        assert cycles[replicated] == host_cycles(4_000_000 * replicas, 2 * replicas, graph.whole_system)
    assert cycles[False] < cycles[True]
