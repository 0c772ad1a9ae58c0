"""Prompts by the chat template of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from constrain.errors import TokenizerError
from constrain.extract.prompts.form import Task
from constrain.extract.prompts.thinking import thinking_marks
from constrain.extract.prompts.wording import fenced, task_text
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    import torch

_PROBE = "constrain"


class ChatForm:
    """The chat template of the model.

    The system message has task, schema, rules and instructions; examples are turns of user and assistant; the last turn
    of the user is the document. Where the template has no system message, its text begins the first turn of the user.
    """

    def __init__(self, tokenizer: ExLlamaV2Tokenizer) -> None:
        """
        Raises:
            TokenizerError: the chat template is malformed.
        """
        self._tokenizer = tokenizer
        self._has_system_role = _has_system_role(tokenizer)
        self.thinking = thinking_marks(tokenizer)

    @property
    def description(self) -> str:
        """The form in a few words."""
        system = "" if self._has_system_role else ", without a system message"
        return f"chat template{system}{', may think first' if self.thinking else ''}"

    def messages(self, task: Task, document: str) -> list[dict[str, str]]:
        """Return the conversation whose next message is the record."""
        return self._messages(task_text(task), task, fenced(document))

    def image_messages(self, task: Task) -> list[dict[str, Any]]:
        """Return the conversation whose next message is the record of an image."""
        messages: list[dict[str, Any]] = [*self._messages(task_text(task, is_image=True), task, "")]
        messages[-1]["content"] = [{"type": "text", "text": messages[-1]["content"]}, {"type": "image"}]
        return messages

    def _messages(self, head: str, task: Task, document: str) -> list[dict[str, str]]:
        messages = [{"role": "system", "content": head}] if self._has_system_role else []
        for example in task.examples:
            messages.append({"role": "user", "content": fenced(example.text)})
            messages.append({"role": "assistant", "content": example.record})
        messages.append({"role": "user", "content": document})
        if not self._has_system_role:
            messages[0]["content"] = f"{head}\n\n{messages[0]['content']}"
        return messages

    def text(self, task: Task, document: str) -> str:
        """Return the messages for a document one after another, see :meth:`PromptForm.text`."""
        return "\n\n".join(f"{each['role']}: {each['content']}" for each in self.messages(task, document))

    def encode(self, task: Task, document: str, think: bool = False) -> torch.Tensor:
        """Encode the prompt for a document, see :meth:`PromptForm.encode`."""
        plain = self._tokenizer.plain
        messages = [{**each, "content": plain(each["content"])} for each in self.messages(task, document)]
        # The variable by which the templates of Qwen3 and others are told whether to think.
        return self._tokenizer.encode_prompt(self._tokenizer.apply_chat_template(messages, enable_thinking=think))


def _has_system_role(tokenizer: ExLlamaV2Tokenizer) -> bool:
    """Return whether the template shows system messages, rather than refusing or ignoring them."""
    messages = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "?"}]
    try:
        return _PROBE in tokenizer.apply_chat_template(messages)
    except TokenizerError:
        return False
