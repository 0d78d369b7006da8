"""Options that several commands take, with their words."""

from __future__ import annotations

from typing import Annotated

import typer

SystemOption = Annotated[str, typer.Option("--system", help="Preset (abele systems) or description file.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="Host threads; one per core by default.")]

# Of commands that open a language model.

QuantiseOption = Annotated[
    str | None, typer.Option("--quantise", help="int8, int4-32, int4-64, int4-128, f143, or stored.")
]
WeightTypeOption = Annotated[
    str | None, typer.Option("--dtype", help="float32, float16 or bfloat16; float16, or float32 with eager.")
]
BackendOption = Annotated[
    str, typer.Option("--backend", help="compiled: on the modelled machine; eager: plain PyTorch, not modelled.")
]
