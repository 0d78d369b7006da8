"""A norm's view of its activations: dimensions that share statistics, and the elements of each parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType
from abele.poplibs.poplin.norms import parts
from abele.poplibs.poplin.norms.parts import Moments
from abele.poplibs.popops.elementwise.map import map_with_output
from abele.poplibs.popops.elementwise.scaled_add import Scale, scaled_add_to
from abele.poplibs.popops.expr import _1, _2, _3
from abele.poplibs.poputil.layout import create_output_like
from abele.poplibs.poputil.options import Option, Options, flag, read_options
from abele.words import counted

Pair = tuple[Tensor, Tensor]
"""Mean and inverse standard deviation, or gamma and beta."""

GROUP_OPTIONS: dict[str, Option] = {"groupNormStridedChannelGrouping": flag(True), "groupNormFast": flag(False)}
"""Options of group, layer and instance norms. Source: PopLibs' GroupNorm.hpp; ``groupNormFast`` asks for another order
of the same steps, which these steps have anyway."""


@dataclass(frozen=True)
class NormView:
    """Activations [batch, channels, *field] seen by a norm.

    Attributes:
        name: The library function, for errors.
        groups: Groups of channels with statistics of their own for each sample; 0 for statistics over the batch.
        strided: True if channel c belongs to group c mod ``groups``, rather than c div (channels / ``groups``).
    """

    name: str
    groups: int
    strided: bool = True

    @property
    def kept(self) -> tuple[int, ...]:
        """Dimensions of :meth:`of` that statistics keep."""
        if not self.groups:
            return (1,)
        # Strided: [batch, size, groups, …], so the groups are dimension 2.
        return (0, 2) if self.strided else (0, 1)

    def of(self, acts: Tensor) -> Tensor:
        """The activations, channels in two dimensions where there are groups.

        Raises:
            TensorError: No channels, or channels that do not divide into the groups.
        """
        if acts.ndim < 2:
            raise TensorError(f"{self.name}: {acts!r} has no channels: activations are [batch, channels, *field]")
        parts.check_floats(self.name, acts)
        if not self.groups:
            return acts
        batch, channels, *field = acts.shape
        return acts.reshape((batch, *self._split(channels), *field))

    def back(self, made: Tensor) -> Tensor:
        """Activations in their own shape again, from the shape that :meth:`of` gave."""
        if not self.groups:
            return made
        batch, one, other, *field = made.shape
        return made.reshape((batch, one * other, *field))

    def _split(self, channels: int) -> tuple[int, int]:
        if channels % self.groups:
            raise TensorError(
                f"{self.name}: {counted(channels, 'channel')} do not divide into {counted(self.groups, 'group')}"
            )
        size = channels // self.groups
        return (size, self.groups) if self.strided else (self.groups, size)

    def statistic(self, role: str, tensor: Tensor, acts: Tensor) -> Tensor:
        """A statistic, [batch · groups] or [channels], with the kept dimensions of :meth:`of`.

        Raises:
            TensorError: It does not have as many elements.
        """
        seen = self.of(acts)
        shape = tuple(seen.shape[d] for d in self.kept)
        parts.check_shape(self.name, role, tensor, (math.prod(shape),))
        return tensor.reshape(shape)

    def both_statistics(self, statistics: Pair, acts: Tensor) -> Pair:
        """Mean and inverse standard deviation, each as :meth:`statistic` gives it."""
        mean, inv_std_dev = statistics
        return self.statistic("mean", mean, acts), self.statistic("inv_std_dev", inv_std_dev, acts)

    def parameter(self, role: str, tensor: Tensor, acts: Tensor) -> Tensor:
        """A parameter, [channels], with dimensions of one index beside the channels of :meth:`of`."""
        channels = acts.shape[1]
        parts.check_shape(self.name, role, tensor, (channels,))
        field = (1,) * (acts.ndim - 2)
        return tensor.reshape((1, *(self._split(channels) if self.groups else (channels,)), *field))

    def moments(self, acts: Tensor, eps: float, unbiased: bool) -> Moments:
        """Parameters of the statistics of ``acts``."""
        seen = self.of(acts)
        count = seen.size // max(math.prod(seen.shape[d] for d in self.kept), 1)
        return Moments(self.kept, eps, count, unbiased)


def group_view(name: str, num_groups: int, options: Options) -> NormView:
    """The view of a group norm.

    Raises:
        TensorError: Fewer groups than one.
        InvalidOptionError: An option that group norms do not have.
    """
    if num_groups < 1:
        raise TensorError(f"{name}: {counted(num_groups, 'group')}")
    return NormView(name, num_groups, read_options(name, options, GROUP_OPTIONS)["groupNormStridedChannelGrouping"])


def statistics(
    graph: Graph,
    view: NormView,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    *,
    unbiased: bool,
    stable: bool,
    output_type: ElementType | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation, flat; in the type of ``acts``, or in ``output_type``."""
    moments = view.moments(acts, eps, unbiased)
    dtype = output_type or acts.dtype
    mean, deviation = parts.statistics(graph, view.of(acts), moments, prog, view.name, stable=stable, dtype=dtype)
    return mean.flatten(), deviation.flatten()


def whiten(graph: Graph, view: NormView, acts: Tensor, statistics: Pair, prog: Sequence) -> Tensor:
    """(acts − mean) · inv_std_dev."""
    out = create_output_like(graph, [acts], acts.shape, acts.dtype, f"{view.name}/out")
    stats = view.both_statistics(statistics, acts)
    parts.whiten(graph, view.of(acts), stats, kept=view.kept, out=view.of(out), prog=prog, name=view.name)
    return out


def normalise(
    graph: Graph,
    view: NormView,
    acts: Tensor,
    parameters: Pair,
    statistics: Pair,
    prog: Sequence,
    *,
    keeps: bool = True,
    out_type: ElementType | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Normalised and, if it ``keeps`` them, whitened activations, in one step; the first in ``out_type``."""
    made = {"out": out_type or acts.dtype} | ({"whitened": acts.dtype} if keeps else {})
    out, *white = (create_output_like(graph, [acts], acts.shape, t, f"{view.name}/{n}") for n, t in made.items())
    stats = view.both_statistics(statistics, acts)
    gamma, beta = parameters
    params = view.parameter("gamma", gamma, acts), view.parameter("beta", beta, acts)
    parts.whiten(
        graph,
        view.of(acts),
        stats,
        kept=view.kept,
        out=view.of(out),
        prog=prog,
        name=view.name,
        gamma_beta=params,
        whitened=view.of(white[0]) if keeps else None,
    )
    return out, white[0] if keeps else None


def both(graph: Graph, view: NormView, acts: Tensor, parameters: Pair, statistics: Pair, prog: Sequence) -> Pair:
    """:func:`normalise` that keeps the whitened activations."""
    out, white = normalise(graph, view, acts, parameters, statistics, prog)
    assert white is not None
    return out, white


def scale_and_add(graph: Graph, view: NormView, acts: Tensor, factor: Tensor, addend: Tensor, prog: Sequence) -> Tensor:
    """acts · factor + addend, channel by channel."""
    parts.check_floats(view.name, acts, factor, addend)
    out = create_output_like(graph, [acts], acts.shape, acts.dtype, f"{view.name}/out")
    plain = NormView(view.name, 0)
    wide = [plain.parameter(n, t, acts) for n, t in (("multiplicand", factor), ("addend", addend))]
    map_with_output(graph, _1 * _2 + _3, [acts, *wide], out, prog, view.name)
    return out


def whitened_of(
    graph: Graph, view: NormView, acts: Tensor, mean: Tensor | None, inv_std_dev: Tensor | None, prog: Sequence
) -> Tensor:
    """The whitened activations: those given, or made of activations where their mean is given.

    Raises:
        TensorError: A mean without the inverse standard deviation.
    """
    if mean is None:
        return acts
    if inv_std_dev is None:
        raise TensorError(f"{view.name}: activations that are not whitened need mean and inv_std_dev")
    return whiten(graph, view, acts, (mean, inv_std_dev), prog)


def param_gradients(
    graph: Graph,
    view: NormView,
    whitened: Tensor,
    grads_in: Tensor,
    prog: Sequence,
    *,
    types: tuple[ElementType, ElementType] | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta, in the type of ``grads_in`` or in ``types``."""
    view.of(whitened)
    parts.check_floats(view.name, grads_in)
    parts.check_shape(view.name, "the gradient", grads_in, whitened.shape)
    return parts.parameter_gradients(graph, whitened, grads_in, (1,), prog, view.name, types=types)


def gradients(
    graph: Graph,
    view: NormView,
    whitened: Tensor,
    grads_in: Tensor,
    prog: Sequence,
    *,
    inv_std_dev: Tensor,
    gamma: Tensor | None,
) -> Tensor:
    """Gradient of the activations; ``gamma`` may be left out where it is 1."""
    parts.check_floats(view.name, grads_in, inv_std_dev, *(() if gamma is None else (gamma,)))
    parts.check_shape(view.name, "the gradient", grads_in, whitened.shape)
    operands = view.of(whitened), view.of(grads_in), view.statistic("inv_std_dev", inv_std_dev, whitened)
    factor = None if gamma is None else view.parameter("gamma", gamma, whitened)
    made = parts.input_gradient(graph, operands, factor, view.kept, prog, view.name)
    return view.back(made)


def param_update(graph: Graph, name: str, deltas: Pair, scale: Scale, parameters: Pair, prog: Sequence) -> None:
    """gamma ← gamma + scale · its delta, and beta likewise."""
    for parameter, delta, part in zip(parameters, deltas, ("gamma", "beta"), strict=True):
        parts.check_shape(name, f"the delta of {part}", delta, parameter.shape)
        scaled_add_to(graph, parameter, delta, scale, prog, name=f"{name}/{part}")


def channels_of(name: str, acts: Tensor) -> int:
    """Channels of activations.

    Raises:
        TensorError: They have none.
    """
    if acts.ndim < 2:
        raise TensorError(f"{name}: {acts!r} has no channels: activations are [batch, channels, *field]")
    return acts.shape[1]
