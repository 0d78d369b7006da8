"""The accumulating matrix product unit of a tile."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.source import constant, guessed, parameter, part, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class AmpMode(Spec):
    """One way to run the unit: a pair of input and partials types.

    Attributes:
        input: Element type of inputs and weights, by name.
        partials: Element type of the accumulators, by name.
        num_units: Convolution units at work: output channels of one pass.
        weights_per_unit: Input channels that one unit holds weights for.
        core_cycles: Cycles from one position to the next, once pipelined.
    """

    input: str
    partials: str
    num_units: int = parameter()
    weights_per_unit: int = parameter()
    core_cycles: int = parameter()

    @property
    def name(self) -> str:
        """``input→partials``."""
        return f"{self.input}→{self.partials}"

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates per cycle on one tile."""
        return self.num_units * self.weights_per_unit // self.core_cycles


@dataclass(frozen=True, kw_only=True)
class Amp(Spec):
    """The matrix unit of a tile.

    Attributes:
        modes: The type pairs that it knows.
        weight_load_bytes_per_cycle: Rate at which weights enter the units.
        wide_weight_load_bytes_per_cycle: The same with 128-bit loads from interleaved memory.
        input_load_bytes_per_cycle: Rate at which activations enter.
        pipeline_depth: Positions in flight at most.
    """

    modes: tuple[AmpMode, ...] = part(AmpMode)
    weight_load_bytes_per_cycle: int = constant(
        stated(8, "convUnitCoeffLoadBytesPerCycle without use128BitConvUnitLoad, PL lib/poplin/ConvOptions.hpp:42")
    )
    wide_weight_load_bytes_per_cycle: int = constant(stated(16, "the same with use128BitConvUnitLoad"))
    input_load_bytes_per_cycle: int = constant(
        stated(8, "Target::getConvUnitInputLoadElemsPerCycle: 2 f32 or 4 f16, PL lib/poplin")
    )
    pipeline_depth: int = constant(guessed(4, "Target::getConvUnitMaxPipelineDepth; no value is published"))

    def mode(self, input: str, partials: str) -> AmpMode:
        """Mode of the unit with these types, given by name.

        Raises:
            MachineError: It has no such mode.
        """
        for mode in self.modes:
            if (mode.input, mode.partials) == (input, partials):
                return mode
        raise MachineError(
            f"the matrix unit has no mode {input}→{partials}",
            remedy="one of " + ", ".join(mode.name for mode in self.modes),
        )
