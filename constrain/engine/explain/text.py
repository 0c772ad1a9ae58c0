"""Where a text leaves a language, and what was expected there."""

from __future__ import annotations

from dataclasses import dataclass

from constrain._core import Matcher
from constrain.engine.explain.expected import END_OF_TEXT, expected, listed, shown
from constrain.engine.explain.place import json_place

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


def explain_text(matcher: Matcher, text: str, is_json: bool) -> Explanation:
    """Explain a text to a matcher that is at the start; see :meth:`constrain.engine.CompiledGrammar.explain`."""
    content = text.encode(errors="surrogatepass")
    # A character is taken whole, so that what was expected in its place is told in characters.
    before = content[: take(matcher, content)].decode(errors="ignore")
    matcher.reset()
    matcher.accept_bytes(before.encode())
    taken = len(before.encode())
    accepted = taken == len(content) and matcher.is_accepting()
    return Explanation(
        accepted=accepted,
        text=text,
        byte_offset=taken,
        offset=len(before),
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        found=END_OF_TEXT if taken == len(content) else f"`{shown(text[len(before)].encode(errors='surrogatepass'))}`",
        expected=() if accepted else expected(matcher),
        pointer=json_place(before) if is_json else None,
    )


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
