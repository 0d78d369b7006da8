"""A training step of BERT over several IPUs: layers in a row, the embedding tied with the head, LAMB."""

from __future__ import annotations

from dataclasses import dataclass, field

from networks_bert import (
    BertConfig,
    Lamb,
    Tensors,
    backward,
    create_layer,
    create_tokens,
    forward,
    lamb_update,
    like,
    moments,
)

from abele.graph import Call, Copy, Function, Graph, Sequence, Tensor
from abele.numerics import i32
from abele.poplibs import poplin, popnn, popops
from abele.poplibs.popops.slicing.embedding import plan

SETTINGS = Lamb()


@dataclass
class Layer:
    """A layer on its IPU, and what its forward pass leaves for the backward pass."""

    graph: Graph
    weights: Tensors
    m: Tensors
    v: Tensors
    saved: Tensors = field(default_factory=dict)


@dataclass
class Repeated:
    """A layer's passes as functions of an IPU, and the views that stand for their arguments."""

    forward: Function
    backward: Function
    update: Function


class Training:
    """A training step of one sample.

    Args:
        graph: A graph over as many IPUs as ``ipus``.
        config: Sizes of a layer.
        layers: Layers in all, spread evenly over the IPUs.
        ipus: IPUs in use.
        as_functions: Each IPU holds the passes of a layer once, and calls them for each of its layers.
    """

    def __init__(self, graph: Graph, config: BertConfig, layers: int, ipus: int, *, as_functions: bool) -> None:
        self.config, self.prog = config, Sequence()
        self.graphs = [graph.ipu(i) for i in range(ipus)]
        self.layers: list[Layer] = []
        for i in range(layers):
            at = self.graphs[i * ipus // layers]
            with graph.scope(f"layer{i}"):
                weights = create_layer(at, config)
                self.layers.append(Layer(at, weights, *moments(at, weights)))
        first = self.graphs[0]
        shape = (config.vocabulary, config.hidden)
        self.plan = plan(first, config.dtype, *shape, config.sequence)
        self.table = popops.create_sliceable_tensor(first, config.dtype, shape, (0,), (1,), self.plan, name="embedding")
        self.tokens = first.variable(i32, (config.sequence, 1), name="tokens", map="linear")
        self.labels = first.variable(i32, (config.sequence,), name="labels", map="linear")
        self.functions: dict[int, Repeated] = {}
        self.as_functions = as_functions
        self.loss = self._build()

    def _build(self) -> Tensor:
        config, first, prog = self.config, self.graphs[0], self.prog
        x = popops.multi_slice(first, self.table, self.tokens, (0,), (1,), prog, self.plan)
        x = x.reshape((config.sequence, config.hidden))
        embedded = create_tokens(first, config, "embedded")
        prog.add(Copy(x, embedded))
        x = embedded
        for layer in self.layers:
            x = self._forward(layer, self._moved(layer.graph, x))
        loss, dx, dtable = self._head(self._moved(first, x))
        for layer in reversed(self.layers):
            dx = self._backward(layer, self._moved(layer.graph, dx))
        self._update_embedding(self._moved(first, dx), dtable)
        return loss

    def _moved(self, graph: Graph, x: Tensor) -> Tensor:
        """``x`` on the tiles of ``graph``: itself, or a copy."""
        if graph is self._home(x):
            return x
        there = create_tokens(graph, self.config, "received")
        self.prog.add(Copy(x, there))
        return there

    def _home(self, x: Tensor) -> Graph:
        each = self.graphs[0].num_tiles
        return self.graphs[int(x.variables[0].mapping.tile[0]) // each]

    def _head(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The masked tokens' loss, the gradient of what the last layer gave, and of the embedding."""
        config, first, prog = self.config, self.graphs[0], self.prog
        options = config.options
        logits = poplin.matmul(first, x, self.table.T, prog, options=options(), name="logits")
        loss, log_probabilities = popnn.cross_entropy_loss(first, logits, self.labels, prog)
        dlogits = popnn.cross_entropy_loss_gradient(first, log_probabilities, self.labels, prog)
        dx = poplin.matmul(first, dlogits, self.table, prog, options=options("BWD"), name="head_gradient")
        dtable = poplin.matmul(
            first, x.T, dlogits, prog, options=options("WU"), like=self.table.T, name="head_update"
        ).T
        return loss, dx, dtable

    def _update_embedding(self, dx: Tensor, dtable: Tensor) -> None:
        first, prog, config = self.graphs[0], self.prog, self.config
        dims, sizes = (0,), (1,)
        scale = first.constant(config.dtype, (), 1.0, name="one")
        rows = dx.reshape((config.sequence, 1, config.hidden))
        popops.multi_update_add(first, dtable, rows, self.tokens, scale, dims, sizes, prog, self.plan)
        m, v = moments(first, {"embedding": self.table})
        lamb_update(first, SETTINGS, self.table, m["embedding"], v["embedding"], dtable, prog, "embedding")

    # Passes of a layer, written out or called.

    def _forward(self, layer: Layer, x: Tensor) -> Tensor:
        if not self.as_functions:
            layer.saved = forward(layer.graph, self.config, layer.weights, x, self.prog)
            return layer.saved["y"]
        made = self._function(layer).forward
        results = [like(layer.graph, t, "saved") for t in made.results]
        self.prog.add(Call(made, [*layer.weights.values(), x], results))
        layer.saved = dict(zip(self._saved_names, [x, *results], strict=True))
        return layer.saved["y"]

    def _backward(self, layer: Layer, dy: Tensor) -> Tensor:
        if not self.as_functions:
            dx, grads = backward(layer.graph, self.config, layer.weights, layer.saved, dy, self.prog)
            update(layer.graph, layer, grads, self.prog)
            return dx
        made = self._function(layer)
        results = [like(layer.graph, t, "gradient") for t in made.backward.results]
        saved = [layer.saved[n] for n in self._saved_names]
        self.prog.add(Call(made.backward, [*layer.weights.values(), *saved, dy], results))
        state = [*layer.weights.values(), *layer.m.values(), *layer.v.values()]
        self.prog.add(Call(made.update, [*state, *results[1:]], state))
        return results[0]

    def _function(self, layer: Layer) -> Repeated:
        """The functions of a layer's IPU, made for the first layer on it."""
        key = id(layer.graph)
        if key not in self.functions:
            self.functions[key] = self._outlined(layer.graph)
        return self.functions[key]

    def _outlined(self, graph: Graph) -> Repeated:
        weights = create_layer(graph, self.config, "parameter")
        x = create_tokens(graph, self.config, "parameter/x")
        bodies = [Sequence(), Sequence(), Sequence()]
        saved = forward(graph, self.config, weights, x, bodies[0])
        self._saved_names = list(saved)
        dy = like(graph, saved["y"], "parameter/dy")
        dx, grads = backward(graph, self.config, weights, saved, dy, bodies[1])
        standing = Layer(graph, weights, *moments(graph, weights, "parameter"))
        update(graph, standing, grads, bodies[2])
        given = list(weights.values())
        state = [*given, *standing.m.values(), *standing.v.values()]
        gradients = [grads[n] for n in weights]
        return Repeated(
            graph.function(bodies[0], "forward", parameters=[*given, x], results=list(saved.values())[1:]),
            graph.function(bodies[1], "backward", parameters=[*given, *saved.values(), dy], results=[dx, *gradients]),
            graph.function(bodies[2], "update", parameters=[*state, *gradients], results=state),
        )


def update(graph: Graph, layer: Layer, grads: Tensors, prog: Sequence) -> None:
    """LAMB for every weight of a layer."""
    for name, weights in layer.weights.items():
        lamb_update(graph, SETTINGS, weights, layer.m[name], layer.v[name], grads[name], prog, name)
