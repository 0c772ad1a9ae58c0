"""The prompts of the built-in model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK, unmarked
from constrain.extract.prompts.compact import describe
from constrain.extract.prompts.form import Example, Task
from constrain.extract.prompts.thinking import ThinkingMarks
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    import torch


class BuiltinForm:
    """The form that the built-in model was trained on, see :func:`~constrain.extract.prompts.builtin.build_prompt`.

    Instructions stand where the description of the record does, and examples are further texts with their records::

        <|schema|>{"total": number} (in euros)<|text|>Paid 3.<|record|>{"total": 3}<eos><|text|>Paid 12.<|record|>

    The model was trained on descriptions and on up to three examples, but not on longer instructions.
    """

    description = "built-in: schema, text and record after marks of their own"
    thinking: ThinkingMarks | None = None

    def __init__(self, tokenizer: ExLlamaV2Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, task: Task, document: str) -> str:
        """Return the prompt for a document, see :meth:`PromptForm.text`; names of special tokens are hidden."""
        rules = " ".join(task.instructions.split())
        schema = describe(task.schema) + (f" ({rules})" if rules else "")
        examples = "".join(map(self._example, task.examples))
        return f"{SCHEMA_MARK}{self._plain(schema)}{examples}{self._begun(document)}"

    def encode(self, task: Task, document: str, think: bool = False) -> torch.Tensor:
        """Encode the prompt for a document, see :meth:`PromptForm.encode`."""
        return self._tokenizer.encode_prompt(self.text(task, document), add_bos=True)

    def _example(self, example: Example) -> str:
        return f"{self._begun(example.text)}{self._plain(example.record)}{self._tokenizer.eos_token}"

    def _begun(self, document: str) -> str:
        return f"{TEXT_MARK}{self._plain(document.strip())}{RECORD_MARK}"

    def _plain(self, text: str) -> str:
        return self._tokenizer.plain(unmarked(text))
