"""Conversations with streamed answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from constrain.arguments import check_count, check_text
from constrain.completion import Options, Pending, runtime_of, submit
from constrain.completion.images import MessageImages, no_images
from constrain.completion.result import Completion
from constrain.errors import ArgumentError, GenerationError
from constrain.filters.combined import filters_of
from constrain.generator import ExLlamaV2Sampler
from constrain.llm.contents import with_images
from constrain.model import ExLlamaV2MMEmbedding

__all__ = ["Chat"]

_Encoded: TypeAlias = "tuple[torch.Tensor, Sequence[ExLlamaV2MMEmbedding]]"

_USER, _ASSISTANT = "User:", "Assistant:"


class Chat:
    """A conversation with a model.

    The model's chat template formats the prompt; a model without one gets a plain transcript. Earlier messages stay in
    the KV cache between answers. If the context is full, the oldest messages are dropped from the prompt.

    Attributes:
        messages: the conversation, each with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``: a
            text, or a list of parts.
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
                :class:`~constrain.ExLlamaV2DynamicGenerator`. Conversations may share it. Messages may have images if
                it is an ``LLM`` that was loaded with them.
            system: the system message.
            settings: sampling settings.
            max_new_tokens: most tokens of an answer; at most half of the context.
            seed: makes sampling reproducible.

        Raises:
            ArgumentError: an argument is of the wrong type or out of range.
        """
        self._runtime = runtime_of(runtime)
        self._images: MessageImages | None = getattr(runtime, "images", None)
        if system is not None:
            check_text("system", system)
        check_count("max_new_tokens", max_new_tokens, 1)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
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

    def answer(self, message: str | Sequence[Mapping[str, Any]], filters: Sequence[Any] = ()) -> Iterator[str]:
        """Add a user message, and stream the answer.

        If the iterator is closed or interrupted, the partial answer is added to the conversation.

        Args:
            message: the user message: a text, or a list of parts with images, as for :func:`constrain.load`.
            filters: constraints on the answer.

        Raises:
            ArgumentError: the message is neither a string nor a list of parts, it has images that the model does not
                read, or the filters are not a list.
            DocumentError: an image cannot be read.
            GenerationError: the message alone leaves no room in the context.
            BudgetError: the filters allow no answer within its token limit.
            FilterError: a filter failed.
        """
        if isinstance(message, str) or not _are_parts(message):
            check_text("message", message)
        said = {"role": "user", "content": message}
        ids, embeddings = self._prompt([*self.messages, said])
        options = replace(self._options, embeddings=embeddings)
        pending = submit(self._runtime, ids, filters_of(filters), options, _itself)
        self.finish_reason = None
        self.messages.append(said)
        try:
            yield from pending.pieces()
            self.finish_reason = _reason(pending)
        finally:
            pending.cancel()
            self.messages.append({"role": "assistant", "content": pending.handle.output.text.strip()})

    def _prompt(self, messages: list[dict[str, Any]]) -> _Encoded:
        """Encode the longest suffix of a conversation that leaves room for an answer."""
        head = [message for message in messages if message["role"] == "system"]
        rest = [message for message in messages if message["role"] != "system"]
        # Templates expect user and assistant messages to alternate, so a message is dropped along with its answer.
        for start in range(0, len(rest), 2):
            ids, embeddings = self._encode([*head, *rest[start:]])
            if ids.shape[1] <= self._context - self._room:
                return ids, embeddings
        raise GenerationError(
            f"the message has {ids.shape[1]} tokens with all that goes before it, and the context {self._context}, of "
            f"which {self._room} are for the answer"
        )

    def _encode(self, messages: list[dict[str, Any]]) -> _Encoded:
        """Return the ids of a prompt, int64 of shape (1, n), and the embeddings of images that they refer to."""
        tokenizer = self._runtime.tokenizer
        shown, images = with_images(messages)
        if images and (self._images is None or not self._has_template):
            raise ArgumentError(f"the message has an image, but {no_images(self._runtime.model)}")
        if images and self._images is not None:
            return self._images.encode(shown, images)
        if self._has_template:
            return tokenizer.encode_chat(shown), ()
        names = {"system": "", "user": f"{_USER} ", "assistant": f"{_ASSISTANT} "}
        lines = [names[message["role"]] + tokenizer.plain(_text(message["content"])) for message in shown]
        return tokenizer.encode_prompt("\n".join([*lines, _ASSISTANT]), add_bos=True), ()


def _are_parts(message: Any) -> bool:
    return isinstance(message, (list, tuple)) and all(isinstance(part, Mapping) for part in message)


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _itself(completion: Completion) -> Completion:
    return completion


def _reason(pending: Pending[Completion]) -> str | None:
    finish = pending.handle.output.finish
    return None if finish is None else finish.reason
