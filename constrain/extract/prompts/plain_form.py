"""Prompts for models without a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.extract.prompts.compact import FULL, describe
from constrain.extract.prompts.form import Task
from constrain.extract.prompts.thinking import ThinkingMarks
from constrain.extract.prompts.wording import fenced
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    import torch


class PlainForm:
    """A text that is continued by the record: form of the records, documents with their records, the document."""

    description = "plain: a text that the record continues"
    thinking: ThinkingMarks | None = None

    def __init__(self, tokenizer: ExLlamaV2Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, task: Task, document: str) -> str:
        """Return the prompt for a document, see :meth:`PromptForm.text`."""
        head = f"Documents with their records: {describe(task.schema, FULL)}"
        examples = [f"{fenced(example.text)}\nRecord: {example.record}" for example in task.examples]
        return "\n\n".join(filter(None, [head, task.instructions.strip(), *examples, f"{fenced(document)}\nRecord:"]))

    def encode(self, task: Task, document: str, think: bool = False) -> torch.Tensor:
        """Encode the prompt for a document, see :meth:`PromptForm.encode`."""
        return self._tokenizer.encode_prompt(self._tokenizer.plain(self.text(task, document)), add_bos=True)
