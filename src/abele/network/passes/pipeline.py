"""Pipelines: passes in order, which can be printed, stopped after any of them, and watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from abele.errors import InvalidOptionError, NetworkError, nearest
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking
from abele.network.gradient_scale import loss_scale_of, sign_of
from abele.network.ir import Network, network_text, verify
from abele.network.optimisers import CapturedUpdate, Group
from abele.network.passes.accumulate import Accumulate, combines
from abele.network.passes.all_reduce import AllReduce
from abele.network.passes.base import Pass, Watch
from abele.network.passes.canonicalise import Canonicalise
from abele.network.passes.common_subexpressions import CommonSubexpressions
from abele.network.passes.dead_code import DeadCode
from abele.network.passes.differentiate import Differentiate
from abele.network.passes.fold_constants import FoldConstants
from abele.network.passes.follow import Follow
from abele.network.passes.fuse_maps import FuseMaps
from abele.network.passes.group_convolutions import GroupConvolutions
from abele.network.passes.join_casts import JoinCasts
from abele.network.passes.join_updates import JoinUpdates
from abele.network.passes.join_views import JoinViews
from abele.network.passes.narrow import Narrow
from abele.network.passes.optimise import Optimise
from abele.network.passes.outline import Outline
from abele.network.passes.place import AssignPlaces
from abele.network.passes.recognise import Recognise
from abele.network.passes.recompute import CHEAP, Recompute
from abele.network.passes.recompute_stages import RecomputeStages
from abele.network.passes.share_convolutions import ShareConvolutions
from abele.network.passes.skip_hidden import BlockChooser, SkipHidden
from abele.network.passes.sparse_updates import SparseUpdates
from abele.network.passes.spread import InsertTransfers
from abele.network.passes.stages import AssignStages
from abele.network.schedule import GRADIENT, PipelineSchedule, Schedule
from abele.numerics import f16
from abele.writing import writing

_checking: ContextVar[bool] = ContextVar("checking_between_passes", default=False)
CAPTURED = "captured"
"""Name in dumps of the network before the first pass."""


@contextmanager
def checked_passes(on: bool = True) -> Iterator[None]:
    """Check the network after each pass that runs inside; an illegal one names the pass."""
    token = _checking.set(on)
    try:
        yield
    finally:
        _checking.reset(token)


def check_passes(on: bool = True) -> None:
    """Check the network after each pass from now on, in this thread of control; tests do."""
    _checking.set(on)


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run.

    ``print`` lists them with their options.

    Attributes:
        passes: The passes.
    """

    passes: tuple[Pass, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the passes, each once."""
        return tuple(dict.fromkeys(p.name for p in self.passes))

    def until(self, name: str) -> Pipeline:
        """The pipeline that stops after the last pass called ``name``.

        Raises:
            InvalidOptionError: There is no such pass.
        """
        if name == CAPTURED:
            return Pipeline(())
        places = [i for i, p in enumerate(self.passes) if p.name == name]
        if not places:
            close = nearest(name, (CAPTURED, *self.names))
            raise InvalidOptionError(
                f"the pipeline has no pass {name!r}",
                because=f"its passes are {', '.join(self.names)}",
                remedy=f"{close!r}" if close else None,
            )
        return Pipeline(self.passes[: places[-1] + 1])

    def without(self, *names: str) -> Pipeline:
        """The pipeline without the passes of these names.

        Raises:
            InvalidOptionError: There is no such pass.
        """
        for name in names:
            self.until(name)
        return Pipeline(tuple(p for p in self.passes if p.name not in names))

    def run(self, net: Network, *, watch: Watch | None = None) -> Network:
        """The network after all passes.

        Args:
            net: Network to start with; it stays as it is.
            watch: Is shown the network before the first and after each pass.

        Raises:
            NetworkError: With :func:`checked_passes`, a pass made a network that is not legal; the error names it.
        """
        if watch is not None:
            watch(0, CAPTURED, net)
        for number, step in enumerate(self.passes, 1):
            net = step.run(net)
            if _checking.get():
                _verify_after(step, net)
            if watch is not None:
                watch(number, step.name, net)
        return net

    def __str__(self) -> str:
        width = len(str(len(self.passes)))
        return "\n".join(f"{number:>{width}}  {step}" for number, step in enumerate(self.passes, 1))


def _verify_after(step: Pass, net: Network) -> None:
    try:
        verify(net)
    except NetworkError as error:
        raise NetworkError(
            f"after the pass {step.name!r}: {error.message}", at=error.at, because=error.because, remedy=error.remedy
        ) from error


def _simplifying(*, differentiated: bool) -> tuple[Pass, ...]:
    tidy = (Canonicalise(), FoldConstants(), CommonSubexpressions(), DeadCode())
    return (*tidy, Recognise(differentiated), Narrow(), GroupConvolutions())


def in_blocks(chooser: BlockChooser | None) -> tuple[Pass, ...]:
    """Passes that leave out scores hidden by known masks; none without a chooser."""
    tidy = (Canonicalise(), FoldConstants(), CommonSubexpressions(), DeadCode())
    return () if chooser is None else (SkipHidden(chooser), *tidy)


def inference_pipeline(blocks: BlockChooser | None = None, *, fuse_maps: bool = False) -> Pipeline:
    """Passes before networks are lowered to run forward.

    Args:
        blocks: As of :func:`training_pipeline`.
        fuse_maps: True to compute chains of element-wise ops at once.
    """
    fused = (FuseMaps(), JoinViews(), CommonSubexpressions(), SparseUpdates(), DeadCode()) if fuse_maps else ()
    placing = (Outline(), JoinCasts(), AssignPlaces(), AssignStages(), Follow(), InsertTransfers())
    return Pipeline((*_simplifying(differentiated=False), *in_blocks(blocks), *fused, *placing))


def training_pipeline(
    schedule: Schedule,
    groups: Sequence[Group],
    *,
    recompute: bool = False,
    recompute_stages: bool = True,
    rebuilt_above: int | None = None,
    automatic_loss_scale: AutomaticLossScale | None = None,
    blocks: BlockChooser | None = None,
    share_convolutions: bool = False,
) -> Pipeline:
    """Passes before networks are lowered to be trained.

    Args:
        schedule: Schedule of a run, with the number of micro-batches per update.
        groups: Optimisers and their parameters.
        recompute: True to compute cheap activations again in the backward pass.
        recompute_stages: False to keep activations between the stages of a pipeline, and not compute them again.
        rebuilt_above: Bytes of an activation above which it is made again of what is kept anyway; None to keep all.
        automatic_loss_scale: Rule by which the loss scale follows the gradients, if it does.
        blocks: Says in which blocks attention leaves out what known masks hide; None to compute all of it.
        share_convolutions: True to make functions of equal convolutions.

    Raises:
        InvalidOptionError: Groups with different scales of the loss.
    """
    named = tuple((g.optimiser, tuple(p.name for p in g.parameters)) for g in groups)
    trained = tuple(name for _, names in named for name in names)
    halves = tuple(name for o, names in named if o.accumulation == f16 for name in names)
    # Momenta that accumulate gradients take the place of sums.
    momenta = tuple(
        (name, number, optimiser.types.get("velocity_type") == f16)
        for number, (optimiser, names) in enumerate(named)
        if combines(optimiser, schedule)
        for name in names
    )
    # A scale that may change is a scalar on the device; a fixed one is multiplied into the loss.
    scale, changes = loss_scale_of(groups)
    changes |= automatic_loss_scale is not None
    start = Differentiate(
        trained,
        scale=sign_of(groups) * (1.0 if changes else scale),
        counted=automatic_loss_scale,
        rebuilt_above=rebuilt_above,
    )
    read = (a.tensor for a in schedule.anchors if a.tensor.startswith(GRADIENT))
    anchored = tuple(name.removeprefix(GRADIENT) for name in read)
    # In a function that stands for several modules none of them has a name of its own.
    apart = automatic_loss_scale is not None and automatic_loss_scale.tracking == GradientTracking.NAMED
    return Pipeline(
        (
            # Equal layers become calls before differentiation, so that each function is differentiated once.
            *_simplifying(differentiated=True),
            *in_blocks(blocks),
            *(() if apart else (Outline(),)),
            AssignPlaces(),
            replace(start, variable_scale=scale) if changes else start,
            CommonSubexpressions(),
            DeadCode(),
            Accumulate(
                schedule.accumulation,
                schedule.mean,
                schedule.strategy,
                halves,
                momenta,
                away=not schedule.locations.accumulators.on_chip,
            ),
            Optimise(named),
            *((AllReduce.of(schedule),) if schedule.replicas > 1 else ()),
            *((JoinUpdates(),) if any(isinstance(g.optimiser, CapturedUpdate) for g in groups) else ()),
            JoinCasts(anchored),
            AssignPlaces(),
            AssignStages(turns=schedule.pipeline == PipelineSchedule.INTERLEAVED),
            Recompute(tuple(sorted(CHEAP)) if recompute else ()),
            *((RecomputeStages(),) if recompute_stages else ()),
            Follow(),
            InsertTransfers(),
            *((ShareConvolutions(),) if share_convolutions else ()),
        )
    )


class PassDump:
    """A watch that writes the text after each pass into a folder: ``00-captured.net``, ``01-canonicalise.net``, …

    A pass that changes nothing writes nothing. What another run left there goes.

    Args:
        folder: Folder of the dump; it is made if it is not there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._last: Network | None = None

    def __call__(self, number: int, name: str, net: Network) -> None:
        """Write the text of one network.

        Raises:
            FileFormatError: The folder cannot be written.
        """
        with writing(self.folder):
            if self._last is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                for old in self.folder.glob("[0-9][0-9]-*.net"):
                    old.unlink()
            if net is not self._last:
                (self.folder / f"{number:02}-{name}.net").write_text(network_text(net) + "\n", encoding="utf-8")
        self._last = net
