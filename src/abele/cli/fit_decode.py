"""``abele fit --decode``: spreads of a language model over IPUs, and what its tokens cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from abele.errors import FileFormatError, InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path

    from abele.llm.config import ModelConfig
    from abele.llm.sizing import DecodeFit
    from abele.machine import System

_FAMILIES = {"llama": "LlamaConfig", "neox": "NeoXConfig"}
"""Families of models in a file, and the configurations that they take."""
_LARGEST_FILE = 1 << 20
"""Bytes of a file with a configuration, at most."""


def fit_decode(
    model: str,
    *,
    system: System,
    prompt: int,
    new: int,
    batches: tuple[int, ...],
    formats: tuple[str, ...],
    half_partials: bool,
    progress: Callable[[str, float], None],
) -> DecodeFit:
    """Spreads of a model that is called by name, or described in a JSON file.

    Args:
        model: ``llama-2-7b``, or a path that ends in ``.json``.
        system: The machine.
        prompt: Tokens of a prompt.
        new: Tokens that follow.
        batches: Sequences at a time.
        formats: Number formats of weights.
        half_partials: True for partial sums in float16.
        progress: Called with what is done and the part of it that is.

    Raises:
        AbeleError: As of :func:`abele.llm.sizing.fit`, or a file that describes no model.
    """
    from pathlib import Path

    from abele.llm.sizing import fit

    described = configured(Path(model)) if model.endswith(".json") else model
    return fit(
        described,
        system=system,
        prompt=prompt,
        new=new,
        batches=batches,
        formats=formats,
        half_partials=half_partials,
        progress=progress,
    )


def configured(path: Path) -> ModelConfig:
    """The configuration in a JSON file: ``{"family": "llama", "hidden": 576, …}``.

    Raises:
        FileFormatError: No such file, or none that describes a model.
        InvalidOptionError: Sizes that do not go together.
    """
    import json

    from abele.llm import config

    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise FileFormatError(
                f"{path} has more than {_LARGEST_FILE:,} B", because="a configuration is a short table"
            )
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"{path} is no configuration of a model: {error}") from error
    if not isinstance(table, dict) or table.get("family") not in _FAMILIES:
        raise FileFormatError(
            f"{path} names no family of models", remedy=f'"family": {" or ".join(map(repr, _FAMILIES))}'
        )
    kind = getattr(config, _FAMILIES[table.pop("family")])
    try:
        found: ModelConfig = kind(**table)
    except TypeError as error:
        raise InvalidOptionError(f"{path}: {error}") from error
    return found
