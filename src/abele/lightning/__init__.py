"""Lightning on the modelled machine: ``Trainer(accelerator="abele", strategy=AbeleStrategy(options))``.

``fit``, ``validate``, ``test`` and ``predict`` of a ``LightningModule`` run on it, unchanged. After
``import abele.lightning`` there are ``strategy="abele"`` and ``accelerator="abele"`` too.
"""

from abele.lightning.accelerator import AbeleAccelerator
from abele.lightning.accelerator import pl as _pl
from abele.lightning.strategy import AbeleStrategy

if "abele" not in _pl.strategies.StrategyRegistry:
    _pl.strategies.StrategyRegistry.register("abele", AbeleStrategy, description=AbeleStrategy.__doc__)
if "abele" not in _pl.accelerators.AcceleratorRegistry:
    _pl.accelerators.AcceleratorRegistry.register("abele", AbeleAccelerator, description=AbeleAccelerator.__doc__)

__all__ = ["AbeleAccelerator", "AbeleStrategy"]
