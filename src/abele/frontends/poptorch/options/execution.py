"""Options that PopTorch does not have: which machine is modelled and how the program is run on the host."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.machine import System, systems
from abele.network import PipelineSchedule
from abele.numerics import ElementType, quarter
from abele.numerics.types import SCALES
from abele.options import OptionTable, choice, integer
from abele.session import Settings
from abele.session.settings import SETTINGS


class AbeleOptions(CheckedOptions):
    """``opts.Abele``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Abele",
        {
            "system_choice": SETTINGS["system"],
            "engine_mode": SETTINGS["mode"],
            "num_threads": SETTINGS["threads"],
            "allow_out_of_memory": SETTINGS["allow_out_of_memory"],
            "pass_folder": SETTINGS["dump_passes"],
            "recompute_cheap": SETTINGS["recompute"],
            "share_functions": SETTINGS["shared_functions"],
            "skip_hidden_scores": SETTINGS["skip_hidden"],
            "recorded_exponents": SETTINGS["exponents"],
            "exponents_every": SETTINGS["exponents_every"],
            "pipeline_schedule": choice(
                *map(str, PipelineSchedule), doc="which stages of a pipeline run at the same time in training"
            ),
            "stash_format": choice(
                "none", "F143", "F152", doc="8-bit floats as which activations wait for backward stages of a pipeline"
            ),
            "stash_scale": integer(
                0, min(SCALES), max(SCALES), doc="what these floats are scaled by: a power of two, by its exponent"
            ),
            "norm_replicas": integer(1, 1, doc="replicas over whose samples batch norms take their statistics"),
        },
    )

    def system(self, system: System | str) -> Self:
        """The machine to model: a preset's name, a file, or a :class:`abele.machine.System`.

        The model uses one of its IPUs. Without this, the environment variable ``ABELE_SYSTEM`` decides, else Bow-2000.

        Raises:
            MachineError: No such system.
        """
        return self.set(system_choice=systems.resolve(system))

    def mode(self, mode: str) -> Self:
        """Set the engine that runs programs: ``native`` (host kernels, fast) or ``tiles`` (every vertex as placed)."""
        return self.set(engine_mode=mode)

    def threads(self, count: int) -> Self:
        """Host threads; 0, the default, for one per core. Results do not depend on it."""
        return self.set(num_threads=count)

    def allowOutOfMemory(self, allowed: bool = True) -> Self:
        """Report a program that does not fit on its tiles instead of refusing it."""
        return self.set(allow_out_of_memory=allowed)

    def dumpPasses(self, folder: str | Path | None = "passes") -> Self:
        """Write the network after each pass of the compiler as text, into a folder per model below ``folder``.

        The files are ``00-captured.net``, ``01-canonicalise.net`` and so on; a pass that changes nothing has none.
        ``abele.network.parse`` reads them back.
        """
        return self.set(pass_folder=None if folder is None else str(folder))

    def skipHidden(self, on: bool = True) -> Self:
        """Compute attention without blocks of scores that a mask hides, if the mask is known when the model is
        compiled.

        Such are causal masks, windows, and sequences with constant borders. The attention is compiled by itself, whole
        and in blocks, and the one that takes the fewest modelled cycles is used; results are the same but for rounding.
        """
        return self.set(skip_hidden_scores=on)

    def recompute(self, cheap: bool = True) -> Self:
        """Compute cheap activations again in the backward pass, which needs less memory and more cycles.

        Cheap are maps, conversions, non-linearities, softmax, dropout and pooling; products and convolutions are kept.
        """
        return self.set(recompute_cheap=cheap)

    def sharedFunctions(self, shared: bool = True) -> Self:
        """Let the machine hold repeated layers once, which needs less memory and some cycles more.

        A program that does not fit otherwise is compiled so without being asked.
        """
        return self.set(share_functions=shared)

    def recordExponents(self, *tensors: str, every: int = 1) -> Self:
        """Count exponents of tensors after calls, for ``model.report().exponents`` and heat maps of traces.

        Which exponents weights, gradients and activations have says which 8-bit floats, and which scale of the loss,
        suit them. The modelled machine does not know of it, so that costs are as without. Activations and gradients are
        those of the last micro-batch of a call.

        Args:
            tensors: Names as ``getTensorNames()`` lists them, patterns of such with ``*``, or ``weights``,
                ``gradients``, ``activations`` and ``activation_gradients`` for all of a kind; without any, all four.
            every: Steps (weight updates, or batches of inference) between counts.
        """
        return self.set(recorded_exponents=tensors or ("all",), exponents_every=every)

    def pipelineSchedule(self, schedule: str) -> Self:
        """Choose the stages of a pipeline that run at the same time in training.

        ``grouped`` (all of them), ``interleaved`` (forward and backward stages take turns, with about half as many
        micro-batches on their way) or ``sequential`` (one after the other), as in Graphcore's TensorFlow.
        """
        return self.set(pipeline_schedule=schedule)

    def stash(self, format: str, scale: int = 0) -> Self:
        """Let activations of a pipeline wait for its backward stages as 8-bit floats, which PopTorch cannot.

        A float32 activation then takes a quarter of its memory, and what the backward pass computes from it is rounded
        as it is.

        Args:
            format: ``F143`` (1 sign, 4 exponent, 3 fraction bits: from 2**-10 to 240), ``F152`` (from 2**-17 to 57,344)
                or ``none``.
            scale: Numbers are divided by ``2**scale`` when they are stored, and multiplied when they are read. What is
                too large becomes the largest number.
        """
        return self.set(stash_format=format, stash_scale=scale)

    def batchNormReplicas(self, replicas: int) -> Self:
        """Consecutive replicas over whose samples batch norms take their statistics in training, running ones too.

        It is what ``norms.experimental.distributed_batch_norm_replica_group_size`` is in Graphcore's TensorFlow, and
        what ``torch.nn.SyncBatchNorm`` does over a process group.
        """
        return self.set(norm_replicas=replicas)

    @property
    def stash_type(self) -> ElementType | None:
        """The element type of waiting activations; None for their own."""
        return None if self.stash_format == "none" else quarter(self.stash_format, self.stash_scale)

    def target(self) -> System:
        """One IPU of the system that is modelled."""
        return Settings(system=self.system_choice).target()
