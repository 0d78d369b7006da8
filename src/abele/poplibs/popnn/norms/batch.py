"""Batch norm: statistics of each channel over samples and field, on [batch, channels, *field]."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.poplin import norms as poplin_norms
from abele.poplibs.poplin.norms.per_channel import AllReduce
from abele.poplibs.popnn.norms import view as norm
from abele.poplibs.popnn.norms.view import NormView
from abele.poplibs.popops.elementwise.scaled_add import Scale


def batch_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    *,
    unbiased: bool = False,
    stable: bool = False,
    name: str = "batch_norm_statistics",
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each channel; see :func:`abele.poplibs.poplin.norms.norm_statistics`.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: A negative ``eps``.
    """
    return norm.statistics(graph, NormView(name, 0), acts, eps, prog, unbiased=unbiased, stable=stable)


def distributed_batch_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    all_reduce: AllReduce,
    norm_batch_size: int,
    *,
    unbiased: bool = False,
    stable: bool = False,
    name: str = "distributed_batch_norm_statistics",
) -> tuple[Tensor, Tensor]:
    """:func:`batch_norm_statistics` over ``norm_batch_size`` samples of several replicas.

    ``all_reduce(graph, tensors, prog, replicas)`` gives the sums of the tensors over groups of so many replicas.

    Raises:
        TensorError: Shapes that do not go together, or a number of samples that is no multiple of the batch.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: A negative ``eps``.
    """
    return poplin_norms.distributed_norm_statistics(
        graph, acts, eps, prog, all_reduce, norm_batch_size, unbiased=unbiased, stable=stable, name=name
    )


def batch_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, prog: Sequence, name: str = "batch_norm_whiten"
) -> Tensor:
    """(acts − mean) · inv_std_dev.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    return norm.whiten(graph, NormView(name, 0), acts, (mean, inv_std_dev), prog)


def batch_normalise(
    graph: Graph,
    acts: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "batch_normalise",
) -> tuple[Tensor, Tensor]:
    """Activations normalised with statistics, scaled and shifted; and as they were before that (whitened).

    Args:
        graph: Graph in which vertices and results are made.
        acts: [batch, channels, *field].
        gamma: Factor of each channel.
        beta: Addend of each channel.
        mean: Mean of each channel.
        inv_std_dev: Inverse standard deviation of each channel.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: Parameters or statistics that are not one per channel.
        TypeMismatchError: Elements that are no floats.
    """
    return norm.both(graph, NormView(name, 0), acts, (gamma, beta), (mean, inv_std_dev), prog)


def batch_normalise_inference(
    graph: Graph,
    acts: Tensor,
    combined_multiplicand: Tensor,
    addend: Tensor,
    prog: Sequence,
    name: str = "batch_normalise",
) -> Tensor:
    """acts · combined_multiplicand + addend, channel by channel, for inference.

    The factor is gamma · inv_std_dev, the addend beta − factor · mean.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    return norm.scale_and_add(graph, NormView(name, 0), acts, combined_multiplicand, addend, prog)


def batch_norm_param_gradients(
    graph: Graph,
    acts: Tensor,
    grads_in: Tensor,
    prog: Sequence,
    *,
    mean: Tensor | None = None,
    inv_std_dev: Tensor | None = None,
    name: str = "batch_norm_param_gradients",
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta from whitened activations; or from activations, with ``mean`` and ``inv_std_dev``.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    view = NormView(name, 0)
    whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
    return norm.param_gradients(graph, view, whitened, grads_in, prog)


def batch_norm_gradients(
    graph: Graph,
    acts: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    *,
    mean: Tensor | None = None,
    name: str = "batch_norm_gradients",
) -> Tensor:
    """Gradient of the activations, through their statistics too.

    ``acts`` are whitened; or not, where ``mean`` is given.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    view = NormView(name, 0)
    whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
    return norm.gradients(graph, view, whitened, grads_in, prog, inv_std_dev=inv_std_dev, gamma=gamma)


def distributed_batch_norm_gradients(
    graph: Graph,
    acts: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    all_reduce: AllReduce,
    norm_batch_size: int,
    *,
    mean: Tensor | None = None,
    name: str = "distributed_batch_norm_gradients",
) -> Tensor:
    """:func:`batch_norm_gradients` where ``norm_batch_size`` samples of several replicas share statistics.

    Raises:
        TensorError: Shapes that do not go together, or a number of samples that is no multiple of the batch.
        TypeMismatchError: Elements that are no floats.
    """
    whitened = norm.whitened_of(graph, NormView(name, 0), acts, mean, inv_std_dev, prog)
    scaled = poplin_norms.norm_gradients(graph, grads_in, gamma, prog, f"{name}/scaled")
    return poplin_norms.distributed_norm_statistics_gradients(
        graph,
        whitened,
        scaled,
        inv_std_dev=inv_std_dev,
        prog=prog,
        all_reduce=all_reduce,
        norm_batch_size=norm_batch_size,
        name=name,
    )


def batch_norm_param_update(
    graph: Graph,
    gamma_delta: Tensor,
    beta_delta: Tensor,
    scale: Scale,
    gamma: Tensor,
    beta: Tensor,
    prog: Sequence,
    name: str = "batch_norm_param_update",
) -> None:
    """gamma ← gamma + scale · gamma_delta, beta ← beta + scale · beta_delta.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    norm.param_update(graph, name, (gamma_delta, beta_delta), scale, (gamma, beta), prog)
