"""Tokenizers out of files: metadata of GGUF, and folders as Hugging Face writes them.

GGUF has the tokens and what is needed to split text: merges for byte-level BPE (``gpt2``, with the name of the pattern
that cuts words first), scores for SentencePiece's BPE (``llama``) and unigrams (``t5``). A folder has
``tokenizer.json``, which the package ``tokenizers`` reads whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from abele.errors import FileFormatError, MissingPackageError
from abele.llm.tokenizer import Pieces, Tokenizer, TokenizerError
from abele.weights import WeightFile, open_weights

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
except ImportError as error:  # pragma: no cover
    raise MissingPackageError("tokenizers of models need tokenizers", remedy="pip install 'abele[llm]'") from error

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3_WORDS = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"), (GPT2_WORDS,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), (r"\p{N}", GPT2_WORDS)),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "dbrx", "smaug-bpe"), (LLAMA3_WORDS,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), (QWEN2_WORDS,)),
}
"""Patterns that cut text into words, one after the other, by GGUF's name for them.

Source: the patterns are those of the models' own ``tokenizer.json``; the names are those that llama.cpp gives them.
"""

_WHOLE_WORDS_FIRST = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3"})
"""Words that are tokens as they stand are not merged anew."""
_BEGINS = _WHOLE_WORDS_FIRST
"""Kinds whose texts begin with a token where the file does not say."""
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)
"""Types of tokens in GGUF."""
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_turn|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
"""Special tokens that end an answer whatever else the file calls its end."""
SPACE = "▁"
"""SentencePiece's letter for a space."""


def byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in byte-level BPE.

    Printable bytes of Latin-1 stand for themselves; the other 68 are letters from U+0100 on, in order.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


_BYTES = {letter: byte for byte, letter in byte_letters().items()}
_IN_UTF8 = bytes(byte for byte in range(256) if byte not in (0xC0, 0xC1) and byte < 0xF5)
_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def read_tokenizer(source: WeightFile | str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a folder of Hugging Face's, or of a ``tokenizer.json``.

    Raises:
        FileFormatError: There is none, or a file of it is damaged.
        TokenizerError: It is of a kind that is not known, or its parts do not fit each other.
    """
    if not isinstance(source, WeightFile):
        path = Path(source)
        if path.is_dir() and (path / "tokenizer.json").is_file():
            return _of_folder(path, path / "tokenizer.json")
        if path.name == "tokenizer.json":
            return _of_folder(path.parent, path)
        source = open_weights(path)
    if source.format == "gguf":
        return _of_gguf(source)
    folder = source.path if source.path.is_dir() else source.path.parent
    return _of_folder(folder, folder / "tokenizer.json")


# ---------------------------------------------------------------- GGUF


def _of_gguf(file: WeightFile) -> Tokenizer:
    meta = file.metadata
    kind = meta.get("tokenizer.ggml.model")
    makers = {"gpt2": _byte_level, "llama": _sentence_piece, "t5": _unigram}
    if kind not in makers:
        raise TokenizerError(
            f"{file.path}: " + (f"a tokenizer of kind {kind!r} is not read" if kind else "the file has no tokenizer"),
            remedy="kinds that are read: " + ", ".join(makers),
        )
    tokens = _strings(file, "tokenizer.ggml.tokens")
    types = meta.get("tokenizer.ggml.token_type")
    if types is None:
        types = np.full(len(tokens), _NORMAL)
    if not isinstance(types, np.ndarray) or len(types) != len(tokens):
        raise TokenizerError(f"{file.path}: {len(tokens):,} tokens have no type each")
    inner, pieces = makers[kind](file, tokens, types)
    special = {tokens[i]: i for i in np.flatnonzero((types == _CONTROL) | (types == _UNKNOWN)).tolist()}
    inner.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    inner.add_tokens(
        [AddedToken(tokens[i], normalized=False, special=False) for i in np.flatnonzero(types == _USER).tolist()]
    )
    begin, end = (_token(file, f"tokenizer.ggml.{name}_token_id", tokens) for name in ("bos", "eos"))
    adds_begin = meta.get("tokenizer.ggml.add_bos_token", kind == "llama" or meta.get("tokenizer.ggml.pre") in _BEGINS)
    adds_end = meta.get("tokenizer.ggml.add_eos_token", kind == "t5")
    before = [tokens[begin]] if adds_begin and begin is not None else []
    after = [tokens[end]] if adds_end and end is not None else []
    if before or after:
        added = [(token, tokens.index(token)) for token in dict.fromkeys(before + after)]
        inner.post_processor = processors.TemplateProcessing(single=[*before, "$A", *after], special_tokens=added)
    turn = _token(file, "tokenizer.ggml.eot_token_id", tokens)
    ends = [i for i in (end, turn, *(special.get(name) for name in TURN_ENDS)) if i is not None]
    template = meta.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise TokenizerError(f"{file.path}: the chat template is no text")
    names = {"bos_token": begin, "eos_token": end}
    variables = {name: tokens[i] for name, i in names.items() if i is not None}
    return Tokenizer(inner, pieces, specials=special, ends=ends, begin=begin, template=template, variables=variables)


def _strings(file: WeightFile, name: str) -> tuple[str, ...]:
    found = file.metadata.get(name)
    if not isinstance(found, tuple) or not found or not all(isinstance(text, str) for text in found):
        raise TokenizerError(f"{file.path}: the metadata have no strings {name!r}")
    return found


def _token(file: WeightFile, name: str, tokens: Sequence[str]) -> int | None:
    found = file.metadata.get(name)
    if found is None or (type(found) is int and found < len(tokens)):
        return found
    raise TokenizerError(f"{file.path}: {name} is {found!r}, there are {len(tokens):,} tokens")


def _byte_level(file: WeightFile, tokens: Sequence[str], types: Any) -> tuple[tokenizers.Tokenizer, Pieces]:
    words = file.metadata.get("tokenizer.ggml.pre", "default")
    if words not in WORDS:
        raise TokenizerError(
            f"{file.path}: text is cut into words by {words!r}, which is not known", remedy=f"one of {', '.join(WORDS)}"
        )
    told = _strings(file, "tokenizer.ggml.merges")
    merges = [(left, right) for left, space, right in (merge.partition(" ") for merge in told) if space]
    if len(merges) != len(told):
        wrong = next(merge for merge in told if " " not in merge)
        raise TokenizerError(f"{file.path}: the merge {wrong!r} is not of two parts")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    inner = _made(
        file.path, lambda: models.BPE(vocabulary, merges, ignore_merges=words in _WHOLE_WORDS_FIRST, fuse_unk=False)
    )
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in WORDS[words]]
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if words == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.decoder = decoders.ByteLevel()
    plain = np.isin(types, (_NORMAL, _UNUSED)).tolist()
    return inner, byte_pieces(tokens, plain)


def byte_pieces(tokens: Sequence[str | None], plain: Sequence[bool]) -> Pieces:
    """Bytes of tokens of byte-level BPE; those that are not ``plain`` are written as their names."""
    by_id: list[bytes | None] = []
    for token, letters in zip(tokens, plain, strict=True):
        if token is None:
            by_id.append(None)
        elif letters and all(letter in _BYTES for letter in token):
            by_id.append(bytes(_BYTES[letter] for letter in token))
        else:
            by_id.append(token.encode())
    written = {_BYTES[token] for token, letters in zip(tokens, plain, strict=True) if letters and token in _BYTES}
    return Pieces(by_id, lacking=bytes(byte for byte in _IN_UTF8 if byte not in written))


def _sentence_piece(file: WeightFile, tokens: Sequence[str], types: Any) -> tuple[tokenizers.Tokenizer, Pieces]:
    """SentencePiece's BPE: of two neighbours that are a token together, those with the best score merge first.

    As ranked merges: each token's ways to be made of two tokens, tokens in the order of their scores.
    """
    scores = _scores(file, tokens)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for i in np.lexsort((np.arange(len(tokens)), -scores)).tolist():
        token = tokens[i]
        if types[i] != _NORMAL:
            continue
        ways = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [way for way in ways if way[0] in vocabulary and way[1] in vocabulary]
        merges += sorted(known, key=lambda way: (vocabulary[way[0]], vocabulary[way[1]]))
    unknown = _unknown(file, tokens, types)
    fallback = bool((types == _BYTE).any())
    inner = _made(
        file.path,
        lambda: models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=fallback),
    )
    prefix = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    inner.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend(SPACE)] if prefix else []), normalizers.Replace(" ", SPACE)]
    )
    return inner, space_pieces(tokens, prefix)


def _unigram(file: WeightFile, tokens: Sequence[str], types: Any) -> tuple[tokenizers.Tokenizer, Pieces]:
    scores = _scores(file, tokens)
    unknown = tokens.index(_unknown(file, tokens, types))
    pairs = list(zip(tokens, scores.tolist(), strict=True))
    inner = _made(file.path, lambda: models.Unigram(pairs, unknown, bool((types == _BYTE).any())))
    table = file.metadata.get("tokenizer.ggml.precompiled_charsmap")
    steps = (
        [] if table is None else [_made_part(file.path, lambda: normalizers.Precompiled(np.asarray(table).tobytes()))]
    )
    if file.metadata.get("tokenizer.ggml.remove_extra_whitespaces", True):
        steps += [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)]
    inner.normalizer = normalizers.Sequence(steps)
    prefix = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always" if prefix else "never")
    return inner, space_pieces(tokens, prefix)


def _scores(file: WeightFile, tokens: Sequence[str]) -> Any:
    scores = file.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        raise TokenizerError(f"{file.path}: {len(tokens):,} tokens have no score each")
    return np.nan_to_num(scores.astype(np.float64))


def _unknown(file: WeightFile, tokens: Sequence[str], types: Any) -> str:
    named = _token(file, "tokenizer.ggml.unknown_token_id", tokens)
    found = [named] if named is not None else np.flatnonzero(types == _UNKNOWN)[:1].tolist()
    if not found:
        raise TokenizerError(f"{file.path}: no token stands for what the tokenizer does not know")
    return tokens[found[0]]


def space_pieces(tokens: Sequence[str | None], leading_space: bool) -> Pieces:
    """Bytes of SentencePiece's tokens: ``<0x0A>`` is one byte, ``▁`` a space."""
    by_id: list[bytes | None] = []
    for token in tokens:
        named = None if token is None else _BYTE_NAME.fullmatch(token)
        by_id.append(bytes([int(named[1], 16)]) if named else token and token.replace(SPACE, " ").encode())  # type: ignore[arg-type]
    return Pieces(by_id, leading_space)


# ---------------------------------------------------------------- Hugging Face


def _of_folder(folder: Path, path: Path) -> Tokenizer:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path}: there is no tokenizer that can be read",
            because=str(error),
            remedy="a folder needs tokenizer.json; models with tokenizer.model alone have to be converted",
        ) from error
    inner = _loaded(path, text)
    inner.no_padding()
    inner.no_truncation()
    config = json_of(folder / "tokenizer_config.json")
    added = inner.get_added_tokens_decoder()
    tokens: list[str | None] = [None] * (max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1)
    for token, number in inner.get_vocab(with_added_tokens=True).items():
        tokens[number] = token
    special = {token.content: number for number, token in added.items() if token.special}
    names = {key: _name(config.get(f"{key}_token")) for key in ("bos", "eos")}
    ids = {key: inner.token_to_id(name) if name else None for key, name in names.items()}
    ends = _ends(folder) or ([] if ids["eos"] is None else [ids["eos"]])
    wrong = next((end for end in ends if end >= len(tokens)), None)
    if wrong is not None:
        raise TokenizerError(f"{folder}: token {wrong} ends a text, there are {len(tokens):,} tokens")
    ends += [special[name] for name in TURN_ENDS if name in special]
    return Tokenizer(
        inner,
        _pieces_of(json.loads(inner.to_str()), tokens, added),
        specials=special,
        ends=ends,
        begin=ids["bos"],
        template=_template(folder, config),
        variables={f"{key}_token": name for key, name in names.items() if name},
    )


def _name(token: Any) -> str | None:
    """A token's name: as it stands, or in an object."""
    name = token.get("content") if isinstance(token, dict) else token
    return name if isinstance(name, str) else None


def _ends(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        ends = json_of(folder / name).get("eos_token_id")
        ends = ends if isinstance(ends, list) else [ends]
        if ends and all(type(end) is int and end >= 0 for end in ends):
            return list(ends)
    return []


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{file}: the chat template is not UTF-8", because=str(error)) from error
    told = config.get("chat_template")
    if isinstance(told, list):  # several by name
        named = {one.get("name"): one.get("template") for one in told if isinstance(one, dict)}
        told = named.get("default", next(iter(named.values()), None))
    if told is not None and not isinstance(told, str):
        raise FileFormatError(f"{folder / 'tokenizer_config.json'}: the chat template is no text")
    return told


def _pieces_of(told: Mapping[str, Any], tokens: list[str | None], added: Mapping[int, Any]) -> Pieces | None:
    """Bytes of the tokens by what the tokenizer's decoder does; None where its tokens are not bytes."""
    decoder = told.get("decoder") or {}
    steps = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return byte_pieces(tokens, [number not in added for number in range(len(tokens))])
    if "Metaspace" in kinds:
        return space_pieces(tokens, steps[-1].get("prepend_scheme", "always") != "never")
    replaces = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    if replaces in steps and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        return space_pieces(tokens, "Strip" in kinds)
    return None


def json_of(path: Path) -> dict[str, Any]:
    """An object of JSON in a file; empty where there is no file.

    Raises:
        FileFormatError: The file has something else.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise FileFormatError(f"{path}: the JSON cannot be read", because=str(error)) from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: the JSON is not an object with names")
    return found


def _loaded(path: Path, text: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the package raises nothing narrower
        raise FileFormatError(f"{path}: the tokenizer cannot be read", because=str(error)) from error


def _made(path: Path, make: Any) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(_made_part(path, make))


def _made_part(path: Path, make: Any) -> Any:
    try:
        return make()
    except Exception as error:  # the package raises nothing narrower
        raise TokenizerError(f"{path}: the tokenizer's parts do not fit each other", because=str(error)) from error
