"""Examples of each property: few in plain runs, ten times as many under the profile ``many``.

``HYPOTHESIS_PROFILE=many pytest -m "slow or hypothesis"`` runs the slow tests and every property with many. Plain runs
take the same examples each time. A property of ``@examples(8)`` has 8 in plain runs and 80 under ``many``; one without
has :data:`FEW`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FEW = 20
"""Examples of a property in a plain run where it names no number."""
_MANY = 10


def load_profile() -> None:
    """Load the profile that ``HYPOTHESIS_PROFILE`` names: ``few`` or ``many``."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settings.register_profile("few", deadline=None, derandomize=True, max_examples=FEW, suppress_health_check=checks)
    settings.register_profile(
        "many", deadline=None, print_blob=True, max_examples=_MANY * FEW, suppress_health_check=checks
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))


def examples(few: int) -> settings:
    """Settings of a property with ``few`` examples in plain runs."""
    return settings(max_examples=few * settings.default.max_examples // FEW)
