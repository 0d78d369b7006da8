"""Several modules over one resident state as one executable, with loops of steps on the device."""

from abele.frontends.poptorch.resident.loop import Loop
from abele.frontends.poptorch.resident.programs import ResidentPrograms, programs
from abele.frontends.poptorch.resident.state import ProgramState

__all__ = ["Loop", "ProgramState", "ResidentPrograms", "programs"]
