"""The language model's data and its tables of what follows what, beside counting by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import log2

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele.garden import language
from abele.garden.language import CHARACTERS, FollowingTable, LanguageNetwork, numbered, windows
from abele.garden.sources import LibraryModule

pytestmark = pytest.mark.torch


def test_numbered__text__is_read_back_but_for_strangers() -> None:
    text = "def f(x):\n    return 'ä~' # \t"
    back = "".join(CHARACTERS[number] for number in numbered(text))
    assert back == text.replace("ä", CHARACTERS[-1]).replace("\t", CHARACTERS[-1])


def test_windows__files__are_stretches_of_them_each_once() -> None:
    length = language.CONTEXT + 1
    texts = ["".join(chr(33 + (7 * i + k) % 90) for i in range(3 * length + 5)) for k in (0, 31)]
    found = windows([LibraryModule(str(k), False, text) for k, text in enumerate(texts)], 100, seed=0)
    expected = {text[i * length : (i + 1) * length] for text in texts for i in range(3)}
    assert len(found) == 6
    assert {"".join(CHARACTERS[number] for number in row) for row in found} == expected


def blended(train: list[str], context: str, character: str) -> Fraction:
    """Probability by Witten and Bell's method C, by hand."""
    odds = Fraction(1, len(CHARACTERS))
    for length in range(len(context) + 1):
        end = context[len(context) - length :]
        after = Counter(
            text[i + length] for text in train for i in range(len(text) - length) if text[i : i + length] == end
        )
        if after:
            odds = (after[character] + len(after) * odds) / (after.total() + len(after))
    return odds


@pytest.mark.parametrize("order", [1, 2, 3])
def test_following_table__bits__are_those_counted_by_hand(order: int) -> None:
    train, held_out = ["abracadabra", "for x in xs"], ["abra", "xora", "rain"]
    table = FollowingTable(np.stack([numbered(text) for text in train]), order)
    bits = [
        -log2(blended(train, text[max(0, place - order + 1) : place], text[place]))
        for text in held_out
        for place in range(1, len(text))
    ]
    assert table.bits(np.stack([numbered(text) for text in held_out])) == pytest.approx(sum(bits) / len(bits))


def test_following_table__odds_of_all_characters__sum_to_one() -> None:
    table = FollowingTable(numbered("the cat sat on the mat")[None], 3)
    every = np.stack([np.array([*numbered("th"), number]) for number in range(len(CHARACTERS))])
    assert table._odds(every, 2).sum() == pytest.approx(1.0)


def test_language_network__later_character__changes_no_earlier_scores() -> None:
    network = LanguageNetwork(width=16, layers=1, heads=2).eval()
    text = torch.randint(len(CHARACTERS), (2, language.CONTEXT))
    changed = text.clone()
    changed[:, 60:] = (changed[:, 60:] + 1) % len(CHARACTERS)
    before, after = network(text), network(changed)
    assert torch.allclose(before[:, :60], after[:, :60], atol=1e-6)
    assert not torch.allclose(before[:, 60:], after[:, 60:], atol=1e-3)
