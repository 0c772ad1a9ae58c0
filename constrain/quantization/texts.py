"""Texts to evaluate or calibrate with, and their windows of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from constrain.arguments import check_count, check_text, refused
from constrain.errors import ArgumentError
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Default length of a window in tokens, if the model allows it.
DEFAULT_CONTEXT = 2048


@dataclass(frozen=True)
class Text:
    """A text, and what comes before it.

    Attributes:
        text: the text.
        prompt: is read before the text, but does not count: its tokens are not scored.
    """

    text: str
    prompt: str = ""


Texts = str | Text | Iterable[str | Text]
"""One text, or several, each of which begins anew."""


@dataclass(frozen=True)
class Window:
    """Tokens that a model reads at a time.

    Attributes:
        ids: int64 ``[width]``.
        first: index of the first token that counts; all after it do.
    """

    ids: torch.Tensor
    first: int

    @property
    def scored(self) -> int:
        """Number of tokens that count."""
        return len(self.ids) - self.first


def read_texts(path: str | Path) -> list[Text]:
    """Read the texts of a file in UTF-8.

    Each line of a file whose name ends with ``.jsonl`` is a text: a string, or an object with ``text`` and perhaps a
    ``prompt``. Any other file is one text.

    Raises:
        ArgumentError: the file cannot be read, or a line is no text.
    """
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read as UTF-8 text: {error}") from error
    if Path(path).suffix != ".jsonl":
        return [Text(content)]
    lines = enumerate(content.split("\n"), 1)
    return [_of_line(f"line {number} of {path}", line) for number, line in lines if line.strip()]


def _of_line(where: str, line: str) -> Text:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{where} is not JSON: {error}") from error
    fields: Any = {"text": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise ArgumentError(f'{where} is no text: give "TEXT", {{"text": TEXT}} or {{"prompt": TEXT, "text": TEXT}}')
    prompt = fields.get("prompt", "")
    for name, text in (("text", fields["text"]), ("prompt", prompt)):
        check_text(f"{where}: {name}", text)
    return Text(fields["text"], prompt)


def listed(texts: Texts) -> list[Text]:
    """Return texts as a list.

    Raises:
        ArgumentError: they are not texts.
    """
    if isinstance(texts, (str, Text)):
        texts = [texts]
    if not isinstance(texts, Iterable):
        raise refused("texts", texts, "a text or several")
    found = []
    for number, text in enumerate(texts):
        if not isinstance(text, Text):
            check_text(f"texts[{number}]", text)
            text = Text(text)
        found.append(text)
    return found


def windows_of(
    tokenizer: ExLlamaV2Tokenizer, texts: Sequence[Text], context: int, stride: int, max_tokens: int | None = None
) -> list[Window]:
    """Split texts into windows in which each of their tokens counts once.

    A window begins ``stride`` tokens after the one before, so that a token that counts has ``context - stride`` others
    before it or more, except at the beginning of a text. Each begins with BOS, if the model has it.

    Args:
        tokenizer: names of special tokens in texts are these tokens, as in prompts.
        texts: the texts.
        context: tokens of a window.
        stride: less than ``context``.
        max_tokens: there are no more windows once this many tokens count.

    Raises:
        ArgumentError: an argument is out of its bounds.
    """
    check_count("context", context, 2)
    check_count("stride", stride, 1, context - 1)
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    found: list[Window] = []
    scored = 0
    for window in (window for text in texts for window in _windows(tokenizer, text, bos, context, stride)):
        if max_tokens is not None and scored >= max_tokens:
            break
        found.append(window)
        scored += window.scored
    return found


def _windows(tokenizer: ExLlamaV2Tokenizer, text: Text, bos: list[int], context: int, stride: int) -> Iterator[Window]:
    prompt, answer = (tokenizer.encode_prompt(part)[0].tolist() for part in (text.prompt, text.text))
    ids, done = prompt + answer, len(prompt)
    for begin in range(0, len(ids), stride):
        end = min(begin + context - len(bos), len(ids))
        # Nothing comes before the first token of a window, so that it has no probability.
        first = max(1, done - begin + len(bos))
        window = Window(torch.tensor([*bos, *ids[begin:end]]), first)
        if window.scored > 0:
            yield window
        done = max(done, end)
        if end == len(ids):
            return
