"""Text piece by piece, against tokenizers' own decoding of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from abele.llm.generation import Generator, RequestError, Shape, TextPieces
from support.recalling_backend import RecallingBackend

_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTE_LEVEL = Tokenizer(models.BPE({letter: i for i, letter in enumerate(_BYTES)}, []))
BYTE_LEVEL.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BYTE_LEVEL.decoder = decoders.ByteLevel()

FALLBACK = Tokenizer(
    models.BPE(
        {"<unk>": 0, **{f"<0x{i:02X}>": i + 1 for i in range(256)}, "▁": 257, "▁a": 258, "a": 259, "b": 260},
        [],
        unk_token="<unk>",
        byte_fallback=True,
    )
)
FALLBACK.decoder = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def _pieces(tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...] = ()) -> list[str]:
    pieces = TextPieces(tokenizer, stops)
    found = []
    for token in ids:
        found.append(pieces.add(token))
        if pieces.is_stopped:
            return found
    return [*found, pieces.finish()]


@settings(max_examples=80, deadline=None)
@given(
    st.text(max_size=12) | st.text("abcé🙂", max_size=12),
    st.lists(st.sampled_from(["ab", "b", "🙂", "aé", "abc"]), max_size=3),
)
def test_pieces__of_any_text_in_bytes__are_whole_characters_up_to_the_first_stop(text: str, stops: list[str]) -> None:
    ids = BYTE_LEVEL.encode(text).ids
    found = _pieces(BYTE_LEVEL, ids, tuple(stops))
    places = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    assert "".join(found) == (text[: min(places)[1]] if places else text)
    for piece in found[:-1]:
        assert "\ufffd" not in piece or "\ufffd" in text
    held = [stop[:size] for stop in stops for size in range(1, len(stop))]
    shown = ""
    for piece in found[:-1]:
        shown += piece
        assert not piece or not any(shown.endswith(begin) for begin in held) or bool(places)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([258, 259, 260, 257]), max_size=8))
def test_pieces__of_words_with_a_space_before__keep_their_spaces(ids: list[int]) -> None:
    assert "".join(_pieces(FALLBACK, ids)) == FALLBACK.decode(ids)


def test_pieces__of_bytes_that_are_no_text__come_at_the_end_or_before_the_next_character() -> None:
    a, euro = BYTE_LEVEL.encode("a").ids, BYTE_LEVEL.encode("€").ids
    assert _pieces(BYTE_LEVEL, [*euro[:2], *a]) == ["", "", "\ufffda", ""]
    assert _pieces(BYTE_LEVEL, [*a, *euro[:2]]) == ["a", "", "", "\ufffd"]
    fallback = [1 + byte for byte in "é🙂".encode()]
    assert _pieces(FALLBACK, [259, *fallback]) == ["a", "", "é", "", "", "", "🙂", ""]


def test_pieces__what_may_begin_a_stop__wait_until_it_does_not() -> None:
    ids = BYTE_LEVEL.encode("abEnE ENDx").ids
    assert _pieces(BYTE_LEVEL, ids, ("END",)) == ["a", "b", "", "En", "", "E ", "", "", ""]
    assert _pieces(BYTE_LEVEL, BYTE_LEVEL.encode("aEN").ids, ("END", "N!")) == ["a", "", "", "EN"]


@pytest.mark.parametrize("stops", [("aab",), ("aaab", "ab"), ("b", "aaaa")])
def test_pieces__stops_that_overlap_themselves__are_found(stops: tuple[str, ...]) -> None:
    text = "aaaaaab"
    found = "".join(_pieces(BYTE_LEVEL, BYTE_LEVEL.encode(text).ids, stops))
    assert found == text[: min((place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0)[1]]


def test_pieces__without_a_tokenizer__are_empty() -> None:
    assert _pieces(None, [1, 2]) == ["", "", ""]  # type: ignore[arg-type]


def test_stream__of_a_generator__is_the_text_of_generate_up_to_a_stop_whatever_the_steps() -> None:
    shape = Shape(slots=2, positions=64, page=4, pages=40, chunk=8, steps=5)
    generator = Generator(None, BYTE_LEVEL, backend=RecallingBackend(shape, vocabulary=256))
    (whole,) = generator.generate(["Hello"], max_tokens=50, seed=3)
    pieces = list(generator.stream("Hello", max_tokens=50, seed=3))
    assert "".join(pieces) == whole.text == BYTE_LEVEL.decode(whole.ids)
    assert len(pieces) > 3
    stop = whole.text[20:23]
    for steps in (1, 5, 64):
        one = Generator(None, BYTE_LEVEL, backend=RecallingBackend(replace(shape, steps=steps), vocabulary=256))
        (made,) = one.generate(["Hello"], max_tokens=50, seed=3, stop=stop)
        assert made.finish_reason == "stop"
        assert made.text == whole.text[: whole.text.index(stop)]
        assert whole.ids[: len(made.ids)] == made.ids
        assert stop in BYTE_LEVEL.decode(made.ids)
        assert stop not in BYTE_LEVEL.decode(made.ids[:-1])


def test_stream__a_consumer_that_leaves__cancels_its_request_alone() -> None:
    shape = Shape(slots=2, positions=64, page=4, pages=40, chunk=8, steps=2)
    generator = Generator(None, BYTE_LEVEL, backend=RecallingBackend(shape, vocabulary=256))
    pieces = generator.stream("Hi", max_tokens=40, seed=1)
    other = generator.submit("there", max_tokens=9)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    while generator.has_work:
        generator.step()
    assert other.status == "finished"
    assert generator.scheduler.pool.num_held == 0
    with pytest.raises(RequestError, match="temperature is -1"):
        generator.stream("Hi", temperature=-1)
