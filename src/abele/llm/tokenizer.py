"""Text as numbers of tokens and back, and text that grows token by token without splitting a character.

Tokens stand for bytes. "é" is two bytes, perhaps of two tokens: decoding after the first would show a replacement
character that the second takes back. :class:`TextStream` holds such bytes until the character is whole, so that what it
gave out never changes: its pieces joined are the text of all tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from abele.errors import AbeleError

if TYPE_CHECKING:
    import tokenizers

REPLACEMENT = "\ufffd"


class TokenizerError(AbeleError, ValueError):
    """A tokenizer that cannot be made, text beyond its bytes, or a number without a token."""


@dataclass(frozen=True)
class Pieces:
    """Bytes of every token.

    Attributes:
        by_id: The bytes by number; None for numbers without a token.
        leading_space: True where text begins with a space that the tokenizer put there.
        lacking: Bytes of UTF-8 that no token writes.
    """

    by_id: Sequence[bytes | None] = field(repr=False)
    leading_space: bool = False
    lacking: bytes = b""


class Tokenizer:
    """Tokens of a model: text to numbers, numbers to text, special tokens, and those that end a text.

    Characters that the tokenizer has no bytes for are encoded as U+FFFD. SmolLM2's lacks six control characters and
    two planes of seldom ones.

    Args:
        inner: The splitter and merger of text.
        pieces: Bytes of the tokens; None where tokens are not bytes, as in BERT's: decoding is ``inner``'s then, and
            there are no streams.
        specials: Numbers of tokens that are no text, by name.
        ends: Numbers of tokens after which nothing follows.
        begin: The token that begins a text, where there is one.
        template: Template of chats in Jinja's language, where there is one.
        variables: Names that the template may use, as ``bos_token``.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        pieces: Pieces | None,
        *,
        specials: Mapping[str, int],
        ends: Sequence[int] = (),
        begin: int | None = None,
        template: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._inner = inner
        self._pieces = pieces
        self.specials = dict(specials)
        self.ends = tuple(dict.fromkeys(ends))
        self.begin = begin
        self.template = template
        self.variables = dict(variables or {})
        self._special_ids = frozenset(self.specials.values())

    def __len__(self) -> int:
        return self.vocabulary

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocabulary:,} tokens, {len(self.specials)} special>"

    @cached_property
    def vocabulary(self) -> int:
        """Numbers of tokens lie below this."""
        if self._pieces is not None:
            return len(self._pieces.by_id)
        return max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def _without_specials(self) -> tokenizers.Tokenizer:
        """A tokenizer that reads names of special tokens as the characters they are."""
        other = type(self._inner).from_str(self._inner.to_str())
        other.encode_special_tokens = True
        return other

    def _writable(self, text: str) -> str:
        """The text with U+FFFD for characters with a byte that no token writes."""
        lacking = frozenset(self._pieces.lacking if self._pieces is not None else b"")
        if not lacking or lacking.isdisjoint(text.encode()):
            return text
        if not lacking.isdisjoint(REPLACEMENT.encode()):
            raise TokenizerError(
                "the tokenizer lacks bytes of a character, and of U+FFFD to put in its place",
                at=repr(next(character for character in text if not lacking.isdisjoint(character.encode()))),
                because=f"no token writes {len(lacking)} of the bytes that UTF-8 has",
            )
        return "".join(c if lacking.isdisjoint(c.encode()) else REPLACEMENT for c in text)

    def encode(self, text: str, *, begin: bool = True, specials: bool = True) -> list[int]:
        """Tokens of a text.

        Args:
            text: The text. Lone surrogates, which no UTF-8 has, are read as U+FFFD.
            begin: Adds what the tokenizer adds to a whole text, such as a token that begins it; False for parts, and
                for chats, whose template writes those itself.
            specials: Names of special tokens in the text become these tokens. False for text of strangers.

        Raises:
            TokenizerError: It has neither the bytes of a character nor those of U+FFFD.
        """
        text = self._writable(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        inner = self._inner if specials else self._without_specials
        return list(inner.encode(text, add_special_tokens=begin).ids)

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: Numbers of tokens.
            specials: Writes the names of special tokens instead of nothing.

        Raises:
            TokenizerError: A number is no token's.
        """
        if self._pieces is None:
            self._check(ids)
            return str(self._inner.decode(list(ids), skip_special_tokens=not specials))
        stream = TextStream(self, specials=specials)
        return "".join([*map(stream.push, ids), stream.finish()])

    def chat_text(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Text of a chat up to where an answer begins, by the model's template.

        Raises:
            ChatTemplateError: There is no template, or it cannot be filled in with these messages.
        """
        from abele.llm.chat import ChatTemplate, ChatTemplateError

        if self.template is None:
            raise ChatTemplateError("the model has no chat template", remedy="give it text with encode")
        return ChatTemplate(self.template, self.variables).render(messages, tools=tools)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Tokens of a chat up to where an answer begins: those of :meth:`chat_text`."""
        return self.encode(self.chat_text(messages, tools=tools), begin=False)

    def piece(self, token: int) -> bytes:
        """Bytes of a token; the name of special ones.

        Raises:
            TokenizerError: The number is no token's, or tokens are no bytes.
        """
        if self._pieces is None:
            raise TokenizerError("tokens of this tokenizer are no bytes", remedy="decode whole texts")
        self._check([token])
        return self._pieces.by_id[token] or b""

    def is_special(self, token: int) -> bool:
        """True of tokens that are no text."""
        return token in self._special_ids

    def stream(self, *, specials: bool = False, continues: bool = False) -> TextStream:
        """Text of tokens that come one by one; see :class:`TextStream`."""
        return TextStream(self, specials=specials, continues=continues)

    @property
    def leading_space(self) -> bool:
        """True where texts begin with a space that the tokenizer put there."""
        return self._pieces is not None and self._pieces.leading_space

    def _check(self, ids: Sequence[int]) -> None:
        wrong = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise TokenizerError(f"there is no token {wrong}", because=f"tokens are 0 to {self.vocabulary - 1:,}")


class TextStream:
    """Text of tokens that come one by one, in pieces of whole characters.

    >>> stream = tokenizer.stream()  # doctest: +SKIP
    >>> [stream.push(token) for token in tokenizer.encode("é!")], stream.finish()  # doctest: +SKIP
    (['', 'é', '!'], '')

    Args:
        tokenizer: Its tokens.
        specials: Writes the names of special tokens instead of nothing.
        continues: True for the rest of a text: a space at its beginning stays.

    Raises:
        TokenizerError: Tokens of the tokenizer are no bytes.
    """

    def __init__(self, tokenizer: Tokenizer, *, specials: bool = False, continues: bool = False) -> None:
        if tokenizer._pieces is None:
            raise TokenizerError("tokens of this tokenizer are no bytes: there is no stream of its text")
        self._tokenizer = tokenizer
        self._specials = specials
        self._strip = tokenizer.leading_space and not continues
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Characters that are whole with this token, often none.

        Raises:
            TokenizerError: The number is no token's.
        """
        piece = self._tokenizer.piece(token)
        if self._tokenizer.is_special(token) and not self._specials:
            return ""
        if self._strip and piece:
            self._strip = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The rest: U+FFFD where the last character is not whole."""
        return self._decoder.decode(b"", final=True)
