"""BERT's encoder built from library functions: a layer's forward pass, its backward pass by hand, and LAMB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, Literal

from abele.graph import Copy, Graph, Sequence, Tensor, concat
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin, popnn, popops
from abele.poplibs.popops import Op, _1, _2, _3

EPSILON = 1e-5
Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
Pass = Literal["FWD", "BWD", "WU"]


@dataclass(frozen=True)
class BertConfig:
    """Sizes of an encoder layer; those of BERT-Large by default.

    Attributes:
        sequence: Tokens of the only sample.
        hidden: Width of a token.
        heads: Attention heads, which share ``hidden`` evenly.
        feed_forward: Width between the two products of the feed-forward part.
        vocabulary: Rows of the embedding.
        dtype: Type of weights and activations.
        partials: Type in which products are summed.
        trains: True if products with weights are planned together with those of the backward pass.
    """

    sequence: int = 384
    hidden: int = 1024
    heads: int = 16
    feed_forward: int = 4096
    vocabulary: int = 30_528
    dtype: ElementType = f16
    partials: ElementType = f16
    trains: bool = False

    def options(self, step: Pass = "FWD") -> dict[str, str]:
        """Options of a product with weights in a pass."""
        kind = f"TRAINING_{step}" if self.trains else "INFERENCE_FWD"
        return {"partialsType": self.partials.poplar_name, "fullyConnectedPass": kind}

    @property
    def matrices(self) -> Shapes:
        """Shapes of a layer's matrices: a token's vector is multiplied from the left."""
        h, f = self.hidden, self.feed_forward
        return {"qkv": (h, 3 * h), "out": (h, h), "up": (h, f), "down": (f, h)}

    @property
    def vectors(self) -> Shapes:
        """Shapes of a layer's biases and norms."""
        biases: Shapes = {f"{name}_bias": shape[1:] for name, shape in self.matrices.items()}
        return biases | {f"norm{i}_{part}": (self.hidden,) for i in (1, 2) for part in ("gamma", "beta")}


def create_layer(graph: Graph, config: BertConfig, name: str = "layer") -> Tensors:
    """The weights of a layer, laid out for its products."""
    weights = {
        key: poplin.create_matmul_input_rhs(
            graph,
            config.dtype,
            (config.sequence, shape[0]),
            shape,
            name=f"{name}/{key}",
            options=config.options(),
        )
        for key, shape in config.matrices.items()
    }
    for key, shape in config.vectors.items():
        weights[key] = graph.variable(config.dtype, shape, name=f"{name}/{key}", map="linear")
    return weights


def create_tokens(graph: Graph, config: BertConfig, name: str = "tokens") -> Tensor:
    """Input of a layer, [sequence, hidden], laid out for its first product."""
    shapes = (config.sequence, config.hidden), config.matrices["qkv"]
    return poplin.create_matmul_input_lhs(graph, config.dtype, *shapes, name=name, options=config.options())


def forward(graph: Graph, config: BertConfig, w: Mapping[str, Tensor], x: Tensor, prog: Sequence) -> Tensors:
    """A layer's result ``y``, [sequence, hidden], and beside it what the backward pass needs."""
    multiply = partial(poplin.matmul, graph, prog=prog, options=config.options())
    grouped = partial(poplin.matmul_grouped, graph, prog=prog, partials_type=config.partials)
    saved: Tensors = {"x": x}
    qkv = multiply(x, w["qkv"], name="qkv")
    poplin.add_bias(graph, qkv, w["qkv_bias"], prog, name="qkv_bias")
    saved["qkv"] = qkv
    q, k, v = heads_of(config, qkv)
    scores = grouped(q, k.transpose((0, 2, 1)), name="scores")
    popops.mul_in_place(graph, scores, 1.0 / sqrt(config.hidden // config.heads), prog, name="scale")
    popnn.softmax_in_place(graph, scores, prog, name="attention")
    saved["attention"] = scores
    context = joined(config, grouped(scores, v, name="context"))
    saved["context"] = context
    attended = multiply(context, w["out"], name="out")
    _add_residual(graph, attended, w["out_bias"], x, prog, "residual1")
    middle = _norm(graph, w, attended, saved, prog, "norm1")
    up = multiply(middle, w["up"], name="up")
    poplin.add_bias(graph, up, w["up_bias"], prog, name="up_bias")
    gelu = popnn.non_linearity(graph, "gelu", up, prog)
    saved |= {"middle": middle, "up": up, "gelu": gelu}
    down = multiply(gelu, w["down"], name="down")
    _add_residual(graph, down, w["down_bias"], middle, prog, "residual2")
    saved["y"] = _norm(graph, w, down, saved, prog, "norm2")
    return saved


def heads_of(config: BertConfig, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each [heads, sequence, width], of [sequence, 3 · hidden]."""
    split = qkv.reshape((config.sequence, 3, config.heads, -1)).transpose((1, 2, 0, 3))
    return split[0], split[1], split[2]


def joined(config: BertConfig, per_head: Tensor) -> Tensor:
    """[heads, sequence, width] as [sequence, hidden]."""
    return per_head.transpose((1, 0, 2)).reshape((config.sequence, config.hidden))


def _add_residual(graph: Graph, out: Tensor, bias: Tensor, residual: Tensor, prog: Sequence, name: str) -> None:
    popops.map_in_place(graph, _1 + _2 + _3, [out, bias.broadcast_to(out.shape), residual], prog, name)


def _norm(graph: Graph, w: Mapping[str, Tensor], x: Tensor, saved: Tensors, prog: Sequence, name: str) -> Tensor:
    mean, inverse = popnn.layer_norm_statistics(graph, x, EPSILON, prog, stable=True, name=f"{name}_statistics")
    gamma, beta = w[f"{name}_gamma"], w[f"{name}_beta"]
    out, whitened = popnn.layer_normalise(graph, x, gamma, beta, mean, inverse, prog, name=name)
    saved |= {f"{name}_whitened": whitened, f"{name}_inverse": inverse}
    return out


def backward(
    graph: Graph, config: BertConfig, w: Mapping[str, Tensor], saved: Mapping[str, Tensor], dy: Tensor, prog: Sequence
) -> tuple[Tensor, Tensors]:
    """The gradient of a layer's input, and of its weights by name."""
    multiply = partial(poplin.matmul, graph, prog=prog)
    grads: Tensors = {}

    def product(name: str, x: Tensor, dout: Tensor) -> Tensor:
        grads[name] = multiply(x.T, dout, options=config.options("WU"), like=w[name], name=f"{name}_update")
        grads[f"{name}_bias"] = poplin.bias_gradient(graph, dout, prog, name=f"{name}_bias_gradient")
        return multiply(dout, w[name].T, options=config.options("BWD"), name=f"{name}_gradient")

    def norm(name: str, dout: Tensor) -> Tensor:
        whitened, inverse = saved[f"{name}_whitened"], saved[f"{name}_inverse"]
        pair = popnn.layer_norm_param_gradients(graph, whitened, dout, prog, name=f"{name}_parameters")
        grads[f"{name}_gamma"], grads[f"{name}_beta"] = pair
        return popnn.layer_norm_gradients(
            graph, whitened, dout, inverse, w[f"{name}_gamma"], prog, name=f"{name}_gradient"
        )

    ddown = norm("norm2", dy)
    dgelu = product("down", saved["gelu"], ddown)
    dup = popnn.non_linearity_input_gradient(graph, "gelu", saved["up"], dgelu, prog)
    dmiddle = product("up", saved["middle"], dup)
    popops.add_in_place(graph, dmiddle, ddown, prog, name="residual2_gradient")
    dout = norm("norm1", dmiddle)
    dcontext = product("out", saved["context"], dout)
    dqkv = _attention_gradient(graph, config, saved, dcontext, prog)
    dx = product("qkv", saved["x"], dqkv)
    popops.add_in_place(graph, dx, dout, prog, name="residual1_gradient")
    return dx, grads


def _attention_gradient(
    graph: Graph, config: BertConfig, saved: Mapping[str, Tensor], dcontext: Tensor, prog: Sequence
) -> Tensor:
    grouped = partial(poplin.matmul_grouped, graph, prog=prog, partials_type=config.partials)
    q, k, v = heads_of(config, saved["qkv"])
    attention = saved["attention"]
    dcontext = dcontext.reshape((config.sequence, config.heads, -1)).transpose((1, 0, 2))
    dv = grouped(attention.transpose((0, 2, 1)), dcontext, name="values_gradient")
    dattention = grouped(dcontext, v.transpose((0, 2, 1)), name="attention_gradient")
    dscores = popnn.softmax_input_gradient(graph, attention, dattention, prog)
    popops.mul_in_place(graph, dscores, 1.0 / sqrt(config.hidden // config.heads), prog, name="scale_gradient")
    dq = grouped(dscores, k, name="queries_gradient")
    dk = grouped(dscores.transpose((0, 2, 1)), q, name="keys_gradient")
    parts = [joined(config, part) for part in (dq, dk, dv)]
    dqkv = graph.variable(config.dtype, (config.sequence, 3 * config.hidden), name="dqkv", map="linear")
    prog.add(Copy(concat(parts, 1), dqkv))
    return dqkv


@dataclass(frozen=True)
class Lamb:
    """LAMB's settings, after You et al. 2020."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    decay: float = 0.01


def lamb_update(
    graph: Graph, settings: Lamb, w: Tensor, m: Tensor, v: Tensor, grad: Tensor, prog: Sequence, name: str = "lamb"
) -> None:
    """One step of LAMB without bias correction: moments and weights are overwritten.

    m ← β₁ m + (1−β₁) g; v ← β₂ v + (1−β₂) g²; r = m / (√v + ε) + decay · w; w ← w − rate · ‖w‖ / ‖r‖ · r.
    All is local where the gradient lies on the tiles of the weights.
    """
    s = settings
    popops.map_in_place(graph, _1 * s.beta1 + _2 * (1 - s.beta1), [m, grad], prog, f"{name}/m")
    g = popops.cast(graph, grad, v.dtype, prog, name=f"{name}/wide") if grad.dtype != v.dtype else grad
    popops.map_in_place(graph, _1 * s.beta2 + _2 * _2 * (1 - s.beta2), [v, g], prog, f"{name}/v")
    wide = [popops.cast(graph, t, v.dtype, prog, name=f"{name}/wide") if t.dtype != v.dtype else t for t in (m, w)]
    step = popops.map(graph, _1 / (Op("sqrt", _2) + s.epsilon) + _3 * s.decay, [wide[0], v, wide[1]], prog, name)
    norms = [_square_sum(graph, t, prog, f"{name}/norm") for t in (w, step)]
    scale = popops.map(graph, Op("sqrt", _1 / Op("max", _2, 1e-30)) * -s.rate, norms, prog, f"{name}/trust")
    popops.scaled_add_to(graph, w, step, scale.reshape(()), prog, name=f"{name}/w")


def _square_sum(graph: Graph, tensor: Tensor, prog: Sequence, name: str) -> Tensor:
    dims = list(range(tensor.ndim))
    return popops.reduce(graph, tensor, dims, "SQUARE_ADD", prog, out_type=f32, name=name)


def moments(graph: Graph, weights: Mapping[str, Tensor], name: str = "moments") -> tuple[Tensors, Tensors]:
    """First moments in the type of the weights, second ones in f32, laid out as these."""
    made: list[Tensors] = []
    for kind, dtype in (("m", None), ("v", f32)):
        made.append({key: like(graph, w, f"{name}/{kind}/{key}", dtype) for key, w in weights.items()})
    return made[0], made[1]


def like(graph: Graph, tensor: Tensor, name: str, dtype: ElementType | None = None) -> Tensor:
    """A new tensor with the shape and tiles of another."""
    made: Any = graph.clone(tensor, name=name) if dtype is None else graph.clone(tensor, dtype, name=name)
    return made
