"""``TF_POPLAR_FLAGS``, and settings of sessions made of flags and the configuration."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abele.errors import InvalidOptionError, nearest
from abele.frontends.keras.ipu.config import IPUConfig, StochasticRoundingBehaviour
from abele.machine import systems
from abele.session import Settings
from abele.session.settings import DEFAULT_SYSTEM, SYSTEM_VARIABLE

VARIABLE = "TF_POPLAR_FLAGS"

FLAGS: dict[str, str] = {
    "executable_cache_path": "folder of compiled programs, by content",
    "use_synthetic_data": "inputs are made on the device",
    "synthetic_data_categories": "what is made there: infeed, outfeed, seed, ...; any of them as use_synthetic_data",
    "synthetic_data_initializer": "recorded alone: numbers are normal ones",
    "use_ipu_model": "recorded alone: the machine is always modelled",
    "ipu_model_tiles": "tiles of each IPU",
    "log_cycle_count": "recorded alone: reports have cycles",
    "null_data_feed": "as use_synthetic_data",
    "show_progress_bar": "true, false or auto: compiling shows a bar",
    "max_compilation_threads": "recorded alone",
    "max_infeed_threads": "recorded alone",
    "save_vertex_graph": "recorded alone",
    "save_interval_report": "recorded alone",
    "tensor_map_file_path": "recorded alone",
    "dump_schedule_as_dot": "recorded alone",
    "help": "recorded alone",
}
"""Flags that are known, with what each does here."""


@dataclass(frozen=True)
class Flags:
    """The flags of the environment.

    Attributes:
        given: Value of each flag; empty for one without.
    """

    given: Mapping[str, str]

    @staticmethod
    def read() -> Flags:
        """Flags that ``TF_POPLAR_FLAGS`` has now.

        Raises:
            InvalidOptionError: A flag that does not exist.
        """
        found = {}
        for word in shlex.split(os.environ.get(VARIABLE, "")):
            name, _, value = word.lstrip("-").partition("=")
            if name not in FLAGS:
                close = nearest(name, FLAGS)
                raise InvalidOptionError(
                    f"{VARIABLE} has no flag {word!r}", remedy=f"did you mean --{close}?" if close else None
                )
            found[name] = value
        return Flags(found)

    def on(self, name: str) -> bool:
        """True for a flag that is given, and not as false."""
        return name in self.given and self.given[name].lower() not in ("false", "0", "no")


def settings_of(config: IPUConfig, name: str) -> Settings:
    """Settings of the sessions of a model.

    Args:
        config: The configuration of IPUs.
        name: Name of the model, for reports.

    Raises:
        InvalidOptionError: A flag or an option with a value that it does not take.
    """
    flags, floats = Flags.read(), config.floating_point_behaviour
    rounding = floats.esr
    if isinstance(rounding, bool):
        rounding = StochasticRoundingBehaviour.from_bool(rounding)
    options = [config.matmuls.poplar_options, config.convolutions.poplar_options]
    shares = [float(o["availableMemoryProportion"]) for o in options if "availableMemoryProportion" in o]
    halves = any(str(o.get("partialsType")) in ("half", "float16") for o in options)
    folder = flags.given.get("executable_cache_path") or config.serialization_output_folder or None
    synthetic = any(map(flags.on, ("use_synthetic_data", "synthetic_data_categories", "null_data_feed")))
    return Settings(
        system=_system(config, flags),
        name=name,
        memory_proportion=min(shares) if shares else None,
        partials="f16" if halves else "f32",
        exceptions=floats.inv or floats.div0 or floats.oflo,
        stochastic_rounding=rounding is not StochasticRoundingBehaviour.OFF,
        stable_norms=config.norms.use_stable_statistics,
        recompute=config.allow_recompute,
        recompute_stages=config.allow_recompute,
        synthetic_data=synthetic,
        cache=folder,
        progress=flags.on("show_progress_bar") and flags.given["show_progress_bar"] != "auto",
        report_folder=name,
    )


def _system(config: IPUConfig, flags: Flags) -> Any:
    """The machine: as large as the IPUs that were asked for, with as many tiles."""
    tiles = int(flags.given.get("ipu_model_tiles") or 0) or config.ipu_model.tiles_per_ipu
    needed, chosen = config.num_ipus, os.environ.get(SYSTEM_VARIABLE)
    if chosen:
        system = systems.resolve(chosen)
    else:
        pods = [f"bow-pod{n}" for n in (16, 64, 256, 1024)]
        known = [systems.get(name) for name in (DEFAULT_SYSTEM, *pods)]
        system = next((s for s in known if s.num_ipus >= needed), known[-1])
    if tiles:
        return system.evolve(ipu=system.ipu.evolve(num_tiles=tiles))
    return system if chosen or system.num_ipus != systems.get(DEFAULT_SYSTEM).num_ipus else None
