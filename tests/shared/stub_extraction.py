"""An extractor without a model for tests of runs: fast, perfect, and in an order of its own. It imports no torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from constrain.documents import Document
from constrain.errors import ExtractionError
from constrain.extract.target import Target
from constrain.runs import Output, Run

SETTINGS = "0123456789abcdef"
TARGET = Target({"type": "object"})
#: Documents in progress at a time.
WINDOW = 8


@dataclass
class Usage:
    prompt_tokens: int = 10
    cached_tokens: int = 4
    output_tokens: int = 3


@dataclass
class Result:
    """The part of an extraction, or of a failure, that a run reads."""

    index: int
    document: Document
    error: Exception | None = None
    spans: dict[str, Any] = field(default_factory=dict)
    occurrences: dict[str, Any] = field(default_factory=dict)
    confidence: dict[str, Any] = field(default_factory=dict)
    conflicts: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    json: Any = None

    def __post_init__(self) -> None:
        self.json = self.json or {"text": self.document.text}

    @property
    def value(self) -> Any:
        return self.json


def extract(documents: Iterator[Document]) -> Generator[Any, None, None]:
    """Yield a record for each document, and a failure for those that say so, as they happen to be done."""
    chance, waiting = random.Random(0), []
    for index, document in enumerate(documents):
        error = ExtractionError("it says so") if "fail" in document.text else None
        waiting.append(Result(index, document, error))
        if len(waiting) == WINDOW:
            yield waiting.pop(chance.randrange(WINDOW))
    yield from waiting


def documents(number: int) -> list[Document]:
    return [Document(f"document {index} – \u2028", f"{index}.txt") for index in range(number)]


def run(output: Output, inputs: Iterable[Any], extract: Callable[..., Any] = extract, **options: Any) -> Run:
    """Run the stub on documents, and return the run."""
    one = Run(extract, options.pop("target", TARGET), options.pop("settings", SETTINGS), output, **options)
    one.extract(inputs)
    return one
