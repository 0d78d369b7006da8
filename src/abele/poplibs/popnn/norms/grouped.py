"""Group, layer and instance norm: statistics of groups of channels, sample by sample, on [batch, channels, *field].

They are one norm that differs in how many groups the channels make: as many as there are statistics, one, or as many as
there are channels. So each function is written once, as a method of :class:`GroupedNorm`, and exported three times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.norms import view as norm
from abele.poplibs.popnn.norms.view import NormView, channels_of, group_view
from abele.poplibs.popops.elementwise.scaled_add import Scale
from abele.poplibs.poputil.options import Options


@dataclass(frozen=True)
class GroupedNorm:
    """The functions of one kind of norm.

    Attributes:
        kind: Prefix of the names of its functions.
        groups: Groups of channels, from the function's name, activations, and one statistic where there is one.
    """

    kind: str
    groups: Callable[[str, Tensor, Tensor | None], int]

    def _view(self, name: str, acts: Tensor, statistic: Tensor | None, options: Options) -> NormView:
        return group_view(name, self.groups(name, acts, statistic), options)

    def statistics(
        self,
        graph: Graph,
        acts: Tensor,
        eps: float,
        prog: Sequence,
        *,
        unbiased: bool = False,
        stable: bool = False,
        options: Options = None,
        name: str = "",
    ) -> tuple[Tensor, Tensor]:
        """Mean and inverse standard deviation of each group of each sample: [batch · groups], in the type of ``acts``.

        A layer norm has one group, an instance norm one per channel.

        Args:
            graph: Graph in which vertices and results are made.
            acts: [batch, channels, *field], floating point.
            eps: Added to the variance.
            prog: Sequence that the steps are appended to.
            unbiased: The variance is over one element fewer.
            stable: Takes distances from the mean before it squares, in one pass more.
            options: ``groupNormStridedChannelGrouping`` (true): channel c belongs to group c mod groups, rather than to
                group c div channels per group.
            name: Name of the steps.

        Returns:
            Mean and inverse standard deviation.

        Raises:
            TensorError: Channels that do not divide into the groups.
            TypeMismatchError: Elements that are no floats.
            InvalidOptionError: An option that there is not.
        """
        view = self._view(name or f"{self.kind}_norm_statistics", acts, None, options)
        return norm.statistics(graph, view, acts, eps, prog, unbiased=unbiased, stable=stable)

    def whiten(
        self,
        graph: Graph,
        acts: Tensor,
        mean: Tensor,
        inv_std_dev: Tensor,
        prog: Sequence,
        *,
        options: Options = None,
        name: str = "",
    ) -> Tensor:
        """(acts − mean) · inv_std_dev; of a group norm, as many groups as there are statistics per sample.

        Raises:
            TensorError: Shapes that do not go together.
            TypeMismatchError: Elements that are no floats.
            InvalidOptionError: A misspelt option, or a value that it does not take.
        """
        view = self._view(name or f"{self.kind}_norm_whiten", acts, mean, options)
        return norm.whiten(graph, view, acts, (mean, inv_std_dev), prog)

    def normalise(
        self,
        graph: Graph,
        acts: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        inv_std_dev: Tensor,
        prog: Sequence,
        *,
        options: Options = None,
        name: str = "",
    ) -> tuple[Tensor, Tensor]:
        """Activations normalised with statistics, then scaled and shifted channel by channel; and as before that.

        Raises:
            TensorError: Parameters that are not one per channel, or statistics that fit no grouping.
            TypeMismatchError: Elements that are no floats.
        """
        view = self._view(name or f"{self.kind}_normalise", acts, mean, options)
        return norm.both(graph, view, acts, (gamma, beta), (mean, inv_std_dev), prog)

    def param_gradients(
        self,
        graph: Graph,
        acts: Tensor,
        grads_in: Tensor,
        prog: Sequence,
        *,
        mean: Tensor | None = None,
        inv_std_dev: Tensor | None = None,
        options: Options = None,
        name: str = "",
    ) -> tuple[Tensor, Tensor]:
        """Gradients of gamma and beta from whitened activations, or from activations with ``mean`` and ``inv_std_dev``.

        Raises:
            TensorError: Shapes that do not go together.
            TypeMismatchError: Elements that are no floats.
            InvalidOptionError: A misspelt option, or a value that it does not take.
        """
        view = self._view(name or f"{self.kind}_norm_param_gradients", acts, mean, options)
        whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
        return norm.param_gradients(graph, view, whitened, grads_in, prog)

    def gradients(
        self,
        graph: Graph,
        acts: Tensor,
        grads_in: Tensor,
        inv_std_dev: Tensor,
        gamma: Tensor,
        prog: Sequence,
        *,
        mean: Tensor | None = None,
        options: Options = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of the activations, through their statistics too.

        ``acts`` are whitened; or not, where ``mean`` is given.

        Raises:
            TensorError: Shapes that do not go together.
            TypeMismatchError: Elements that are no floats.
            InvalidOptionError: A misspelt option, or a value that it does not take.
        """
        view = self._view(name or f"{self.kind}_norm_gradients", acts, inv_std_dev, options)
        whitened = norm.whitened_of(graph, view, acts, mean, inv_std_dev, prog)
        return norm.gradients(graph, view, whitened, grads_in, prog, inv_std_dev=inv_std_dev, gamma=gamma)

    def param_update(
        self,
        graph: Graph,
        gamma_delta: Tensor,
        beta_delta: Tensor,
        scale: Scale,
        gamma: Tensor,
        beta: Tensor,
        prog: Sequence,
        name: str = "",
    ) -> None:
        """gamma ← gamma + scale · gamma_delta, beta ← beta + scale · beta_delta.

        Raises:
            TensorError: Shapes that do not go together.
            TypeMismatchError: Elements that are no floats.
        """
        name = name or f"{self.kind}_norm_param_update"
        norm.param_update(graph, name, (gamma_delta, beta_delta), scale, (gamma, beta), prog)


def group_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    num_groups: int,
    *,
    unbiased: bool = False,
    stable: bool = False,
    options: Options = None,
    name: str = "group_norm_statistics",
) -> tuple[Tensor, Tensor]:
    """:meth:`GroupedNorm.statistics` of ``num_groups`` groups of channels; errors as there."""
    view = group_view(name, num_groups, options)
    return norm.statistics(graph, view, acts, eps, prog, unbiased=unbiased, stable=stable)


def _groups_of(name: str, acts: Tensor, statistic: Tensor | None) -> int:
    """Groups that a statistic, [batch · groups], is of; whitened activations alone do not need to know.

    Raises:
        TensorError: It is no multiple of the batch.
    """
    if statistic is None:
        return 1
    batch = acts.shape[0] if acts.ndim else 1
    if statistic.ndim != 1 or statistic.size == 0 or statistic.size % max(batch, 1):
        raise TensorError(f"{name}: statistic {statistic!r} has shape {list(statistic.shape)}, not [{batch} · groups]")
    return statistic.size // max(batch, 1)


_group = GroupedNorm("group", _groups_of)
group_norm_whiten, group_normalise, group_norm_gradients = _group.whiten, _group.normalise, _group.gradients
group_norm_param_gradients, group_norm_param_update = _group.param_gradients, _group.param_update

_layer = GroupedNorm("layer", lambda name, acts, statistic: 1)
layer_norm_statistics, layer_norm_whiten, layer_normalise = _layer.statistics, _layer.whiten, _layer.normalise
layer_norm_gradients = _layer.gradients
layer_norm_param_gradients, layer_norm_param_update = _layer.param_gradients, _layer.param_update

_instance = GroupedNorm("instance", lambda name, acts, statistic: channels_of(name, acts))
instance_norm_statistics, instance_norm_whiten = _instance.statistics, _instance.whiten
instance_normalise, instance_norm_gradients = _instance.normalise, _instance.gradients
instance_norm_param_gradients, instance_norm_param_update = _instance.param_gradients, _instance.param_update
