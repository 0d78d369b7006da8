"""What every session is told besides its network: the machine, and how programs run on the host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abele.errors import InvalidOptionError
from abele.machine import System, systems
from abele.runtime.engine.setup import MODES

DEFAULT_SYSTEM = "bow-2000"
SYSTEM_VARIABLE = "ABELE_SYSTEM"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a session.

    Attributes:
        system: The machine to model: a preset's name, a file, or a System; of its IPUs one is used. Without it the
            environment variable ``ABELE_SYSTEM`` decides, else a Bow-2000.
        mode: ``native`` (host kernels, fast) or ``tiles`` (every vertex as placed).
        threads: Host threads; 0 for one per core. Results do not depend on it.
        allow_out_of_memory: Report a program that does not fit on its tiles instead of refusing it.
        memory_proportion: Share of a tile's memory that matrix products and convolutions plan with; None for theirs.
        exceptions: Whether invalid operations, divisions by zero and overflows of floats end a run.
        progress: Whether compiling shows a bar, where the standard error is a terminal.
        engine: Options of the engine under Poplar's names; docs/engine.md lists them.
        name: What the model is called in reports.
        dump_passes: A folder for the text of the network after each pass, in one folder per model and use; None for no
            such files.
        recompute: True to compute cheap activations again in the backward pass rather than keep them.

    Raises:
        InvalidOptionError: A value that a setting does not take.
    """

    system: System | str | None = None
    mode: str = "native"
    threads: int = 0
    allow_out_of_memory: bool = False
    memory_proportion: float | None = None
    exceptions: bool = False
    progress: bool = False
    engine: Mapping[str, Any] = field(default_factory=dict)
    name: str = "network"
    dump_passes: str | Path | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidOptionError(f"no engine mode {self.mode!r}", remedy=" or ".join(map(repr, MODES)))
        share = self.memory_proportion
        if share is not None and not 0 < share <= 1:
            raise InvalidOptionError(f"the memory proportion is {share}, it must lie in (0, 1]")

    def target(self) -> System:
        """One IPU of the system that is modelled.

        Raises:
            MachineError: There is no such system.
        """
        return systems.resolve(self.system or os.environ.get(SYSTEM_VARIABLE) or DEFAULT_SYSTEM).with_ipus(1)

    @property
    def planning(self) -> dict[str, float] | None:
        """Options of matrix products and convolutions."""
        share = self.memory_proportion
        return None if share is None else {"available_memory_proportion": share}
