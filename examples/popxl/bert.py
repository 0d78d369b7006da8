"""A small BERT learns to fill in masked characters, through ``popxl_addons``: in phases, or in a pipeline.

Two programs train one model, on 2 replicas with 4 micro-batches per update. ``phased`` keeps weights, states of Adam
and activations in streaming memory, weights and states as halves on each replica. Row 1 of the buffers is layer 1: it
is loaded, run for all 4 micro-batches, and makes room for row 2. ``pipelined`` keeps all on chips, layer 0 on one IPU
and layer 1 on the next. Names of variables are the same, so a checkpoint of one is one of the other.

    python examples/popxl/bert.py
    python examples/popxl/bert.py pipelined
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from abele.popxl_addons.layers import Embedding, LayerNorm, Linear
from abele.popxl_addons.named_replica_grouping import NamedReplicaGrouping
from abele.popxl_addons.ops.cross_entropy import cross_entropy_with_grad
from abele.popxl_addons.optimizers.adam import AdamOptimizerStep

from abele import popxl
from abele import popxl_addons as addons
from abele.garden.sources import standard_library
from abele.popxl import ops
from abele.popxl_addons import NamedTensors, RemoteHandle

MASK, UNKNOWN = 0, 1  # Numbers of characters begin at 2.


class Config(NamedTuple):
    """Sizes of the model and of its training.

    Attributes:
        micro_batch: Sequences that a replica runs at once.
        accumulation: Micro-batches of one update, on each replica.
        masked: Masked characters of each sequence.
    """

    hidden: int = 32
    layers: int = 2  # At least 2: a buffer with one row is loaded without a row number.
    heads: int = 2
    vocabulary: int = 64
    length: int = 16
    masked: int = 3
    micro_batch: int = 2
    accumulation: int = 4
    replicas: int = 2
    learning_rate: float = 5e-3
    weight_decay: float = 1e-2
    eps: float = 1e-6

    @property
    def x(self) -> popxl.TensorSpec:
        """Hidden states of a micro-batch, [sequences · length, hidden]."""
        return popxl.TensorSpec((self.micro_batch * self.length, self.hidden), popxl.float32)

    def numbers(self, *shape: int) -> popxl.TensorSpec:
        """Whole numbers of a micro-batch."""
        return popxl.TensorSpec((self.micro_batch * math.prod(shape),), popxl.int32)


# --- the model


class Embeddings(addons.Module):
    """Characters and their positions as hidden states."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.words = Embedding(popxl.float32, config.vocabulary, config.hidden)
        self.positions = Embedding(popxl.float32, config.length, config.hidden)
        self.norm = LayerNorm()

    def build(self, words: popxl.Tensor) -> popxl.Tensor:
        """[sequences · length, hidden] of numbers of characters."""
        positions = np.tile(np.arange(self.config.length, dtype=np.int32), self.config.micro_batch)
        return self.norm(self.words(words) + self.positions(popxl.constant(positions)))


class SelfAttention(addons.Module):
    """Attention of each sequence to itself, a branch around it, and a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.qkv, self.output, self.norm = Linear(3 * config.hidden), Linear(config.hidden), LayerNorm()

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Hidden states of hidden states."""
        config = self.config
        width = config.hidden // config.heads
        shape = (config.micro_batch, config.length, config.heads, width)
        q, k, v = (t.reshape(shape).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(x), 3, axis=-1))
        shares = ops.softmax(q @ k.transpose((0, 1, 3, 2)) * (1 / math.sqrt(width)), axis=-1)
        mixed = (shares @ v).transpose((0, 2, 1, 3)).reshape(x.shape)
        return self.norm(x + self.output(mixed))


class FeedForward(addons.Module):
    """Two products with a gelu between, a branch around them, and a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.intermediate, self.output, self.norm = Linear(4 * config.hidden), Linear(config.hidden), LayerNorm()

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Hidden states of hidden states."""
        return self.norm(x + self.output(ops.gelu(self.intermediate(x))))


class Layer(addons.Module):
    """A layer of the encoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(config), FeedForward(config)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Hidden states of hidden states."""
        return self.feed_forward(self.attention(x))


class MLMHead(addons.Module):
    """Logits of masked characters; its last product is with the embeddings of characters."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.dense, self.norm = Linear(config.hidden), LayerNorm()

    def build(self, x: popxl.Tensor, positions: popxl.Tensor, words: popxl.Tensor) -> popxl.Tensor:
        """[masked characters, vocabulary] of all hidden states."""
        x = self.norm(ops.gelu(self.dense(ops.gather(x, positions))))
        bias = self.add_variable_input("bias", lambda: np.zeros(self.config.vocabulary), popxl.float32)
        return x @ words.T + bias


class Loss(addons.Module):
    """The loss of the head, with its gradient by the hidden states: the head is run and differentiated at once."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def build(
        self, x: popxl.Tensor, positions: popxl.Tensor, labels: popxl.Tensor, words: popxl.Tensor
    ) -> tuple[popxl.Tensor, popxl.Tensor]:
        """The loss [], and the gradient of the hidden states."""
        facts, forward = MLMHead(self.config).create_graph(x, positions, words)
        hidden, _, tied = forward.graph.inputs[:3]
        grad_facts, backward = addons.autodiff_with_accumulation(
            forward, [*forward.args.tensors, tied], grads_required=[hidden]
        )
        weights = self.add_variable_inputs("fwd", facts)
        totals = self.add_variable_inputs("grad", grad_facts)
        call = forward.bind(weights).call_with_info(x, positions, words)
        loss, by_logits = cross_entropy_with_grad(call.outputs[0], labels)
        (dx,) = backward.bind(totals).call(by_logits, args=backward.grad_graph_info.inputs_dict(call))
        return loss, dx


# --- what both programs have


class Optimizer:
    """Adam for the variables of a graph, as a graph for each name.

    Attributes:
        facts: Makers of the states.
        sharded: Replicas that share the variables, by name; names of variables that are whole are not there.
    """

    def __init__(self, args: NamedTensors, config: Config, *, sharded: bool) -> None:
        self.facts = addons.NamedVariableFactories()
        group = popxl.gir().replica_grouping()
        self.sharded = NamedReplicaGrouping()
        if sharded and config.replicas > 1:
            for name in args.to_dict():
                self.sharded.insert(name, group)
        self._steps, adam = {}, AdamOptimizerStep()  # Variables of one shape have one graph.
        for name, tensor in args.to_dict().items():
            spec = addons.replica_sharded_spec(tensor, group if name in self.sharded else 1)
            facts, self._steps[name] = adam.create_graph(
                spec,
                spec,
                lr=popxl.TensorSpec((), popxl.float32),
                weight_decay=config.weight_decay,
                first_order_dtype=popxl.float32,
                eps=config.eps,
            )
            self.facts.insert(name, facts)
        self._reduce, self._names = addons.reduce_replica_sharded_graph(args, "mean", shard_groups=self.sharded)

    def update(self, weights: NamedTensors, states: NamedTensors, grads: NamedTensors, lr: popxl.Tensor) -> None:
        """Change variables, whose gradients are those of this replica."""
        means = NamedTensors.pack(self._names, self._reduce.bind(grads).call())
        for name, weight in weights.named_tensors.items():
            self._steps[name].bind(states[name]).call(weight, means[name], lr)


class Program:
    """A program that trains.

    Attributes:
        ir: The program.
        inputs: ``words``, ``positions`` and ``labels`` of each micro-batch, and the learning rate ``lr``.
        outputs: ``loss`` of each micro-batch.
        state: Variables: ``embeddings``, ``layers.0`` and so on and ``head``, each with ``fwd`` and ``opt``.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.ir = config, popxl.Ir(replication=config.replicas)
        self.ir.num_host_transfers = config.accumulation
        self.state = NamedTensors()
        with self.ir.main_graph, popxl.in_sequence():
            self.inputs = addons.InputStreams(
                words=(config.numbers(config.length).shape, popxl.int32),
                positions=(config.numbers(config.masked).shape, popxl.int32),
                labels=(config.numbers(config.masked).shape, popxl.int32),
                lr=((), popxl.float32),
            )
            self.outputs = addons.OutputStreams(loss=((), popxl.float32))
            self.build()

    def build(self) -> None:
        """To be defined: all graphs, and an update in the main graph."""
        raise NotImplementedError

    def session(self, **settings: Any) -> addons.TaskSession:
        """A session of it."""
        return addons.TaskSession(self.inputs, self.outputs, self.state, ir=self.ir, device_desc="ipu_hw", **settings)


# --- layers off the chip


class Phase:
    """Weights and states of one part of the model, for some layers alike, in rows of remote buffers.

    Attributes:
        optimizer: Updates of the part.
        variables: Variables of each row, ``fwd`` and ``opt``.
    """

    def __init__(self, args: NamedTensors, facts: Any, names: list[str], config: Config) -> None:
        self.optimizer = Optimizer(args, config, sharded=True)
        all_facts = addons.NamedVariableFactories(fwd=facts, opt=self.optimizer.facts)
        buffers = addons.named_variable_buffers(all_facts, entries=len(names))
        self.variables = [all_facts.init_remote(buffers, row, name) for row, name in enumerate(names)]
        self._load, self._names = addons.load_remote_graph(buffers.filter_keys(["fwd"]))
        self._load_all, self._all_names = addons.load_remote_graph(buffers)
        loaded = NamedTensors.pack(self._names, self._load.graph.outputs)
        self._gather, self._weight_names = addons.all_gather_replica_sharded_graph(loaded.fwd)
        self._store = addons.store_remote_graph(buffers)

    def weights(self, row: popxl.Tensor | int) -> NamedTensors:
        """Weights of a row, whole on each replica."""
        return self.whole(NamedTensors.pack(self._names, self._load.call(row)).fwd)

    def parts(self, row: popxl.Tensor | int) -> NamedTensors:
        """This replica's parts of weights ``fwd`` and states ``opt`` of a row."""
        return NamedTensors.pack(self._all_names, self._load_all.call(row))

    def whole(self, parts: NamedTensors) -> NamedTensors:
        """Weights of which each replica has a part, whole."""
        return NamedTensors.pack(self._weight_names, self._gather.bind(parts).call())

    def update(self, row: popxl.Tensor | int, parts: NamedTensors, grads: NamedTensors, lr: popxl.Tensor) -> None:
        """Change the weights of a row, and store them and their states."""
        self.optimizer.update(parts.fwd, parts.opt, grads, lr)
        self._store.bind(parts).call(row)


class Phased(Program):
    """One layer after the other is on the chip."""

    def build(self) -> None:
        """Graphs of all phases, and an update."""
        config = self.config
        steps, layers = config.accumulation, config.layers
        xs, dxs = (addons.batch_serial_buffer(config.x, steps, rows=layers + 1) for _ in range(2))

        facts, forward = Embeddings(config).create_graph(config.numbers(config.length))
        grad_facts, backward = addons.autodiff_with_accumulation(forward, forward.args.tensors)
        embed, embed_grad = addons.batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            steps,
            load_handles={forward.graph.inputs[0]: self.inputs.words, backward.graph.inputs[0]: RemoteHandle(dxs, 0)},
            store_buffers={forward.graph.outputs[0]: RemoteHandle(xs, 0)},
        )
        embeddings = Phase(forward.args, facts, ["embeddings"], config)

        facts, forward = Layer(config).create_graph(config.x)
        x = forward.graph.inputs[0]
        layer_grad_facts, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[x]
        )
        self._layer_grad_facts = layer_grad_facts
        backward = addons.recompute_graph(backward)
        ahead, back = addons.batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            steps,
            load_handles={x: RemoteHandle(xs, 0), backward.graph.inputs[0]: RemoteHandle(dxs, 1)},
            store_buffers={forward.graph.outputs[0]: (xs, 1), backward.graph.outputs[0]: (dxs, 0)},
            rows=layers,
        )
        self._ahead, self._back = ahead.graph, back.graph
        self._layers = Phase(forward.args, facts, [f"layers.{n}" for n in range(layers)], config)

        masked = config.numbers(config.masked)
        weights = embeddings.weights(0)
        words = weights.words.weight
        facts, loss = Loss(config).create_graph(config.x, masked, masked, words)
        hidden, positions, labels = loss.graph.inputs[:3]
        serial = addons.batch_serialise(
            loss,
            steps,
            {hidden: RemoteHandle(xs, layers), positions: self.inputs.positions, labels: self.inputs.labels},
            store_streams={loss.graph.outputs[0]: self.outputs.loss},
            store_buffers={loss.graph.outputs[1]: RemoteHandle(dxs, layers)},
        ).graph
        head = Phase(loss.args.fwd, facts.fwd, ["head"], config)

        # An update: all layers ahead, the loss, and all layers back, each with its update.
        lr = ops.host_load(self.inputs.lr)
        row = popxl.TensorSpec((), popxl.int32)
        embed.graph.bind(weights).call()
        ops.repeat(self.ir.create_graph(self._forward, row), layers, popxl.constant(0))
        parts, totals = head.parts(0), facts.grad.init_zero()
        serial.bind(NamedTensors(fwd=head.whole(parts.fwd), grad=totals)).call(words)
        head.update(0, parts, totals.accum, lr)
        ops.repeat(self.ir.create_graph(self._backward, row, lr), layers, popxl.constant(layers - 1), lr)
        tied, (parts, totals) = totals.accum.words, (embeddings.parts(0), grad_facts.init_zero())
        embed_grad.graph.bind(weights).bind(totals).call()
        ops.add_(totals.accum.words.weight, tied)
        embeddings.update(0, parts, totals.accum, lr)

        self.state.insert("embeddings", embeddings.variables[0])
        self.state.insert("head", head.variables[0])
        for n, variables in enumerate(self._layers.variables):
            self.state.insert(f"layers.{n}", variables)

    def _forward(self, row: popxl.Tensor) -> popxl.Tensor:
        self._ahead.bind(self._layers.weights(row)).call(row)
        return row + 1

    def _backward(self, row: popxl.Tensor, lr: popxl.Tensor) -> popxl.Tensor:
        parts, totals = self._layers.parts(row), self._layer_grad_facts.init_zero()
        self._back.bind(self._layers.whole(parts.fwd)).bind(totals).call(row)
        self._layers.update(row, parts, totals.accum, lr)
        return row - 1


# --- layers in a pipeline


class Part:
    """Graphs and variables of one part of the model, on one IPU.

    Attributes:
        optimizer: Updates of the part.
        variables: Its variables, ``fwd`` and ``opt``.
        totals: Means of the gradients of an update.
    """

    def __init__(self, graphs: tuple[Any, Any, Any, Any], optimizer: Optimizer, name: str) -> None:
        facts, self._forward, grad_facts, self._backward = graphs
        self.optimizer = optimizer
        self.variables = addons.NamedVariableFactories(fwd=facts, opt=optimizer.facts).init(name)
        self.totals = grad_facts.init_zero()

    def forward(self, x: popxl.Tensor) -> popxl.Tensor:
        """Hidden states."""
        self._call = self._forward.bind(self.variables.fwd).call_with_info(x)
        made: popxl.Tensor = self._call.outputs[0]
        return made

    def backward(self, dx: popxl.Tensor) -> popxl.Tensor | None:
        """Gradients of what it was given, if it is a float."""
        inputs = self._backward.grad_graph_info.inputs_dict(self._call)
        made = self._backward.bind(self.totals).call(dx, args=inputs)
        return made[0] if made else None

    def update(self, lr: popxl.Tensor) -> None:
        """Change its weights."""
        self.optimizer.update(self.variables.fwd, self.variables.opt, self.totals.accum, lr)


class Pipelined(Program):
    """The first half of the layers is on one IPU, the other half on the next, and micro-batches go through both."""

    def build(self) -> None:
        """Graphs of all stages, and an update."""
        config = self.config
        half = config.layers // 2
        with popxl.ipu(0):
            embeddings = self._part(Embeddings(config), config.numbers(config.length), ["embeddings"])[0]
            first = self._part(Layer(config), config.x, [f"layers.{n}" for n in range(half)])
        with popxl.ipu(1):
            second = self._part(Layer(config), config.x, [f"layers.{n}" for n in range(half, config.layers)])
            masked, tied = config.numbers(config.masked), embeddings.variables.fwd.words.weight
            facts, loss = Loss(config).create_graph(config.x, masked, masked, tied.spec)
            optimizer, totals = Optimizer(loss.args.fwd, config, sharded=False), facts.grad.init_zero()
            head = addons.NamedVariableFactories(fwd=facts.fwd, opt=optimizer.facts).init("head")

        with addons.pipelined_execution(config.accumulation) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                x = embeddings.forward(ops.host_load(self.inputs.words))
                for part in first:
                    x = part.forward(x)
                x, words = x.copy_to_ipu(1), tied.copy_to_ipu(1)
            with pipeline.stage(1), popxl.ipu(1):
                for part in second:
                    x = part.forward(x)
                given = x, ops.host_load(self.inputs.positions), ops.host_load(self.inputs.labels), words
                value, dx = loss.bind(NamedTensors(fwd=head.fwd, grad=totals)).call(*given)
                ops.host_store(self.outputs.loss, value)
                for part in reversed(second):
                    dx = part.backward(dx)
                dx = dx.copy_to_ipu(0)
            with pipeline.stage(2), popxl.ipu(0):
                for part in reversed(first):
                    dx = part.backward(dx)
                embeddings.backward(dx)

        with popxl.ipu(0):
            lr = ops.host_load(self.inputs.lr)
            ops.add_(embeddings.totals.accum.words.weight, totals.accum.words.copy_to_ipu(0))
            for part in (embeddings, *first):
                part.update(lr)
            lr = lr.copy_to_ipu(1)
        with popxl.ipu(1):
            for part in second:
                part.update(lr)
            optimizer.update(head.fwd, head.opt, totals.accum, lr)

        self.state.insert("embeddings", embeddings.variables)
        self.state.insert("head", head)
        for n, part in enumerate([*first, *second]):
            self.state.insert(f"layers.{n}", part.variables)

    def _part(self, module: addons.Module, x: popxl.TensorSpec, names: list[str]) -> list[Part]:
        """Parts that share graphs, one of each name."""
        facts, forward = module.create_graph(x)
        required = [t for t in forward.graph.inputs[:1] if t.dtype.is_floating_point]
        made = addons.autodiff_with_accumulation(forward, forward.args.tensors, grads_required=required)
        optimizer = Optimizer(forward.args, self.config, sharded=False)
        return [Part((facts, forward, *made), optimizer, name) for name in names]


# --- data and training


def batches(config: Config, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Arrays of updates without end, [micro-batches, replicas, …] by the names of the streams."""
    text = "\n".join(file.text for file in standard_library() if file.module.startswith("json"))
    common = [c for c, _ in Counter(text).most_common(config.vocabulary - 2)]
    numbers = {c: n for n, c in enumerate(common, UNKNOWN + 1)}
    coded = np.array([numbers.get(c, UNKNOWN) for c in text], np.int32)
    rng = np.random.default_rng(seed)
    lead = (config.accumulation, config.replicas)
    while True:
        starts = rng.integers(0, len(coded) - config.length, (*lead, config.micro_batch))
        words = coded[starts[..., None] + np.arange(config.length)]
        masked = rng.random(words.shape).argsort(-1)[..., : config.masked]  # Without repetition in a sequence.
        labels = np.take_along_axis(words, masked, -1)
        np.put_along_axis(words, masked, np.int32(MASK), -1)
        rows = masked + config.length * np.arange(config.micro_batch)[:, None]
        made = {"words": words, "positions": rows, "labels": labels}
        yield {name: array.reshape(*lead, -1).astype(np.int32) for name, array in made.items()}


def rate(config: Config, update: int, warmup: int = 5) -> float:
    """The learning rate of an update: it grows at first, and falls with the root of the number of updates then."""
    return config.learning_rate * min((update + 1) / warmup, math.sqrt(warmup / (update + 1)))


def train(program: Program, session: addons.TaskSession, data: Iterator[dict[str, Any]], updates: range) -> list[float]:
    """Losses of updates, each the mean over micro-batches and replicas."""
    inputs, losses = program.inputs, []
    for update, arrays in zip(updates, data, strict=False):
        lr = np.full((program.config.accumulation, program.config.replicas), rate(program.config, update), np.float32)
        fed = {inputs[name]: array for name, array in arrays.items()} | {inputs.lr: lr}
        losses.append(float(session.run(fed)[program.outputs.loss].mean()))
    return losses


PROGRAMS: dict[str, Callable[[Config], Program]] = {"phased": Phased, "pipelined": Pipelined}


def main(kind: str = "phased", updates: int = 100) -> list[float]:
    """Train on Python's own library, with a checkpoint half way that another session goes on from.

    Args:
        kind: ``phased`` or ``pipelined``.
        updates: Number of updates.

    Returns:
        The loss of each update.
    """
    config, data = Config(), batches(Config())
    with tempfile.TemporaryDirectory() as folder:
        np.random.seed(0)
        program = PROGRAMS[kind](config)
        with program.session() as session:
            losses = train(program, session, data, range(updates // 2))
            session.save_checkpoint(folder)
        program = PROGRAMS[kind](config)
        with program.session() as session:
            session.load_checkpoint(folder)
            losses += train(program, session, data, range(updates // 2, updates))
    for update in range(0, updates, 10):
        print(f"update {update + 1}: loss {losses[update]:.3f}")
    print(session.report.summary())
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:2])
