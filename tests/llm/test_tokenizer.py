"""Tokenizers out of GGUF metadata and folders, beside the package ``tokenizers`` and merging written out."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from abele.errors import FileFormatError
from abele.llm.tokenizer import Tokenizer, TokenizerError
from abele.llm.tokenizer_files import byte_letters, read_tokenizer
from support.weight_files import write_gguf

TEXTS = [
    "Hello  World! I'll pay 3.14159 now\r\n\n\t x = [1, 2];",
    "größer naïve 日本語 🤖🤖 ½ x² ٣٤٥",
    "   leading, trailing   ",
    "<|begin|>user\nhi<|stop|>\n",
    "",
]
NAMES = ("<|none|>", "<|begin|>", "<|stop|>")
LETTERS = "abceht \né½日🤖\u0300▁\0\x7f\U0010ffff"
CORPUS = TEXTS * 3 + ["the cat sat on the mat; the hat of the cat", "hello world hello", "日本 日本 größe größer"]


@functools.cache
def _trained() -> tokenizers.Tokenizer:
    """Byte-level BPE as GPT-2's, with single digits, trained on a few lines."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    names = [AddedToken(name, normalized=False, special=True) for name in NAMES]
    inner.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=names,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return inner


def _metadata(**changes: Any) -> dict[str, Any]:
    told = json.loads(_trained().to_str())["model"]
    tokens = sorted(told["vocab"], key=told["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in NAMES else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in told["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.{name}": value for name, value in changes.items()}


def _gguf(folder: Path, metadata: dict[str, Any]) -> Path:
    path: Path = write_gguf(folder / "m.gguf", {}, {key: value for key, value in metadata.items() if value is not None})
    return path


@pytest.mark.parametrize("text", TEXTS)
def test_encode__byte_level_gguf__as_the_tokenizer_it_was_made_of(text: str, tmp_path: Path) -> None:
    ours = read_tokenizer(_gguf(tmp_path, _metadata()))
    assert ours.encode(text) == _trained().encode(text).ids
    assert ours.decode(ours.encode(text), specials=True) == text
    assert ours.decode(ours.encode(text)) == _trained().decode(_trained().encode(text).ids)
    assert (ours.vocabulary, ours.ends, ours.begin) == (_trained().get_vocab_size(), (2,), 1)


def test_encode__names_of_specials__tokens_or_text_as_asked(tmp_path: Path) -> None:
    ours = read_tokenizer(_gguf(tmp_path, _metadata(**{"ggml.add_bos_token": True, "ggml.add_eos_token": True})))
    plain = ours.encode("<|stop|>", specials=False, begin=False)
    assert ours.encode("<|stop|>") == [1, 2, 2]
    assert ours.encode("<|stop|>", begin=False) == [2]
    assert len(plain) > 1
    assert 2 not in plain
    assert ours.decode(plain) == "<|stop|>"


def test_encode__bytes_without_tokens__replaced_or_refused(tmp_path: Path) -> None:
    letters = byte_letters()
    for lacking, text, want in ((b"\x04", "a\x04b", "a\ufffdb"), (b"\xf0", "a🤖b\ud83e", "a\ufffdb\ufffd")):
        tokens = [t for t in letters.values() if t not in {letters[byte] for byte in lacking}] + ["ab"]
        meta = _metadata(**{"ggml.tokens": tokens, "ggml.token_type": [1] * len(tokens), "ggml.merges": ["a b"]})
        ours = read_tokenizer(_gguf(tmp_path, meta))
        assert ours.decode(ours.encode(text)) == want
    few = _metadata(**{"ggml.tokens": ["a", "b", "ab"], "ggml.token_type": [1] * 3, "ggml.merges": ["a b"]})
    with pytest.raises(TokenizerError, match="lacks bytes of a character") as refused:
        read_tokenizer(_gguf(tmp_path, few)).encode("abc")
    assert refused.value.at == "'c'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ggml.model": "rwkv"}, "kind 'rwkv' is not read"),
        ({"ggml.model": None}, "has no tokenizer"),
        ({"ggml.tokens": None}, "no strings 'tokenizer.ggml.tokens'"),
        ({"ggml.token_type": [1, 2]}, "have no type each"),
        ({"ggml.pre": "martian"}, "'martian', which is not known"),
        ({"ggml.merges": ["ab"]}, "'ab' is not of two parts"),
        ({"ggml.merges": ["日 本"]}, "do not fit each other"),
        ({"ggml.eos_token_id": 5000}, "eos_token_id is 5000"),
        ({"chat_template": 5}, "chat template is no text"),
        ({"ggml.model": "llama"}, "have no score each"),
    ],
)
def test_read_tokenizer__gguf_that_lies__is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as refused:
        read_tokenizer(_gguf(tmp_path, _metadata(**changes)))
    assert message in str(refused.value)


SPM = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdeht", "▁t", "he", "▁the", "▁a"]
SPM += ["ab", "bc", "abc", "ea", "▁▁"]
SPM_SCORES = [0.0] * (len(SPM) - 9) + [-1.0, -2.0, -0.5, -3.0, -7.0, -6.0, -8.0, -5.0, -4.0]


def _spm(folder: Path, **changes: Any) -> Tokenizer:
    types = [2, 3, 3, *[6] * 256, *[1] * (len(SPM) - 259)]
    told = {"model": "llama", "tokens": SPM, "scores": SPM_SCORES, "token_type": types, "bos_token_id": 1}
    return read_tokenizer(_gguf(folder, {f"tokenizer.ggml.{k}": v for k, v in (told | changes).items()}))


def _merged(text: str) -> list[str]:
    """SentencePiece's merging: the best-scored pair of neighbours first, the leftmost of equals."""
    parts = list("▁" + text.replace(" ", "▁"))
    while pairs := [
        (-SPM_SCORES[SPM.index(a + b)], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in SPM
    ]:
        _, i = min(pairs)
        parts[i : i + 2] = ["".join(parts[i : i + 2])]
    return [name for part in parts for name in ([part] if part in SPM else [f"<0x{b:02X}>" for b in part.encode()])]


@given(text=st.text("abceht ", min_size=1, max_size=12) | st.text(LETTERS, max_size=6))
def test_encode__sentence_piece_gguf__best_scores_merge_first(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours = _shared_spm(str(tmp_path_factory.getbasetemp()))
    ids = ours.encode(text)
    assert [SPM[i] for i in ids] == ["<s>", *(_merged(text) if text else [])]
    assert ours.decode(ids) == text.replace("▁", " ")
    assert ours.stream(continues=True).push(SPM.index("▁a")) == " a"


@functools.cache
def _shared_spm(folder: str) -> Tokenizer:
    return _spm(Path(folder))


def test_read_tokenizer__sentence_piece_without_space_or_unknown__says_so(tmp_path: Path) -> None:
    assert _spm(tmp_path, add_space_prefix=False).encode("ab", begin=False) == [SPM.index("ab")]
    with pytest.raises(TokenizerError, match="no token stands for"):
        _spm(tmp_path, token_type=[3, 3, 3, *[6] * 256, *[1] * (len(SPM) - 259)])


def test_encode__unigram_gguf__most_likely_pieces(tmp_path: Path) -> None:
    tokens = ["<pad>", "</s>", "<unk>", "▁", "▁the", "▁th", "e", "m", "▁them"]
    scores = [0.0, 0.0, 0.0, -3.0, -2.0, -2.5, -3.0, -3.0, -9.0]
    meta = {"model": "t5", "tokens": tokens, "scores": scores, "token_type": [3, 3, 2, *[1] * 6], "eos_token_id": 1}
    ours = read_tokenizer(_gguf(tmp_path, {f"tokenizer.ggml.{key}": value for key, value in meta.items()}))
    assert [tokens[i] for i in ours.encode("the  them ")] == ["▁the", "▁the", "m", "</s>"]
    assert ours.decode(ours.encode("the them")) == "the them"


def _folder(folder: Path, inner: tokenizers.Tokenizer, **files: Any) -> Path:
    inner.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_read_tokenizer__folder__ends_template_and_names(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_str(_trained().to_str())
    inner.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 1)])
    inner.enable_truncation(4)
    inner.enable_padding(length=32)
    config = {"bos_token": {"content": "<|begin|>"}, "eos_token": "<|stop|>", "chat_template": "{{ bos_token }}A"}
    _folder(tmp_path, inner, tokenizer_config=config)
    ours = read_tokenizer(tmp_path)
    assert (ours.ends, ours.begin, ours.chat_text([{"role": "user"}])) == ((2,), 1, "<|begin|>A")
    long = "hello world " * 9
    assert ours.decode(ours.encode(long)) == long
    assert ours.encode(long)[0] == 1
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}B")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    ours = read_tokenizer(tmp_path / "tokenizer.json")
    assert (ours.ends, ours.chat([{"role": "user"}])) == ((7, 9), [2, *ours.encode("B", begin=False)])
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5000}')
    with pytest.raises(TokenizerError, match="token 5000 ends a text"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[" * 5000, '{"model": {"type": "BPE", "vocab": 3, "merges": []}}'])
def test_read_tokenizer__damaged_folder__is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"tokenizer\.json"):
        read_tokenizer(tmp_path)


def test_read_tokenizer__words_of_letters__decode_and_have_no_stream(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "un": 1, "##known": 2}, unk_token="[UNK]"))
    inner.decoder = decoders.WordPiece()
    ours = read_tokenizer(_folder(tmp_path, inner))
    assert ours.decode(ours.encode("unknown")) == "unknown"
    with pytest.raises(TokenizerError, match="no stream"):
        ours.stream()


def _streamed(ours: Tokenizer, ids: Sequence[int]) -> list[str]:
    stream = ours.stream()
    return [*map(stream.push, ids), stream.finish()]


@given(data=st.data())
def test_stream__any_tokens__pieces_joined_are_the_text(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for ours in (_shared_bytes(str(tmp_path_factory.getbasetemp())), _shared_spm(str(tmp_path_factory.getbasetemp()))):
        ids = data.draw(st.lists(st.integers(0, ours.vocabulary - 1), max_size=12))
        want = b"".join(ours.piece(i) for i in ids if not ours.is_special(i))
        text = (want.removeprefix(b" ") if ours.leading_space else want).decode("utf-8", "replace")
        assert "".join(_streamed(ours, ids)) == ours.decode(ids) == text


@given(text=st.text(LETTERS, max_size=20))
def test_stream__tokens_of_a_text__no_piece_splits_a_character(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours = _shared_bytes(str(tmp_path_factory.getbasetemp()))
    pieces = _streamed(ours, ours.encode(text, specials=False))
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


@functools.cache
def _shared_bytes(folder: str) -> Tokenizer:
    return read_tokenizer(_gguf(Path(folder), _metadata()))


@pytest.mark.parametrize("token", [-1, 10**9])
def test_decode__no_such_token__is_refused(token: int, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=f"no token {token}"):
        _spm(tmp_path).decode([token])
