"""Options of extractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from constrain.arguments import check_count, check_names, check_text, refused
from constrain.completion import Options
from constrain.documents import Document
from constrain.errors import ArgumentError
from constrain.extract.examples import checked_examples
from constrain.extract.prompts.form import Task
from constrain.extract.target import Target
from constrain.generator.settings import Settings


class ExtractOptions(TypedDict, total=False):
    """Options of extractions, as for :class:`~constrain.completion.Options`, with other defaults.

    ``max_new_tokens`` is 1024 by default. Without ``settings``, ``temperature`` and the like, sampling is greedy.

    ``instructions`` are rules in words. ``examples`` are pairs of a document and its record, a value of the type or
    JSON, and are checked against the schema. ``thinking`` is the maximum number of tokens that a reasoning model may
    write before its record, in addition to ``max_new_tokens``; by default 0.

    ``confidence`` is whether to tell how sure the model was of each value, by default true. ``"exact"`` takes further
    requests, for what the tokens of the record do not tell about the alternatives of its values; it cannot be had
    together with ``filters``.
    """

    filters: Sequence[Any]
    max_new_tokens: int
    settings: Settings | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    timeout: float | None
    priority: int
    instructions: str
    examples: Sequence[tuple[str | Document, Any]]
    thinking: int
    confidence: bool | Literal["exact"]


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions(Options):
    """Checked options of an extraction.

    Attributes:
        task: the extraction.
        thinking: maximum number of tokens that the model may write before the record.
        exact: whether further requests make the confidence of values exact.

    Raises:
        ArgumentError: an option is of the wrong type or out of range.
    """

    task: Task
    thinking: int = 0
    max_new_tokens: int = 1024
    confidence: bool = True
    exact: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("thinking", self.thinking)
        if self.exact and self.filters:
            raise ArgumentError("confidence cannot be exact with filters: requests for it know the schema only")

    @classmethod
    def of(cls, target: Target[Any], given: ExtractOptions) -> ExtractionOptions:
        """Check the options for a target.

        Raises:
            ArgumentError: an option is unknown, of the wrong type or out of range, or an example does not
                match the schema.
        """
        check_names(given, ExtractOptions.__annotations__)
        options: dict[str, Any] = {**given}
        confidence = options.pop("confidence", True)
        if not isinstance(confidence, bool) and confidence != "exact":
            raise refused("confidence", confidence, "True, False or 'exact'")
        for name in ("max_new_tokens", "thinking"):
            if isinstance(options.get(name), bool):  # which is a whole number to Python
                raise refused(name, options[name], "a whole number")
        instructions = options.pop("instructions", "")
        check_text("instructions", instructions)
        examples = checked_examples(target, options.pop("examples", ()))
        task = Task(target.schema, instructions, examples)
        return cls(task=task, confidence=bool(confidence), exact=confidence == "exact", **options)
