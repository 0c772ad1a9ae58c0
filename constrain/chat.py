"""Conversations with streamed answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from constrain.arguments import check_count, check_text
from constrain.completion import Options, Pending, runtime_of, submit
from constrain.completion.result import Completion
from constrain.errors import GenerationError
from constrain.filters.combined import filters_of
from constrain.generator import ExLlamaV2Sampler

__all__ = ["Chat"]

_USER, _ASSISTANT = "User:", "Assistant:"


class Chat:
    """A conversation with a model.

    The model's chat template formats the prompt; a model without one gets a plain transcript. Earlier messages stay in
    the KV cache between answers. If the context is full, the oldest messages are dropped from the prompt.

    Attributes:
        messages: the conversation, each with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``.
        finish_reason: why the last answer ended: ``"stop_token"``, ``"stop_string"``, ``"end_filter"`` or
            ``"max_new_tokens"``; ``None`` if it was interrupted, and before the first.
    """

    def __init__(
        self,
        runtime: Any,
        system: str | None = None,
        settings: ExLlamaV2Sampler.Settings | None = None,
        max_new_tokens: int = 1024,
        seed: int | None = None,
    ) -> None:
        """Begin a conversation.

        Args:
            runtime: an :class:`~constrain.LLM`, a :class:`~constrain.runtime.Runtime`, or an
                :class:`~constrain.ExLlamaV2DynamicGenerator`. Conversations may share it.
            system: the system message.
            settings: sampling settings.
            max_new_tokens: most tokens of an answer; at most half of the context.
            seed: makes sampling reproducible.

        Raises:
            ArgumentError: an argument is of the wrong type or out of range.
        """
        self._runtime = runtime_of(runtime)
        if system is not None:
            check_text("system", system)
        check_count("max_new_tokens", max_new_tokens, 1)
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self.finish_reason: str | None = None
        context = self._runtime.max_seq_len
        self._context, self._room = context, min(max_new_tokens, context // 2)
        self._has_template = "default" in self._runtime.tokenizer.chat_templates
        self._options = Options(
            max_new_tokens=self._room,
            settings=ExLlamaV2Sampler.Settings() if settings is None else settings,
            stop=None if self._has_template else f"\n{_USER}",
            seed=seed,
        )

    def reset(self) -> None:
        """Clear the conversation, except for the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def answer(self, message: str, filters: Sequence[Any] = ()) -> Iterator[str]:
        """Add a user message, and stream the answer.

        If the iterator is closed or interrupted, the partial answer is added to the conversation.

        Args:
            message: the user message.
            filters: constraints on the answer.

        Raises:
            ArgumentError: the message is not a string, or the filters are not a list.
            GenerationError: the message alone leaves no room in the context.
            BudgetError: the filters allow no answer within its token limit.
            FilterError: a filter failed.
        """
        check_text("message", message)
        said = {"role": "user", "content": message}
        ids = self._prompt([*self.messages, said])
        pending = submit(self._runtime, ids, filters_of(filters), self._options, _itself)
        self.finish_reason = None
        self.messages.append(said)
        try:
            yield from pending.pieces()
            self.finish_reason = _reason(pending)
        finally:
            pending.cancel()
            self.messages.append({"role": "assistant", "content": pending.handle.output.text.strip()})

    def _prompt(self, messages: list[dict[str, str]]) -> torch.Tensor:
        """Encode the longest suffix of a conversation that leaves room for an answer, int64 of shape (1, n)."""
        head = [message for message in messages if message["role"] == "system"]
        rest = [message for message in messages if message["role"] != "system"]
        # Templates expect user and assistant messages to alternate, so a message is dropped along with its answer.
        for start in range(0, len(rest), 2):
            ids = self._encode([*head, *rest[start:]])
            if ids.shape[1] <= self._context - self._room:
                return ids
        raise GenerationError(
            f"the message has {ids.shape[1]} tokens with all that goes before it, and the context {self._context}, of "
            f"which {self._room} are for the answer"
        )

    def _encode(self, messages: list[dict[str, str]]) -> torch.Tensor:
        tokenizer = self._runtime.tokenizer
        if self._has_template:
            return tokenizer.encode_chat(messages)
        names = {"system": "", "user": f"{_USER} ", "assistant": f"{_ASSISTANT} "}
        lines = [names[message["role"]] + tokenizer.plain(message["content"]) for message in messages]
        return tokenizer.encode_prompt("\n".join([*lines, _ASSISTANT]), add_bos=True)


def _itself(completion: Completion) -> Completion:
    return completion


def _reason(pending: Pending[Completion]) -> str | None:
    finish = pending.handle.output.finish
    return None if finish is None else finish.reason
