"""Sessions: compiled networks with their data, on NumPy arrays; what every front end is thin over."""

from abele.network import Locations, MeanStrategy, OutputMode, PipelineSchedule, Schedule, TensorLocation
from abele.session.advice import Advice
from abele.session.arrays import SharedArray, SharedArrays
from abele.session.cache import ArraySpec, SessionCache, Signature
from abele.session.compiled import Compiled
from abele.session.compiling import changes_to_fit, compile_network
from abele.session.feeds import Results
from abele.session.host_interface import End, Ends
from abele.session.input_checks import InputChecks
from abele.session.session import Session
from abele.session.settings import Settings

__all__ = [
    "Advice",
    "ArraySpec",
    "Compiled",
    "End",
    "Ends",
    "InputChecks",
    "Locations",
    "MeanStrategy",
    "OutputMode",
    "PipelineSchedule",
    "Results",
    "Schedule",
    "Session",
    "SessionCache",
    "Settings",
    "SharedArray",
    "SharedArrays",
    "Signature",
    "TensorLocation",
    "changes_to_fit",
    "compile_network",
]
