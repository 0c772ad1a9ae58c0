"""The task that forms of prompts are given, and their protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from constrain.extract.prompts.thinking import ThinkingMarks

if TYPE_CHECKING:
    import torch


class Example(NamedTuple):
    """A text, and the record that belongs to it, as JSON."""

    text: str
    record: str


@dataclass(frozen=True)
class Task:
    """An extraction: schema, instructions and examples.

    Attributes:
        schema: JSON Schema of the record.
        instructions: rules of the user.
        examples: texts with their records.
    """

    schema: Mapping[str, Any]
    instructions: str = ""
    examples: tuple[Example, ...] = ()


class PromptForm(Protocol):
    """Makes the prompts of one model.

    Schema, instructions and examples come before the document, so that the prefix cache shares them among documents.
    """

    @property
    def description(self) -> str:
        """The form in a few words, for people."""

    @property
    def thinking(self) -> ThinkingMarks | None:
        """The tokens around what the model writes before its answer; ``None`` if it is not trained to think."""

    def text(self, task: Task, document: str) -> str:
        """Return the prompt for a document in words; a chat template may add to them when it is encoded."""

    def encode(self, task: Task, document: str, think: bool = False) -> torch.Tensor:
        """Encode the prompt for a document, as int64 of shape (1, n).

        Nothing in the document and the task becomes a special token.

        Args:
            task: the extraction.
            document: its text.
            think: whether the model thinks before it answers; ignored by forms of models that do not.
        """
