"""Reading of answers as they are written: thoughts, text, and calls of functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from constrain.serve.json_values import JSONReader
from constrain.serve.tools.choice import ToolChoice
from constrain.serve.tools.forms import CONSTANTS, ID_AFTER, ID_BEFORE, NUMBER, CallForm
from constrain.serve.tools.grammar import is_text

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
        name: of the function.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A further part of the arguments of the last call, as JSON."""

    index: int
    text: str


Part = Text | CallStarted | CallArguments


class AnswerReader:
    """Divides the text of an answer.

    Attributes:
        in_thoughts: whether the last text belongs to thoughts.
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
        self._num_calls = 0
        self._arguments = JSONReader()
        self._name = ""
        self._strips = is_thinking

    @property
    def in_thoughts(self) -> bool:
        """Whether what comes next belongs to thoughts, as far as is known."""
        return self._state == self._thoughts

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
        text, found = self._until(closing, is_last)
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
        text, found = self._until(self._form.trigger if self._choice else "", is_last)
        yield from self._stripped(text, "content")
        if found:
            self._state = self._call_opening

    def _call_opening(self, is_last: bool) -> Iterator[Part]:
        yield from self._skip(self._form.opening + self._form.before_name, self._call_name)

    def _call_name(self, is_last: bool) -> Iterator[Part]:
        end = _pattern(self._form.after_name) or r"(?=[^\w.-])"
        match = re.match(rf"([\w.-]+?){end}", self._buffer)
        if match:
            self._name = match[1]
            self._buffer = self._buffer[match.end() :]
            self._arguments = JSONReader()
            self._state = self._call_arguments if self._form.arguments == "json" else self._tagged_arguments
            self._num_calls += 1
            yield CallStarted(self._num_calls - 1, f"call_{uuid4().hex[:24]}", match[1])

    def _call_arguments(self, is_last: bool) -> Iterator[Part]:
        before = len(self._arguments.text)
        self._arguments.feed(self._buffer)
        end = self._arguments.end
        text = self._arguments.text[before:end]
        self._buffer = "" if end is None else self._arguments.text[end:]
        if text:
            yield CallArguments(self._num_calls - 1, text)
        if end is not None:
            self._state = self._call_end

    def _tagged_arguments(self, is_last: bool) -> Iterator[Part]:
        end = self._buffer.find(self._form.after_arguments)
        if end >= 0:
            text, self._buffer = self._buffer[:end], self._buffer[end:]
            self._state = self._call_end
            yield CallArguments(self._num_calls - 1, json.dumps(self._of_tags(text), ensure_ascii=False))

    def _call_end(self, is_last: bool) -> Iterator[Part]:
        form = self._form
        if form.id_after_arguments:
            self._buffer = _CALL_ID.sub("", self._buffer)
        yield from self._skip(form.after_arguments + form.separator + form.before_name, self._call_name)

    def _skip(self, text: str, state: Any) -> Iterator[Part]:
        if match := re.match(_pattern(text), self._buffer):
            self._buffer, self._state = self._buffer[match.end() :], state
        yield from ()

    def _until(self, mark: str, is_last: bool) -> tuple[str, bool]:
        """Take the text before a mark, or what cannot be the beginning of one; return it and whether there is one."""
        place = self._buffer.find(mark) if mark else -1
        held = 0 if is_last else _overlap(self._buffer, mark)
        end = place if place >= 0 else len(self._buffer) - held
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text, place >= 0

    def _stripped(self, text: str, kind: Literal["content", "reasoning"]) -> Iterator[Text]:
        text = text.lstrip("\n") if self._strips else text
        if text:
            self._strips = False
            yield Text(text, kind)

    def _of_tags(self, text: str) -> dict[str, Any]:
        assert self._choice is not None
        before_key, after_key, before_value, after_value = map(re.escape, self._form.tags)
        pair = re.compile(f"{before_key}(.*?){after_key}{before_value}(.*?){after_value}", re.DOTALL)
        schema = next(each.schema for each in self._choice.functions if each.name == self._name)
        properties = schema.get("properties", {})
        found = pair.findall(text)
        return {key: value if is_text(properties.get(key)) else _of_json(value) for key, value in found}


def _of_json(value: str) -> Any:
    """Return a value that is written as JSON, or as a constant of Python."""
    constants = {python: name for name, python in CONSTANTS.items()}
    return json.loads(constants.get(value, value))


def _pattern(text: str) -> str:
    """Return a pattern for a text of a form, which may have the number of a call."""
    return "[0-9]+".join(map(re.escape, text.split(NUMBER)))


def _overlap(text: str, mark: str) -> int:
    """Return the length of the longest end of a text that begins a mark, but is not all of it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
