"""The accelerator: what a ``Trainer`` asks of a machine."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import torch

from abele.errors import InvalidOptionError, MissingPackageError

# The installed Lightning: ``lightning.pytorch``, or ``pytorch_lightning`` where a program imported that one.

_PACKAGES = ("lightning", "pytorch_lightning")


def _package() -> str:
    """The package whose ``Trainer`` a program uses: the two have classes of their own, which do not mix."""
    present = [name for name in _PACKAGES if name in sys.modules]
    found = present or [name for name in _PACKAGES if importlib.util.find_spec(name) is not None]
    if not found:
        raise MissingPackageError(
            "abele.lightning needs Lightning, which is not installed", remedy="pip install 'abele[lightning]'"
        )
    return found[0]


pl: Any = importlib.import_module("lightning.pytorch" if _package() == "lightning" else _package())


class AbeleAccelerator(pl.accelerators.Accelerator):  # type: ignore[misc]  # Lightning may not be installed
    """The modelled machine. ``devices`` are replicas of the model, each on IPUs of its own."""

    def setup_device(self, device: torch.device) -> None:
        """Do nothing: tensors stay in the host's memory."""

    def setup(self, trainer: Any) -> None:
        """Check that the strategy is the one that runs on the machine.

        Raises:
            InvalidOptionError: It is another one.
        """
        from abele.lightning.strategy import AbeleStrategy

        if not isinstance(trainer.strategy, AbeleStrategy):
            raise InvalidOptionError(
                f"accelerator='abele' with {type(trainer.strategy).__name__} would run on the host",
                remedy="Trainer(accelerator='abele', strategy=abele.lightning.AbeleStrategy())",
            )

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Nothing: ``PoplarExecutor.report()`` has the machine's figures."""
        return {}

    def teardown(self) -> None:
        """Do nothing: no device is held."""

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> int:
        """Number of replicas."""
        return len(devices) if isinstance(devices, list) else int(devices)

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        """A device of the host for each replica."""
        return [torch.device("cpu")] * devices

    @staticmethod
    def auto_device_count() -> int:
        """One replica."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """True: the machine is modelled."""
        return True

    @staticmethod
    def name() -> str:
        """``abele``."""
        return "abele"
