"""Reading of answers as they are written: thoughts, text, and calls of functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from constrain.serve.json_values import JSONReader
from constrain.serve.tools.choice import Function, ToolChoice
from constrain.serve.tools.custom import INPUT, TextReader
from constrain.serve.tools.forms import ID_AFTER, ID_BEFORE, NUMBER, CallForm
from constrain.serve.tools.tagged import read_arguments

#: The id that may follow arguments.
_CALL_ID = re.compile(f"^{ID_BEFORE}[a-zA-Z0-9]{{9}}{ID_AFTER}")


@dataclass(frozen=True)
class Text:
    """Text of an answer, or of thoughts."""

    text: str
    kind: Literal["content", "reasoning"] = "content"


@dataclass(frozen=True)
class CallStarted:
    """A call has begun.

    Attributes:
        index: number of the call, from 0.
        id: identifies the call.
        name: of the function or the custom tool.
        is_custom: whether it is a custom tool.
    """

    index: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(frozen=True)
class CallArguments:
    """A further part of the arguments of the last call, as JSON; of a custom tool, of its text.

    Attributes:
        index: number of the call.
        text: the part.
        is_custom: whether a custom tool is called.
    """

    index: int
    text: str
    is_custom: bool = False


Part = Text | CallStarted | CallArguments


class AnswerReader:
    """Divides the text of an answer.

    Attributes:
        num_calls: number of calls that have begun.
    """

    def __init__(
        self,
        form: CallForm,
        choice: ToolChoice | None,
        marks: tuple[str, str] | None = None,
        is_thinking: bool = False,
    ) -> None:
        """
        Args:
            form: how the model writes calls.
            choice: the functions that it may call.
            marks: texts around thoughts; ``None`` if the model has none.
            is_thinking: whether the prompt ends within thoughts.
        """
        self._form, self._choice, self._marks = form, choice, marks
        self._buffer = ""
        self._state = self._thoughts if is_thinking and marks else self._beginning
        self.num_calls = 0
        self._arguments, self._text, self._searched = JSONReader(), TextReader(), 0
        self._name = ""
        self._strips = is_thinking

    @property
    def in_thoughts(self) -> bool:
        """Whether what comes next belongs to thoughts, as far as is known."""
        return self._state == self._thoughts

    @property
    def in_answer(self) -> bool:
        """Whether what comes next belongs to an answer that is no call, as far as is known."""
        return self._state in (self._beginning, self._answer, self._content)

    @property
    def is_held(self) -> bool:
        """Whether there is text of which no part is known yet."""
        return bool(self._buffer)

    @property
    def in_call(self) -> bool:
        """Whether the arguments of the last call have not ended."""
        return self._state in (self._call_arguments, self._tagged_arguments)

    def feed(self, text: str, is_last: bool = False) -> list[Part]:
        """Read a piece of text; return the parts that it makes known.

        Args:
            text: the piece.
            is_last: whether nothing follows.
        """
        self._buffer += text
        parts: list[Part] = []
        while True:
            state, before = self._state, len(self._buffer)
            parts += self._state(is_last)
            if self._state == state and len(self._buffer) == before:
                return parts

    # States: each takes what it understands from the buffer, and may set the next state.

    def _beginning(self, is_last: bool) -> Iterator[Part]:
        """Skip the mark of thoughts or content, if the answer begins with one."""
        rest = self._buffer.lstrip() if self._marks else self._buffer
        for mark, state in self._openings():
            if rest.startswith(mark):
                self._buffer, self._state = rest[len(mark) :], state
                self._strips = state == self._thoughts
                return
            if mark.startswith(rest) and not is_last:
                return
        self._state = self._content
        yield from ()

    def _openings(self) -> Iterator[tuple[str, Any]]:
        if self._marks:
            yield self._marks[0], self._thoughts
        if self._form.content_opening:
            yield self._form.content_opening, self._content

    def _thoughts(self, is_last: bool) -> Iterator[Part]:
        assert self._marks is not None
        closing = self._marks[1]
        text, found = self._until([closing], is_last)
        yield from self._stripped(text, "reasoning")
        if found:
            self._buffer = self._buffer[len(closing) :]
            self._state, self._strips = self._answer, True

    def _answer(self, is_last: bool) -> Iterator[Part]:
        """Skip white space after thoughts, and the mark of content."""
        self._buffer = self._buffer.lstrip()
        opening = self._form.content_opening
        if opening and self._buffer.startswith(opening):
            self._buffer, self._state = self._buffer[len(opening) :], self._content
        elif self._buffer and (is_last or not opening.startswith(self._buffer)):
            self._state = self._content
        yield from ()

    def _content(self, is_last: bool) -> Iterator[Part]:
        trigger = self._form.trigger if self._choice else ""
        text, found = self._until([trigger, self._form.content_closing], is_last)
        yield from self._stripped(text, "content")
        if found:
            self._state = self._call_opening if found == trigger else self._end

    def _end(self, is_last: bool) -> Iterator[Part]:
        self._buffer = ""
        yield from ()

    def _call_opening(self, is_last: bool) -> Iterator[Part]:
        yield from self._skip(self._form.opening + self._form.before_name, self._call_name)

    def _call_name(self, is_last: bool) -> Iterator[Part]:
        end = _pattern(self._form.after_name) or r"(?=[^\w.-])"
        match = re.match(rf"([\w.-]+?){end}", self._buffer)
        if match:
            self._name = match[1]
            self._buffer = self._buffer[match.end() :]
            self._arguments, self._text, self._searched = JSONReader(), TextReader(), 0
            self._state = self._call_arguments if self._form.arguments == "json" else self._tagged_arguments
            self.num_calls += 1
            yield CallStarted(self.num_calls - 1, f"call_{uuid4().hex[:24]}", match[1], self._is_custom)

    def _call_arguments(self, is_last: bool) -> Iterator[Part]:
        before = len(self._arguments.text)
        self._arguments.feed(self._buffer)
        end = self._arguments.end
        text = self._arguments.text[before:end]
        self._buffer = "" if end is None else self._arguments.text[end:]
        text = self._text.feed(text, end is not None) if self._is_custom else text
        if text:
            yield CallArguments(self.num_calls - 1, text, self._is_custom)
        if end is not None:
            self._state = self._call_end

    def _tagged_arguments(self, is_last: bool) -> Iterator[Part]:
        # They are read once more only if what follows them has come since.
        ending = self._form.after_arguments
        searched, self._searched = self._searched, max(0, len(self._buffer) - len(ending) + 1)
        if self._buffer.find(ending, searched) < 0:
            return
        if found := read_arguments(self._form, self._function(), self._buffer):
            arguments, end = found
            self._buffer, self._state = self._buffer[end:], self._call_end
            text = json.loads(arguments)[INPUT] if self._is_custom else arguments
            yield CallArguments(self.num_calls - 1, text, self._is_custom)

    def _function(self) -> Function:
        assert self._choice is not None
        return next(each for each in self._choice.functions if each.name == self._name)

    @property
    def _is_custom(self) -> bool:
        return self._function().custom is not None

    def _call_end(self, is_last: bool) -> Iterator[Part]:
        form = self._form
        if form.id_after_arguments:
            self._buffer = _CALL_ID.sub("", self._buffer)
        yield from self._skip(form.after_arguments + form.separator + form.before_name, self._call_name)

    def _skip(self, text: str, state: Any) -> Iterator[Part]:
        if match := re.match(_pattern(text), self._buffer):
            self._buffer, self._state = self._buffer[match.end() :], state
        yield from ()

    def _until(self, marks: Sequence[str], is_last: bool) -> tuple[str, str]:
        """Take the text before the first of some marks, or what cannot be the beginning of one; return it and the mark.

        Empty texts are no marks.
        """
        given = list(filter(None, marks))
        found = re.search("|".join(map(re.escape, given)), self._buffer) if given else None
        held = 0 if is_last else max((_overlap(self._buffer, mark) for mark in given), default=0)
        end = found.start() if found else len(self._buffer) - held
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text, found[0] if found else ""

    def _stripped(self, text: str, kind: Literal["content", "reasoning"]) -> Iterator[Text]:
        text = text.lstrip("\n") if self._strips else text
        if text:
            self._strips = False
            yield Text(text, kind)


def _pattern(text: str) -> str:
    """Return a pattern for a text of a form, which may have the number of a call."""
    return "[0-9]+".join(map(re.escape, text.split(NUMBER)))


def _overlap(text: str, mark: str) -> int:
    """Return the length of the longest end of a text that begins a mark, but is not all of it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
