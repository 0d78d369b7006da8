"""Settings of a demo."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.errors import AbeleError, InvalidOptionError
from abele.machine import System, systems


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Choices of a demo.

    Attributes:
        system: The machine that is modelled.
        threads: Host threads; None for all cores.
        seed: Seed of initial weights, dropout, order of samples and simulated data.
        epochs: Passes over the training data; None for the demo's own number.
        dump_passes: A folder for the text of the networks after each pass of the compiler; None for no such files.

    Raises:
        InvalidOptionError: ``threads`` or ``epochs`` is below 1, or ``seed`` below 0.
    """

    system: System = field(default_factory=systems.bow_2000)
    threads: int | None = None
    seed: int = 0
    epochs: int | None = None
    dump_passes: str | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("threads", self.threads, 1), ("epochs", self.epochs, 1), ("seed", self.seed, 0)):
            if value is not None and value < least:
                raise InvalidOptionError(f"{name} = {value}: must be at least {least}")


def require(*modules: str) -> None:
    """Check that optional packages can be imported.

    Raises:
        AbeleError: One of them is missing; the error says what to run.
    """
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise AbeleError(
            f"this demo needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            remedy="pip install 'abele[demo]'",
        )
