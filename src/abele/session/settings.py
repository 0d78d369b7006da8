"""Settings of a session besides its network: the machine, and how programs run on the host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from abele.distribution.lowering import IN_HALVES, STABLE_NORMS
from abele.distribution.program_options import RunModes
from abele.graph.graph import SyncPattern
from abele.machine import System, systems
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking
from abele.options import Option, OptionTable, choice, flag, integer, number, text
from abele.runtime.engine.deployment import MODES

DEFAULT_SYSTEM = "bow-2000"
SYSTEM_VARIABLE = "ABELE_SYSTEM"
REBUILT_PART = 128
"""Activations of more than 1 / 128 of an IPU's memory are made again in the backward pass where that is cheap.

A guess: 5 KB of a tile."""
Share = Annotated[float, Meta(gt=0, le=1)]
"""A share of something, of which nothing is no share."""

SETTINGS = OptionTable(
    "the session",
    {
        "system": Option(
            None,
            System | str | None,
            doc="the machine to model: a preset's name, a file, or a System, of whose IPUs replicas use what they "
            f"need; {DEFAULT_SYSTEM} unless `{SYSTEM_VARIABLE}` says another",
        ),
        "mode": Option("native", Literal[MODES], doc="host kernels, which are fast, or every vertex as placed"),
        "threads": integer(0, doc="host threads; 0 for one per core. Results do not depend on it"),
        "allow_out_of_memory": flag(False, doc="report a program that does not fit on its tiles, and do not refuse it"),
        "memory_proportion": Option(
            None, Share | None, doc="share of a tile's memory that products and convolutions plan with; null: theirs"
        ),
        "partials": choice(
            "f32", "f16", doc="type in which products and convolutions of f16 operands keep partial sums"
        ),
        "convolution_dithering": flag(False, doc="each convolution begins at a tile of its own, by its parameters"),
        "stable_norms": flag(
            False,
            doc="the machine's norms subtract the mean before they square, in one pass more; the host's always do",
        ),
        "exceptions": flag(False, doc="invalid operations, divisions by zero and overflows of floats end a run"),
        "stochastic_rounding": flag(
            False,
            doc="f16 results are rounded at random, up or down by how near each is, once each as they are stored",
        ),
        "synthetic_data": flag(
            False, doc="inputs are random numbers made on the device once, and no outputs are sent to the host"
        ),
        "cache": Option(None, str | None, doc="a folder where compiled networks are kept, by content"),
        "progress": flag(False, doc="compiling shows a bar, where the standard error is a terminal"),
        "engine": Option({}, dict[str, Any], doc="options of the engine under Poplar's names"),
        "name": text("network", doc="what the model is called in reports"),
        "report_folder": text(
            "", doc="folder below `autoReport.directory` for the report; `training` or `inference` if empty"
        ),
        "dump_passes": Option(
            None, str | None, doc="a folder for the text of the network after each pass, by model and use"
        ),
        "automatic_loss_scale": flag(False, doc="multiply the loss by a scale that follows the float16 gradients"),
        "loss_scale_tracking": choice(
            *(method.value for method in GradientTracking),
            doc="which gradients the automatic scale follows: all, those that products and convolutions make, or those "
            "of `loss_scale_tensors`",
        ),
        "loss_scale_tensors": Option(
            (),
            tuple[str, ...],
            doc="parameters and modules whose gradients the automatic scale follows; patterns with `*`",
        ),
        "loss_scale_edge": number(
            AutomaticLossScale.edge_proportion,
            high=1.0,
            doc="where large gradients begin for the automatic scale, as a part of the largest float16",
        ),
        "loss_scale_threshold": number(
            AutomaticLossScale.threshold_proportion,
            high=1.0,
            doc="part of large gradients above which the automatic scale is halved, not doubled",
        ),
        "loss_scale_period": integer(
            AutomaticLossScale.period, 1, doc="weight updates from one move of the automatic scale to the next"
        ),
        "shared_functions": flag(
            False,
            doc="the machine holds repeated layers once, copies their weights in, and sends operands of large products "
            "in halves; done by itself where a program does not fit otherwise",
        ),
        "fuse_maps": flag(
            False,
            doc="inference computes chains of element-wise ops at once, as XLA does; front ends whose programs are not "
            "XLA's keep the steps that are published for them",
        ),
        "recompute": flag(False, doc="compute cheap activations again in the backward pass, and do not keep them"),
        "recompute_stages": flag(
            True, doc="stages of a pipeline keep what enters them, and their backward stages compute the rest again"
        ),
        "skip_hidden": flag(
            False,
            doc="attention leaves out blocks of scores that a mask hides which is known beforehand, where the modelled "
            "machine is faster so",
        ),
        "sync_pattern": choice(
            *get_args(SyncPattern),
            doc="which IPUs of a replica wait when some of them meet the host: all, or those alone that take part",
        ),
        "exponents": Option(
            (),
            tuple[str, ...],
            doc="tensors whose exponents are counted after runs, for the report: names, patterns with `*`, or "
            "`weights`, `gradients`, `activations`, `activation_gradients`, `all`",
        ),
        "exponents_every": integer(1, 1, doc="steps (weight updates, or batches of inference) between such counts"),
        "ipus_per_replica": integer(0, doc="IPUs reserved for each replica; 0 for as many as the network is placed on"),
    },
    listed="docs/session.md lists them",
)
"""Settings of every front end, with their allowed values."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a session.

    What each does, and takes, is in :data:`SETTINGS`; docs/session.md lists them.

    Raises:
        InvalidOptionError: A value that a setting does not take.
    """

    system: System | str | None = None
    mode: str = "native"
    threads: int = 0
    allow_out_of_memory: bool = False
    memory_proportion: float | None = None
    partials: str = "f32"
    convolution_dithering: bool = False
    stable_norms: bool = False
    exceptions: bool = False
    stochastic_rounding: bool = False
    synthetic_data: bool = False
    cache: str | None = None
    progress: bool = False
    engine: Mapping[str, Any] = field(default_factory=dict)
    name: str = "network"
    report_folder: str = ""
    dump_passes: str | None = None
    automatic_loss_scale: bool = False
    loss_scale_tracking: str = "all"
    loss_scale_tensors: tuple[str, ...] = ()
    loss_scale_edge: float = AutomaticLossScale.edge_proportion
    loss_scale_threshold: float = AutomaticLossScale.threshold_proportion
    loss_scale_period: int = AutomaticLossScale.period
    recompute: bool = False
    recompute_stages: bool = True
    skip_hidden: bool = False
    sync_pattern: SyncPattern = "full"
    ipus_per_replica: int = 0
    shared_functions: bool = False
    fuse_maps: bool = False
    exponents: tuple[str, ...] = ()
    exponents_every: int = 1

    def __post_init__(self) -> None:
        for name, option in SETTINGS.items():
            given = getattr(self, name)
            if given != option.default:
                object.__setattr__(self, name, SETTINGS.parse(name, given))

    def report_folder_of(self, *, training: bool) -> str:
        """Folder below ``autoReport.directory`` that the report goes to, so that one use does not replace the other's.

        Args:
            training: True for a network that trains.

        Returns:
            :attr:`report_folder` as a name of one folder; ``training`` or ``inference`` where it is empty.
        """
        return re.sub(r"[^\w.-]+", "_", self.report_folder).strip(".") or ("training" if training else "inference")

    @property
    def chosen_system(self) -> System | str | None:
        """The machine that was asked for, here or by the environment; None for the default."""
        return self.system or os.environ.get(SYSTEM_VARIABLE) or None

    def target(self, num_ipus: int = 1) -> System:
        """The system that is modelled, with as many IPUs in use.

        Raises:
            MachineError: There is no such system.
        """
        return systems.resolve(self.chosen_system or DEFAULT_SYSTEM).with_ipus(num_ipus)

    def rebuilt_above(self, system: System) -> int:
        """Bytes of an activation; a larger one is made again in the backward pass where that is cheap.

        Args:
            system: The machine.
        """
        return 0 if self.recompute else system.ipu.memory_bytes // REBUILT_PART

    @property
    def modes(self) -> RunModes:
        """Behaviour of floats on the device, and the source of its data."""
        return RunModes(
            exceptions=self.exceptions,
            stochastic_rounding=self.stochastic_rounding,
            synthetic_data=self.synthetic_data,
            shared_functions=self.shared_functions,
        )

    @property
    def loss_scale(self) -> AutomaticLossScale | None:
        """Rule by which the loss scale follows the gradients; None for a fixed scale.

        Raises:
            InvalidOptionError: Names of gradients without the setting that they are followed, or the reverse.
        """
        if not self.automatic_loss_scale:
            return None
        return AutomaticLossScale(
            tracking=GradientTracking(self.loss_scale_tracking),
            tensors=self.loss_scale_tensors,
            edge_proportion=self.loss_scale_edge,
            threshold_proportion=self.loss_scale_threshold,
            period=self.loss_scale_period,
        )

    @property
    def planning(self) -> dict[str, Any]:
        """Options of matrix products, convolutions, recurrent layers and norms, as the libraries name them."""
        share = {} if self.memory_proportion is None else {"available_memory_proportion": self.memory_proportion}
        partials = {} if self.partials == SETTINGS["partials"].default else {"partials_type": self.partials}
        dithering = {"enable_conv_dithering": True} if self.convolution_dithering else {}
        halves = {IN_HALVES: True} if self.shared_functions else {}
        return share | partials | dithering | halves | ({STABLE_NORMS: True} if self.stable_norms else {})
