"""Where a text leaves a language, and what was expected there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constrain._core import Matcher
from constrain.engine.explain.expected import END_OF_TEXT, expected, listed, shown, special_token
from constrain.engine.explain.place import json_place
from constrain.engine.special import Piece

#: A line with the place in it is shown in so many characters on either side.
CONTEXT = 60


@dataclass(frozen=True)
class Explanation:
    """Whether a text is in a language, and where and why not. Printed, it shows the place with a caret.

    Attributes:
        accepted: the text is in the language.
        text: the text.
        byte_offset: bytes up to the place where it leaves the language; all of them where it is accepted or incomplete.
        offset: the same in characters.
        line, column: the same place, both counted from 1.
        found: the character there, or that the text ends.
        expected: what could stand there, in words.
        pointer: JSON pointer to the value there, or to the object that expects a key; ``None`` where the language is
            not that of a JSON Schema.
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
        """The line, or the part of it around the place, and a caret below the place."""
        line = self.text.split("\n")[self.line - 1].expandtabs(1).encode(errors="replace").decode()
        start, column = 0, self.column - 1
        if column > CONTEXT:
            start, column = column - CONTEXT, CONTEXT + 1
        shown = ("…" if start else "") + line[start : start + 2 * CONTEXT]
        return f"{shown}\n{' ' * column}^"


def explain_text(matcher: Matcher, pieces: Sequence[Piece], is_json: bool) -> Explanation:
    """Explain a text to a matcher that is at the start; see :meth:`constrain.engine.CompiledGrammar.explain`."""
    before, found = "", END_OF_TEXT
    for piece in pieces:
        taken = _taken(matcher, piece)
        before += taken
        if taken != piece.text:
            found = special_token(piece.text) if piece.special else _character(piece.text[len(taken)])
            break
    accepted = found == END_OF_TEXT and matcher.is_accepting()
    return Explanation(
        accepted=accepted,
        text="".join(piece.text for piece in pieces),
        byte_offset=len(before.encode()),
        offset=len(before),
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        found=found,
        expected=() if accepted else expected(matcher),
        pointer=json_place(before) if is_json else None,
    )


def _taken(matcher: Matcher, piece: Piece) -> str:
    """What a matcher takes of a piece: characters, and special tokens, are taken whole."""
    if piece.special:
        return piece.text if matcher.accept_bytes(piece.content) else ""
    begin = matcher.accepted_tokens
    # A character is taken whole, so that what was expected in its place is told in characters.
    taken = piece.content[: take(matcher, piece.content)].decode(errors="ignore")
    matcher.rollback(matcher.accepted_tokens - begin)
    matcher.accept_bytes(taken.encode())
    return taken


def _character(found: str) -> str:
    return f"`{shown(found.encode(errors='surrogatepass'))}`"


def take(matcher: Matcher, content: bytes) -> int:
    """Advance by the longest beginning that stays inside the language, and return its length."""
    taken, step = 0, len(content)
    while step:
        if matcher.accept_bytes(content[taken : taken + step]):
            taken += step
            step = min(step, len(content) - taken)
        else:
            step //= 2
    return taken
