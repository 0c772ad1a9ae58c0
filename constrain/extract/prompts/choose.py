"""The form of prompt that fits a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK
from constrain.extract.prompts.builtin_form import BuiltinForm
from constrain.extract.prompts.chat_form import ChatForm
from constrain.extract.prompts.form import PromptForm, Task
from constrain.extract.prompts.plain_form import PlainForm
from constrain.extract.prompts.thinking import thinking_marks
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    import torch

#: Builds the prompt from a schema and a text.
Prompt: TypeAlias = Callable[[Mapping[str, Any], str], str]


class OwnForm:
    """Prompts of a function of the user, which are encoded as they are."""

    description = "a function of one's own"

    def __init__(self, tokenizer: ExLlamaV2Tokenizer, prompt: Prompt) -> None:
        self._tokenizer, self._prompt = tokenizer, prompt
        self.thinking = thinking_marks(tokenizer)

    def text(self, task: Task, document: str) -> str:
        """Return the prompt for a document, without instructions and examples."""
        return self._prompt(task.schema, document)

    def encode(self, task: Task, document: str, think: bool = False) -> torch.Tensor:
        """Encode the prompt for a document; names of special tokens in it become these tokens.

        Raises:
            ArgumentError: the function returns no text.
        """
        from constrain.completion import encode

        return encode(self._tokenizer, self.text(task, document))


def choose_form(tokenizer: ExLlamaV2Tokenizer) -> PromptForm:
    """Return the form of prompt that a model was trained on, by its tokenizer.

    Raises:
        TokenizerError: the chat template is malformed.
    """
    if {SCHEMA_MARK, TEXT_MARK, RECORD_MARK} <= set(tokenizer.extended_piece_to_id):
        return BuiltinForm(tokenizer)
    return ChatForm(tokenizer) if "default" in tokenizer.chat_templates else PlainForm(tokenizer)
