"""Generate tokens with a Llama-shaped decoder whose weights stream in layer by layer, through ``popxl_addons``.

One graph of a layer is compiled and repeated: each trip loads the next row of remote buffers in streaming memory.
Heads, feed-forward features and the vocabulary are split over replicas, which sum what they made twice a layer. Keys
and values of past tokens stay in a cache that a step writes at the position of its tokens. One program takes a prompt,
a second one token; the second takes over weights and cache from the first.

    python examples/popxl/llama.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from abele.popxl_addons.array_munging import pad_axis, shard
from abele.popxl_addons.layers import Embedding, Linear
from abele.popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from abele.popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants
from abele.popxl_addons.utils import WeightsDict

from abele import popxl
from abele import popxl_addons as addons
from abele.popxl import ops
from abele.popxl_addons import NamedTensors

MASKED = -1e4


@dataclass(frozen=True)
class Config:
    """Sizes of a model, and how it lies on the machine.

    Attributes:
        hidden: Features of a token between layers.
        heads: Heads of queries.
        kv_heads: Heads of keys and values, each for ``heads / kv_heads`` of the queries.
        wide: Features inside of a feed-forward layer.
        layers: Number of layers.
        vocabulary: Number of tokens that there are.
        positions: Most tokens of a sequence.
        batch: Sequences of each model.
        eps: Added to mean squares of a norm.
        base: Of rotary embeddings.
        dtype: Type of weights and activations.
        tensor_parallel: Replicas that share one model.
        data_parallel: Models, each with sequences of its own.
        streams_weights: Weights lie in streaming memory; otherwise on the chip.
        streams_cache: The cache lies in streaming memory, for weights that do; otherwise on the chip.
    """

    hidden: int = 64
    heads: int = 8
    kv_heads: int = 4
    wide: int = 160
    layers: int = 4
    vocabulary: int = 96
    positions: int = 32
    batch: int = 1
    eps: float = 1e-5
    base: float = 10000.0
    dtype: Any = popxl.float32
    tensor_parallel: int = 4
    data_parallel: int = 1
    streams_weights: bool = True
    streams_cache: bool = False

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "wide"):
            if getattr(self, name) % self.tensor_parallel:
                raise ValueError(f"{name} {getattr(self, name)} do not divide by {self.tensor_parallel} replicas")
        if self.heads % self.kv_heads or self.hidden % (2 * self.heads):
            raise ValueError(f"{self.heads} heads do not divide by {self.kv_heads}, or {self.hidden} features by them")

    @property
    def head(self) -> int:
        """Features of a head."""
        return self.hidden // self.heads

    @property
    def cache_shape(self) -> tuple[int, ...]:
        """Shape of a replica's keys, or values, of a layer."""
        return (1, self.batch, self.kv_heads // self.tensor_parallel, self.positions, self.head)

    def groups(self) -> tuple[popxl.ReplicaGrouping, popxl.ReplicaGrouping]:
        """Replicas of one model, and those with the same part of models."""
        sharing = popxl.gir().replica_grouping(group_size=self.tensor_parallel)
        return sharing, sharing.transpose()


class RMSNorm(addons.Module):
    """Features divided by the root of their mean square, with the variable ``weight``."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """As ``x``."""
        weight = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        wide = ops.cast(x, popxl.float32)
        scale = ops.sqrt(ops.mean(wide * wide, axis=-1, keepdims=True) + self.config.eps)
        return ops.cast(wide / scale, x.dtype) * weight


class Attention(addons.Module):
    """Attention of tokens to themselves and to all before them, with a replica's part of the heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.sharing, self.alike = config.groups()
        heads, kv_heads = (n // config.tensor_parallel for n in (config.heads, config.kv_heads))
        self.heads, self.kv_heads = heads, kv_heads
        self.qkv = Linear((heads + 2 * kv_heads) * config.head, bias=False, replica_grouping=self.alike)
        self.output = Linear(config.hidden, bias=False, replica_grouping=self.alike)

    def build(
        self,
        x: popxl.Tensor,
        position: popxl.Tensor,
        turn: list[popxl.Tensor],
        row: popxl.Tensor,
        cache: list[popxl.TensorByRef],
    ) -> popxl.Tensor:
        """The sums that tokens gather of all before them.

        Args:
            x: Tokens [batch, tokens, hidden].
            position: That of the first.
            turn: Sines and cosines of their rotary embeddings.
            row: Row of the caches, which changes.
            cache: Keys and values of all positions.
        """
        c, (batch, tokens, _) = self.config, x.shape
        x = replicated_all_reduce_identical_inputs(x, group=self.sharing)
        qkv = self.qkv(x).reshape((batch, tokens, self.heads + 2 * self.kv_heads, c.head))
        turned = rotary_pos_embed(qkv[:, :, : self.heads + self.kv_heads], *turn, half=True)
        q = turned[:, :, : self.heads].transpose((0, 2, 1, 3))
        new_keys = turned[:, :, self.heads :].transpose((0, 2, 1, 3))
        new_values = qkv[:, :, self.heads + self.kv_heads :].transpose((0, 2, 1, 3))
        k = self.cached(cache[0], new_keys, row, position)
        v = self.cached(cache[1], new_values, row, position)
        # Queries of a group read the same keys, so that they are rows of one product.
        groups = self.heads // self.kv_heads
        q = q.reshape((batch, self.kv_heads, groups * tokens, c.head)) * (c.head**-0.5)
        scores = ops.cast(q @ k.transpose((0, 1, 3, 2)), popxl.float32)
        scores = scores.reshape((batch, self.kv_heads, groups, tokens, c.positions))
        scores = ops.where(self.later(position, tokens), popxl.constant(np.float32(MASKED)), scores)
        shares = ops.cast(ops.softmax(scores, axis=-1), x.dtype)
        mixed = shares.reshape((batch, self.kv_heads, groups * tokens, c.positions)) @ v
        mixed = mixed.reshape((batch, self.heads, tokens, c.head)).transpose((0, 2, 1, 3))
        mixed = self.output(mixed.reshape((batch, tokens, self.heads * c.head)))
        return replicated_all_reduce_identical_grad_inputs(mixed, group=self.sharing)

    def cached(self, cache: popxl.Tensor, new: popxl.Tensor, row: popxl.Tensor, position: popxl.Tensor) -> popxl.Tensor:
        """Keys or values of all positions, after those of new tokens are in the cache."""
        tokens = new.shape[2]
        where = ops.concat([row, position])
        ops.dynamic_update_(cache, where, new.reshape((1, *new.shape)), axes=[0, 3], sizes=[1, tokens])
        layer = cache if cache.shape[0] == 1 else ops.dynamic_slice(cache, row, axes=[0], sizes=[1])
        return layer.reshape(cache.shape[1:])

    def later(self, position: popxl.Tensor, tokens: int) -> popxl.Tensor:
        """True for keys that come after a token, [tokens, positions]."""
        numbers = popxl.constant(np.arange(tokens)[:, None], popxl.int32) + position
        return ops.greater(popxl.constant(np.arange(self.config.positions)[None], popxl.int32), numbers)


class FeedForward(addons.Module):
    """Features of which one half, through swish, scales the other; with a replica's part of the features inside."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.sharing, alike = config.groups()
        self.gate_up = Linear(2 * config.wide // config.tensor_parallel, bias=False, replica_grouping=alike)
        self.down = Linear(config.hidden, bias=False, replica_grouping=alike)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """As ``x``."""
        x = replicated_all_reduce_identical_inputs(x, group=self.sharing)
        gate, up = ops.split(self.gate_up(x), 2, axis=-1)
        return replicated_all_reduce_identical_grad_inputs(self.down(ops.swish(gate) * up), group=self.sharing)


class Layer(addons.Module):
    """One layer of the decoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.attention = RMSNorm(config), Attention(config)
        self.norm2, self.feed_forward = RMSNorm(config), FeedForward(config)

    def build(
        self,
        x: popxl.Tensor,
        position: popxl.Tensor,
        turn: list[popxl.Tensor],
        row: popxl.Tensor,
        cache: list[popxl.TensorByRef],
    ) -> popxl.Tensor:
        """As ``x``."""
        x = x + self.attention(self.norm1(x), position, turn, row, cache)
        return x + self.feed_forward(self.norm2(x))


class Words(addons.Module):
    """Embeddings of tokens: each replica has a part of the vocabulary, and zeros for other tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.sharing, alike = config.groups()
        self.table = Embedding(config.dtype, config.vocabulary, config.hidden, replica_grouping=alike)

    def build(self, words: popxl.Tensor) -> popxl.Tensor:
        """[batch, tokens, hidden]."""
        return replicated_all_reduce_identical_grad_inputs(self.table(words), group=self.sharing)


class Head(addons.Module):
    """Logits of a replica's part of the vocabulary, for one token of each sequence."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.sharing, alike = config.groups()
        size = Embedding.get_vocab_shard_size(config.vocabulary, config.tensor_parallel)
        self.norm, self.logits = RMSNorm(config), Linear(size, bias=False, replica_grouping=alike)

    def build(self, x: popxl.Tensor, last: popxl.Tensor) -> popxl.Tensor:
        """f32[batch, part of the vocabulary]."""
        x = self.norm(ops.dynamic_slice(x, last, axes=[1], sizes=[1]))
        x = replicated_all_reduce_identical_inputs(x, group=self.sharing)
        return ops.cast(self.logits(x), popxl.float32).reshape((x.shape[0], self.logits.out_features))


class Program:
    """A program that takes some tokens of each sequence and gives logits after one of them.

    Args:
        config: The model.
        tokens: Tokens of each sequence that a run takes.

    Attributes:
        session: Its session; its state is the model's variables and caches.
    """

    def __init__(self, config: Config, tokens: int) -> None:
        self.config, self.tokens = config, tokens
        self.state = NamedTensors()
        ir = popxl.Ir(replication=config.tensor_parallel * config.data_parallel)
        with ir.main_graph, popxl.in_sequence():
            self.inputs = addons.InputStreams(
                words=((config.batch, tokens), popxl.int32), position=((1,), popxl.int32), last=((1,), popxl.int32)
            )
            words, position, last = (ops.host_load(stream) for stream in self.inputs)
            x = self.phase("words", Words(config), words)
            x = self.layers(x, position)
            logits = self.phase("head", Head(config), x, last)
            self.outputs = addons.OutputStreams(logits=(logits.shape, logits.dtype))
            ops.host_store(self.outputs.logits, logits)
        self.session = addons.TaskSession(self.inputs, self.outputs, self.state, ir=ir, device_desc="ipu_hw")

    def phase(self, name: str, module: addons.Module, *args: popxl.Tensor) -> popxl.Tensor:
        """The result of a module, whose variables are loaded for it."""
        facts, graph = module.create_graph(*args)
        if self.config.streams_weights:
            buffers = addons.named_variable_buffers(facts, shard_over_dict=False)
            self.state.insert(name, facts.init_remote(buffers, 0, name, empty=True))
            variables = addons.load_remote(buffers, 0)
        else:
            variables = facts.init(name, empty=True)
            self.state.insert(name, variables)
        (made,) = graph.bind(variables).call(*args)
        return made

    def layers(self, x: popxl.Tensor, position: popxl.Tensor) -> popxl.Tensor:
        """``x`` behind all layers."""
        c = self.config
        tables = trig_table_constants(c.positions, c.head, c.base, c.dtype)
        turn = [ops.dynamic_slice(t, position, axes=[0], sizes=[self.tokens]) for t in tables]
        if not c.streams_weights:
            return self.resident(x, position, turn)
        rows = 1 if c.streams_cache else c.layers
        row = popxl.TensorSpec((1,), popxl.int32)
        cache = popxl.TensorSpec((rows, *c.cache_shape[1:]), c.dtype)
        facts, layer = Layer(c).create_graph(x, position, turn, row, [cache, cache])
        buffers = addons.named_variable_buffers(facts, entries=c.layers, shard_over_dict=False)
        for n in range(c.layers):
            self.state.insert(f"layers.{n}", facts.init_remote(buffers, n, f"layer{n}", empty=True))
        load, names = addons.load_remote_graph(buffers)
        number = popxl.constant(0, popxl.int32)
        if c.streams_cache:
            return self.with_streamed_cache((x, position, turn), layer, (load, names))
        caches = self.caches((c.layers, *c.cache_shape[1:]), "cache")

        def trip(
            x: popxl.Tensor,
            n: popxl.Tensor,
            position: popxl.Tensor,
            turn: list[popxl.Tensor],
            cache: list[popxl.TensorByRef],
        ) -> tuple[popxl.Tensor, popxl.Tensor]:
            weights = NamedTensors.pack(names, load.call(n))
            (x,) = layer.bind(weights).call(x, position, turn, n.reshape((1,)), cache)
            return x, n + 1

        repeated = popxl.gir().create_graph(trip, x, number, position, turn, caches)
        return ops.repeat(repeated, c.layers, x, number, position, turn, caches)[0]

    def with_streamed_cache(
        self,
        given: tuple[popxl.Tensor, popxl.Tensor, list[popxl.Tensor]],
        layer: addons.GraphWithNamedArgs,
        weights: tuple[addons.GraphWithNamedArgs, list[str]],
    ) -> popxl.Tensor:
        """``x`` behind all layers, each of which loads its cache and stores it."""
        c, own = self.config, popxl.gir().replica_grouping(group_size=1)
        x, position, turn = given
        zeros = partial(np.zeros, c.cache_shape)
        facts = addons.NamedVariableFactories(
            **{n: addons.VariableFactory(zeros, c.dtype, n, replica_grouping=own) for n in ("key", "value")}
        )
        buffers = addons.named_variable_buffers(facts, entries=c.layers, shard_over_dict=False)
        for n in range(c.layers):
            self.state.insert(f"cache.{n}", facts.init_remote(buffers, n, f"cache{n}"))
        (load, names), (load_cache, cache_names) = weights, addons.load_remote_graph(buffers)
        store_cache = addons.store_remote_graph(buffers)

        def trip(
            x: popxl.Tensor, n: popxl.Tensor, position: popxl.Tensor, turn: list[popxl.Tensor]
        ) -> tuple[popxl.Tensor, popxl.Tensor]:
            loaded = NamedTensors.pack(names, load.call(n))
            cache = NamedTensors.pack(cache_names, load_cache.call(n))
            first = popxl.constant([0], popxl.int32)
            (x,) = layer.bind(loaded).call(x, position, turn, first, [cache.key, cache.value])
            store_cache.bind(cache).call(n)
            return x, n + 1

        number = popxl.constant(0, popxl.int32)
        repeated = popxl.gir().create_graph(trip, x, number, position, turn)
        return ops.repeat(repeated, c.layers, x, number, position, turn)[0]

    def resident(self, x: popxl.Tensor, position: popxl.Tensor, turn: list[popxl.Tensor]) -> popxl.Tensor:
        """``x`` behind all layers, whose variables are on the chip."""
        c, first = self.config, popxl.constant([0], popxl.int32)
        cache = popxl.TensorSpec(c.cache_shape, c.dtype)
        facts, layer = Layer(c).create_graph(x, position, turn, first, [cache, cache])
        for n in range(c.layers):
            variables = facts.init(f"layer{n}", empty=True)
            self.state.insert(f"layers.{n}", variables)
            caches = self.caches(c.cache_shape, f"cache.{n}")
            (x,) = layer.bind(variables).call(x, position, turn, first, caches)
        return x

    def caches(self, shape: Sequence[int], name: str) -> list[popxl.Tensor]:
        """Variables for keys and values, of which each replica has its own."""
        own = popxl.gir().replica_grouping(group_size=1)
        made = []
        for kind in ("key", "value"):
            facts = addons.VariableFactory(partial(np.zeros, shape), self.config.dtype, kind, replica_grouping=own)
            made.append(facts.init(name))
            self.state.insert(f"{name}.{kind}", made[-1])
        return made

    def run(self, words: Any, position: int, last: int = -1) -> Any:
        """Logits [sequences, vocabulary] after one of the tokens [sequences, tokens].

        Args:
            words: Tokens of each sequence, of all models; those that are missing to a run's are filled up.
            position: That of the first.
            last: Number of the token whose logits are made.
        """
        c, given = self.config, np.asarray(words)
        if position < 0 or position + self.tokens > c.positions:
            raise ValueError(f"{self.tokens} tokens from position {position} on, of {c.positions} positions")
        last = last % given.shape[1]
        filled = pad_axis(given, self.tokens, 1)
        fed = addons.array_munging.tensor_parallel_input(
            filled.reshape(c.data_parallel, c.batch, self.tokens),
            c.tensor_parallel,
            c.tensor_parallel * c.data_parallel,
            partial(Embedding.offset_input, vocab_size=c.vocabulary, n_shards=c.tensor_parallel),
        )
        replicas = c.tensor_parallel * c.data_parallel
        same = [np.full((replicas, 1) if replicas > 1 else (1,), n, np.int32) for n in (position, last)]
        made = self.session.run(dict(zip(self.inputs, (fed, *same), strict=True)))[self.outputs.logits]
        # Parts of the vocabulary are side by side; the last has more entries than there are.
        parts = made.reshape(c.data_parallel, c.tensor_parallel, c.batch, -1)
        return np.moveaxis(parts, 1, 2).reshape(c.data_parallel * c.batch, -1)[:, : c.vocabulary]


def weights_of(config: Config, arrays: Mapping[str, Any], state: NamedTensors) -> WeightsDict:
    """Weights for the variables of a program, of arrays under the names of Hugging Face's Llama."""
    c, n = config, config.tensor_parallel

    def columns(*names: str) -> Any:
        # Each replica has its part of every one of several products, side by side.
        return np.concatenate([shard(np.asarray(arrays[f"{name}.weight"]).T, n, 1) for name in names], -1)

    def rows(name: str) -> Any:
        return shard(np.asarray(arrays[f"{name}.weight"]).T, n, 0)

    def entries(name: str) -> Any:
        size = n * Embedding.get_vocab_shard_size(c.vocabulary, n)
        return shard(pad_axis(np.asarray(arrays[name]), size, 0), n, 0)

    found = {
        "words.table.weight": entries("model.embed_tokens.weight"),
        "head.norm.weight": arrays["model.norm.weight"],
        "head.logits.weight": entries("lm_head.weight").swapaxes(1, 2),
    }
    for layer in range(c.layers):
        theirs, ours = f"model.layers.{layer}", f"layers.{layer}"
        attention = f"{theirs}.self_attn"
        found |= {
            f"{ours}.norm1.weight": arrays[f"{theirs}.input_layernorm.weight"],
            f"{ours}.norm2.weight": arrays[f"{theirs}.post_attention_layernorm.weight"],
            f"{ours}.attention.qkv.weight": columns(*(f"{attention}.{w}_proj" for w in "qkv")),
            f"{ours}.attention.output.weight": rows(f"{attention}.o_proj"),
            f"{ours}.feed_forward.gate_up.weight": columns(f"{theirs}.mlp.gate_proj", f"{theirs}.mlp.up_proj"),
            f"{ours}.feed_forward.down.weight": rows(f"{theirs}.mlp.down_proj"),
        }
    return WeightsDict({state[name]: array for name, array in found.items()})


class Generator:
    """A model with its two programs: for prompts, and for one more token.

    Args:
        config: The model.
        prompt: Most tokens of a prompt.
        arrays: Weights; see :func:`weights_of`.
    """

    def __init__(self, config: Config, prompt: int, arrays: Mapping[str, Any]) -> None:
        self.config = config
        self.prefill, self.decode = Program(config, prompt), Program(config, 1)
        self.prefill.session.write_variables_data(weights_of(config, arrays, self.prefill.state))

    def generate(self, prompt: Any, tokens: int) -> tuple[Any, list[Any]]:
        """The likeliest further tokens of each sequence, and the logits that they were chosen by.

        Args:
            prompt: Tokens [sequences, length].
            tokens: Number of further ones.
        """
        given = np.asarray(prompt)
        with self.prefill.session:
            logits = [self.prefill.run(given, 0)]
        chosen = [logits[0].argmax(-1)]
        self.decode.session.load_from_session(self.prefill.session, report_missing="error")
        with self.decode.session:
            for n in range(tokens - 1):
                logits.append(self.decode.run(chosen[-1][:, None], given.shape[1] + n))
                chosen.append(logits[-1].argmax(-1))
        return np.stack(chosen, 1), logits


def random_arrays(config: Config, seed: int = 0) -> dict[str, Any]:
    """Weights of a model that was not trained."""
    rng, c = np.random.default_rng(seed), config
    shapes = {"model.embed_tokens": (c.vocabulary, c.hidden), "lm_head": (c.vocabulary, c.hidden)}
    kv = c.kv_heads * c.head
    for n in range(c.layers):
        products = {"q": (c.hidden, c.hidden), "k": (kv, c.hidden), "v": (kv, c.hidden), "o": (c.hidden, c.hidden)}
        shapes |= {f"model.layers.{n}.self_attn.{w}_proj": shape for w, shape in products.items()}
        shapes |= {f"model.layers.{n}.mlp.{w}_proj": (c.wide, c.hidden) for w in ("gate", "up")}
        shapes[f"model.layers.{n}.mlp.down_proj"] = (c.hidden, c.wide)
    made = {f"{k}.weight": rng.normal(0, s[1] ** -0.5, s).astype(np.float32) for k, s in shapes.items()}
    norms = [f"model.layers.{n}.{w}_layernorm" for n in range(c.layers) for w in ("input", "post_attention")]
    return made | {f"{name}.weight": np.ones(c.hidden, np.float32) for name in (*norms, "model.norm")}


def cost(program: Program) -> str:
    """Cycles of a run, and what they are spent on."""
    report = program.session.report
    steps = report.steps
    parts = {"compute": "compute_cycles", "exchange": "exchange_cycles", "sync": "sync_cycles"}
    spent = {name: int(steps[column].sum()) for name, column in parts.items()}
    is_remote = np.array([str(p) == "streaming memory" for p in steps["partner"]])
    host = steps["host_cycles"]
    spent |= {"streaming memory": int(host[is_remote].sum()), "host streams": int(host[~is_remote].sum())}
    total = sum(spent.values())
    shares = ", ".join(f"{name} {n / total:.0%}" for name, n in spent.items())
    return f"{report.total_cycles:,} cycles = {report.seconds(report.total_cycles) * 1e6:,.0f} µs: {shares}"


def main(config: Config | None = None, tokens: int = 10) -> dict[str, tuple[Generator, Any, list[Any]]]:
    """Generate tokens with weights that are streamed, and with weights on the chip.

    Returns:
        For each of the two a generator, its tokens, and logits that they were chosen by.
    """
    streamed = Config() if config is None else config
    arrays, prompt = random_arrays(streamed), np.arange(6)[None].repeat(streamed.batch * streamed.data_parallel, 0)
    made = {}
    for name, chosen in (("streamed", streamed), ("resident", replace(streamed, streams_weights=False))):
        generator = Generator(chosen, 8, arrays)
        made[name] = (generator, *generator.generate(prompt, tokens))
        print(f"{name} weights: {made[name][1][0].tolist()}")
        print(f"  prompt    {cost(generator.prefill)}")
        print(f"  one token {cost(generator.decode)}")
    return made


if __name__ == "__main__":
    main()
