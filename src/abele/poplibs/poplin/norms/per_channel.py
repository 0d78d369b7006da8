"""Norms over all dimensions but the second: parameters, statistics, whitening and gradients.

Activations are [batch, channels, *field]; statistics and parameters have one value per channel. The distributed forms
share the statistics between replicas through an all-reduce that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType, f32
from abele.poplibs.poplin.norms import parts
from abele.poplibs.poplin.norms.parts import Moments
from abele.poplibs.popops.elementwise.map import map_with_output
from abele.poplibs.popops.expr import _1, _2, _3
from abele.poplibs.popops.reductions.reduce import reduce
from abele.poplibs.poputil.layout import create_output_like

__all__ = [
    "create_norm_beta",
    "create_norm_gamma",
    "create_norm_params",
    "distributed_norm_statistics",
    "distributed_norm_statistics_gradients",
    "norm_gradients",
    "norm_param_gradients",
    "norm_statistics",
    "norm_statistics_gradients",
    "norm_whiten",
    "normalise",
]

KEPT = (1,)
AllReduce = Callable[[Graph, list[Tensor], Steps, int], Sequence[Tensor]]
"""Sums tensors over groups of replicas: (graph, tensors, prog, replicas in a group) -> the sums, of the same shapes."""


def create_norm_params(graph: Graph, acts: Tensor, name: str = "norm") -> tuple[Tensor, Tensor]:
    """New gamma and beta for ``acts`` [batch, channels, *field]: one value per channel, in its type.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, f"{name}/gamma"), create_norm_beta(graph, acts, f"{name}/beta")


def create_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """A new tensor of one factor per channel of ``acts``.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    _check_acts(name, acts)
    return graph.variable(acts.dtype, acts.shape[1:2], name=name, map="linear")


def create_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """A new tensor of one addend per channel of ``acts``.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, name)


def norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Steps,
    *,
    unbiased: bool = False,
    stable: bool = False,
    name: str = "norm_statistics",
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each channel, in the type of ``acts``; sums are f32.

    Args:
        graph: Graph in which vertices and results are made.
        acts: [batch, channels, *field], floating point.
        eps: Added to the variance.
        prog: Sequence that the steps are appended to.
        unbiased: The variance is over one element fewer.
        stable: Takes distances from the mean before it squares, in one pass more.
        name: Name of the steps.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    _check_acts(name, acts)
    return parts.statistics(graph, acts, Moments(KEPT, eps, per_channel(acts), unbiased), prog, name, stable=stable)


def norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, prog: Steps, name: str = "norm_whiten"
) -> Tensor:
    """(acts − mean) · inv_std_dev, as a new tensor.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    _check_acts(name, acts, mean=mean, inv_std_dev=inv_std_dev)
    out = create_output_like(graph, [acts], acts.shape, acts.dtype, f"{name}/out")
    parts.whiten(graph, acts, (mean, inv_std_dev), kept=KEPT, out=out, prog=prog, name=name)
    return out


def normalise(
    graph: Graph, whitened: Tensor, gamma: Tensor, beta: Tensor, prog: Steps, name: str = "normalise"
) -> Tensor:
    """whitened · gamma + beta, as a new tensor.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    _check_acts(name, whitened, gamma=gamma, beta=beta)
    out = create_output_like(graph, [whitened], whitened.shape, whitened.dtype, f"{name}/out")
    wide = [parts.beside(t, KEPT, whitened.ndim) for t in (gamma, beta)]
    map_with_output(graph, _1 * _2 + _3, [whitened, *wide], out, prog, name)
    return out


def norm_param_gradients(
    graph: Graph, whitened: Tensor, grads_in: Tensor, prog: Steps, name: str = "norm_param_gradients"
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta from the whitened activations and the gradient of :func:`normalise`'s result.

    Raises:
        TensorError: The shapes differ.
    """
    _check_acts(name, whitened)
    check_pair(name, whitened, grads_in)
    return parts.parameter_gradients(graph, whitened, grads_in, KEPT, prog, name)


def norm_gradients(graph: Graph, grads_in: Tensor, gamma: Tensor, prog: Steps, name: str = "norm_gradients") -> Tensor:
    """Gradient of the whitened activations: grads_in · gamma.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    _check_acts(name, grads_in, gamma=gamma)
    out = create_output_like(graph, [grads_in], grads_in.shape, grads_in.dtype, f"{name}/out")
    map_with_output(graph, _1 * _2, [grads_in, parts.beside(gamma, KEPT, grads_in.ndim)], out, prog, name)
    return out


def norm_statistics_gradients(
    graph: Graph,
    whitened: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    prog: Steps,
    name: str = "norm_statistics_gradients",
) -> Tensor:
    """Gradient of the activations through their own statistics, from that of the whitened ones.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    _check_acts(name, whitened, inv_std_dev=inv_std_dev)
    check_pair(name, whitened, grads_in)
    return parts.input_gradient(graph, (whitened, grads_in, inv_std_dev), None, KEPT, prog, name)


def distributed_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Steps,
    all_reduce: AllReduce,
    norm_batch_size: int,
    *,
    unbiased: bool = False,
    stable: bool = False,
    output_type: ElementType | None = None,
    name: str = "distributed_norm_statistics",
) -> tuple[Tensor, Tensor]:
    """:func:`norm_statistics` over the samples of several replicas.

    Args:
        graph: Graph in which vertices and results are made.
        acts: [batch, channels, *field] of this replica.
        eps: Added to the variance.
        prog: Sequence that the steps are appended to.
        all_reduce: Adds up the sums of a group of replicas.
        norm_batch_size: Samples that share statistics; a multiple of the batch.
        unbiased: As in :func:`norm_statistics`.
        stable: As in :func:`norm_statistics`: the mean is shared before the distances are squared.
        output_type: Of mean and deviation; by default that of ``acts``.
        name: Name of the steps.

    Raises:
        TensorError: ``norm_batch_size`` is no multiple of the batch.
    """
    _check_acts(name, acts)
    dtype = output_type or acts.dtype
    group = replicas_of(name, acts, norm_batch_size)
    moments = Moments(KEPT, eps, per_channel(acts) * group, unbiased)
    if not stable:
        total, squares = all_reduce(graph, parts.sums(graph, acts, None, KEPT, prog, name), prog, group)
        return parts.statistics_of_sums(graph, total, squares, moments=moments, dtype=dtype, prog=prog, name=name)
    gone = parts.gone_dims(acts.ndim, KEPT)
    own_total = reduce(graph, acts, gone, "ADD", prog, out_type=f32, name=f"{name}/sum")
    total = all_reduce(graph, [own_total], prog, group)[0]
    distance = create_output_like(graph, [acts], acts.shape, acts.dtype, f"{name}/distance")
    wide = parts.beside(total, KEPT, acts.ndim)
    map_with_output(graph, _1 - _2 * (1.0 / moments.count), [acts, wide], distance, prog, f"{name}/distance")
    own_squares = reduce(graph, distance, gone, "SQUARE_ADD", prog, out_type=f32, name=f"{name}/squares")
    squares = all_reduce(graph, [own_squares], prog, group)[0]
    # Distances have the mean 0: their variance is Σ d² / n, the mean that goes out is that of the elements.
    none = graph.constant(f32, total.shape, 0.0, name=f"{name}/none")
    _, deviation = parts.statistics_of_sums(graph, none, squares, moments=moments, dtype=dtype, prog=prog, name=name)
    mean = create_output_like(graph, [total], total.shape, dtype, f"{name}/mean")
    map_with_output(graph, _1 * (1.0 / moments.count), [total], mean, prog, f"{name}/mean")
    return mean, deviation


def distributed_norm_statistics_gradients(
    graph: Graph,
    whitened: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    prog: Steps,
    all_reduce: AllReduce,
    norm_batch_size: int,
    name: str = "distributed_norm_statistics_gradients",
) -> Tensor:
    """:func:`norm_statistics_gradients` where ``norm_batch_size`` samples of several replicas share statistics."""
    _check_acts(name, whitened, inv_std_dev=inv_std_dev)
    check_pair(name, whitened, grads_in)
    group = replicas_of(name, whitened, norm_batch_size)
    totals = all_reduce(graph, parts.sums(graph, grads_in, whitened, KEPT, prog, name), prog, group)
    operands = (whitened, grads_in, inv_std_dev)
    return parts.input_gradient_of_sums(
        graph, operands, totals, kept=KEPT, count=per_channel(whitened) * group, prog=prog, name=name
    )


def per_channel(acts: Tensor) -> int:
    """Elements of one channel."""
    return acts.size // max(acts.shape[1], 1)


def replicas_of(name: str, acts: Tensor, norm_batch_size: int) -> int:
    """Replicas whose samples share statistics.

    Raises:
        TensorError: ``norm_batch_size`` is no multiple of the batch.
    """
    batch = acts.shape[0]
    if norm_batch_size < 1 or norm_batch_size % max(batch, 1):
        raise TensorError(
            f"{name}: {norm_batch_size} samples that share statistics are no multiple of the {batch} here"
        )
    return norm_batch_size // batch


def check_pair(name: str, acts: Tensor, grads: Tensor) -> None:
    """Activations and gradients have one shape.

    Raises:
        TensorError: They differ.
        TypeMismatchError: The gradients are no floats.
    """
    parts.check_floats(name, grads)
    parts.check_shape(name, "the gradient", grads, acts.shape)


def _check_acts(name: str, acts: Tensor, **one_a_channel: Tensor) -> None:
    if acts.ndim < 2:
        raise TensorError(f"{name}: {acts!r} has no channels: activations are [batch, channels, *field]")
    parts.check_floats(name, acts, *one_a_channel.values())
    for role, tensor in one_a_channel.items():
        parts.check_shape(name, role, tensor, acts.shape[1:2])
