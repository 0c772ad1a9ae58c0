"""Explanation of a text: where it leaves a language, and what was expected there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constrain._core import Matcher
from constrain.engine.explain.expected import END_OF_TEXT, expected, listed, shown, special_token
from constrain.engine.explain.place import json_place
from constrain.engine.special import Piece

#: Characters of the line that are shown on either side of the caret.
CONTEXT = 60


@dataclass(frozen=True)
class Explanation:
    """The result of parsing a text: accepted, or where and why not. Printed, it marks the place with a caret.

    Attributes:
        accepted: the text is in the language.
        text: the text.
        byte_offset: offset at which it leaves the language, in bytes; its length if it is accepted or incomplete.
        offset: this offset in characters.
        line, column: this offset as line and column, both counted from 1.
        found: the character there, or that the text ends.
        expected: descriptions of what is allowed there.
        pointer: JSON pointer to the value there, or to the object that expects a key; ``None`` unless the grammar is a
            JSON Schema.
    """

    accepted: bool
    text: str
    byte_offset: int
    offset: int
    line: int
    column: int
    found: str
    expected: tuple[str, ...]
    pointer: str | None

    def __str__(self) -> str:
        if self.accepted:
            return "accepted"
        message = f"line {self.line}, column {self.column} (byte {self.byte_offset}): found {self.found}, "
        message += f"expected {listed(self.expected)}"
        if self.pointer is not None:
            message += f", at {self.pointer or 'the root'}"
        return f"{message}\n{self._caret()}"

    def _caret(self) -> str:
        """Format the line, or the part of it around the offset, with a caret below."""
        line = self.text.split("\n")[self.line - 1].expandtabs(1).encode(errors="replace").decode()
        start, column = 0, self.column - 1
        if column > CONTEXT:
            start, column = column - CONTEXT, CONTEXT + 1
        shown = ("…" if start else "") + line[start : start + 2 * CONTEXT]
        return f"{shown}\n{' ' * column}^"


def explain_text(matcher: Matcher, pieces: Sequence[Piece], is_json: bool) -> Explanation:
    """Explain a text, with a matcher at the start; see :meth:`constrain.engine.CompiledGrammar.explain`."""
    accepted_text, found = "", END_OF_TEXT
    for piece in pieces:
        part = _accept_piece(matcher, piece)
        accepted_text += part
        if part != piece.text:
            found = special_token(piece.text) if piece.special else _character(piece.text[len(part)])
            break
    accepted = found == END_OF_TEXT and matcher.is_accepting()
    return Explanation(
        accepted=accepted,
        text="".join(piece.text for piece in pieces),
        byte_offset=len(accepted_text.encode()),
        offset=len(accepted_text),
        line=accepted_text.count("\n") + 1,
        column=len(accepted_text) - accepted_text.rfind("\n"),
        found=found,
        expected=() if accepted else expected(matcher),
        pointer=json_place(accepted_text) if is_json else None,
    )


def _accept_piece(matcher: Matcher, piece: Piece) -> str:
    """Advance by the longest viable prefix of a piece, in whole characters, and return it."""
    if piece.special:
        return piece.text if matcher.accept_bytes(piece.content) else ""
    begin = matcher.accepted_tokens
    # In the middle of a character, only bytes could be named as expected.
    part = piece.content[: accept_prefix(matcher, piece.content)].decode(errors="ignore")
    matcher.rollback(matcher.accepted_tokens - begin)
    matcher.accept_bytes(part.encode())
    return part


def _character(found: str) -> str:
    return f"`{shown(found.encode(errors='surrogatepass'))}`"


def accept_prefix(matcher: Matcher, content: bytes) -> int:
    """Advance by the longest viable prefix, and return its length."""
    accepted, step = 0, len(content)
    while step:
        if matcher.accept_bytes(content[accepted : accepted + step]):
            accepted += step
            step = min(step, len(content) - accepted)
        else:
            step //= 2
    return accepted
