"""Layer norm: statistics of each sample, on [batch, channels, *field]; a group norm of one group."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.norms import view as norm
from abele.poplibs.popnn.norms.view import group_view
from abele.poplibs.popops.elementwise.scaled_add import Scale
from abele.poplibs.poputil.options import Options


def layer_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    *,
    unbiased: bool = False,
    stable: bool = False,
    options: Options = None,
    name: str = "layer_norm_statistics",
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each sample: [batch], in the type of ``acts``.

    Args:
        graph: Where vertices and results are made.
        acts: [batch, channels, *field], floating point.
        eps: Added to the variance.
        prog: Sequence that the steps are appended to.
        unbiased: The variance is over one element fewer.
        stable: Takes distances from the mean before it squares, in one pass more.
        options: ``groupNormStridedChannelGrouping`` (true): channel c belongs to group c mod groups, rather than to
            group c div channels a group.
        name: Name of the steps.

    Raises:
        TensorError: Channels that do not divide into the groups.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: An option that there is not.
    """
    return norm.statistics(
        graph, group_view(name, 1, options), acts, eps=eps, prog=prog, unbiased=unbiased, stable=stable
    )


def layer_norm_whiten(
    graph: Graph,
    acts: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "layer_norm_whiten",
) -> Tensor:
    """(acts − mean) · inv_std_dev; as many groups as there are statistics a sample.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    return norm.whiten(graph, group_view(name, 1, options), acts, mean, inv_std_dev, prog)


def layer_normalise(
    graph: Graph,
    acts: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "layer_normalise",
) -> tuple[Tensor, Tensor]:
    """Activations normalised with statistics, then scaled and shifted channel by channel; and as before that.

    Raises:
        TensorError: Parameters that are not one per channel, or statistics that fit no grouping.
        TypeMismatchError: Elements that are no floats.
    """
    view = group_view(name, 1, options)
    return norm.normalise(graph, view, acts, gamma=gamma, beta=beta, mean=mean, inv_std_dev=inv_std_dev, prog=prog)


def layer_norm_param_gradients(
    graph: Graph,
    acts: Tensor,
    grads_in: Tensor,
    prog: Sequence,
    *,
    mean: Tensor | None = None,
    inv_std_dev: Tensor | None = None,
    options: Options = None,
    name: str = "layer_norm_param_gradients",
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta from whitened activations; or from activations, with ``mean`` and ``inv_std_dev``.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    view = group_view(name, 1, options)
    whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
    return norm.param_gradients(graph, view, whitened, grads_in, prog)


def layer_norm_gradients(
    graph: Graph,
    acts: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    *,
    mean: Tensor | None = None,
    options: Options = None,
    name: str = "layer_norm_gradients",
) -> Tensor:
    """Gradient of the activations, through their statistics too.

    ``acts`` are whitened; or not, where ``mean`` is given.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    view = group_view(name, 1, options)
    whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
    return norm.gradients(graph, view, whitened, grads_in=grads_in, inv_std_dev=inv_std_dev, gamma=gamma, prog=prog)


def layer_norm_param_update(
    graph: Graph,
    gamma_delta: Tensor,
    beta_delta: Tensor,
    scale: Scale,
    gamma: Tensor,
    beta: Tensor,
    prog: Sequence,
    name: str = "layer_norm_param_update",
) -> None:
    """gamma ← gamma + scale · gamma_delta, beta ← beta + scale · beta_delta.

    Raises:
        TensorError: Shapes that do not go together.
        TypeMismatchError: Elements that are no floats.
    """
    norm.param_update(graph, name, gamma_delta, beta_delta=beta_delta, scale=scale, gamma=gamma, beta=beta, prog=prog)
