"""Conversations: a message in, an answer out while it is being written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from constrain.arguments import check_count, check_text, check_type
from constrain.errors import GenerationError
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler

__all__ = ["Chat"]

_USER, _ASSISTANT = "User:", "Assistant:"


class Chat:
    """A conversation with a model.

    The model's chat template writes the prompt; a model without one gets a plain transcript. What was said before stays
    in the cache between answers. Where the context is full, the oldest messages are left out.

    Attributes:
        messages: what was said, each with ``role`` (``"system"``, ``"user"``, ``"assistant"``) and ``content``.
        finish_reason: why the last answer ended: ``"stop_token"``, ``"stop_string"``, ``"end_filter"`` or
            ``"max_new_tokens"``; ``None`` where it was broken off, and before the first.
    """

    def __init__(
        self,
        generator: ExLlamaV2DynamicGenerator,
        system: str | None = None,
        settings: ExLlamaV2Sampler.Settings | None = None,
        max_new_tokens: int = 1024,
        seed: int | None = None,
    ) -> None:
        """Begin a conversation.

        Args:
            generator: holds the model, the tokenizer and the cache.
            system: what the model is told before the first message.
            settings: how tokens are drawn.
            max_new_tokens: most tokens of an answer; it gets half of the context where that is less.
            seed: makes the draws reproducible.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
        """
        check_type("generator", generator, ExLlamaV2DynamicGenerator, "an ExLlamaV2DynamicGenerator")
        if system is not None:
            check_text("system", system)
        check_count("max_new_tokens", max_new_tokens, 1)
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self.finish_reason: str | None = None
        self._generator = generator
        self._settings = ExLlamaV2Sampler.Settings() if settings is None else settings
        self._context = min(generator.max_seq_len, generator.max_total_tokens)
        self._room = min(max_new_tokens, self._context // 2)
        self._seed = seed
        tokenizer = generator.tokenizer
        self._has_template = "default" in tokenizer.chat_templates
        ends = generator.model.config.generation_config.get("eos_token_id") or []
        self._stop: list[int | str] = [*{tokenizer.eos_token_id, *ends} - {None}]
        if not self._has_template:
            self._stop.append(f"\n{_USER}")

    def reset(self) -> None:
        """Forget what was said, but for what the model was told at the beginning."""
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def answer(self, message: str, filters: Sequence[Any] = ()) -> Iterator[str]:
        """Say something, and get the answer piece by piece.

        An answer that is not taken to its end, closed or interrupted, counts as said so far.

        Args:
            message: what is said.
            filters: constraints on the answer.

        Raises:
            ArgumentError: the message is no text, or the filters are no list.
            GenerationError: the message alone leaves no room in the context.
            FilterError: a filter failed.
        """
        check_text("message", message)
        said = {"role": "user", "content": message}
        job = ExLlamaV2DynamicJob(
            self._prompt([*self.messages, said]),
            self._room,
            gen_settings=self._settings,
            seed=self._seed,
            stop_conditions=self._stop,
            filters=filters,
        )
        self.finish_reason = None
        self._generator.enqueue(job)
        self.messages.append(said)
        try:
            yield from self._texts()
        finally:
            self._generator.cancel(job)
            self.messages.append({"role": "assistant", "content": job.full_completion.strip()})

    def _texts(self) -> Iterator[str]:
        while self._generator.num_remaining_jobs():
            for result in self._generator.iterate():
                if result.get("text"):
                    yield result["text"]
                if "exception" in result:
                    raise result["exception"]
                self.finish_reason = result.get("eos_reason")

    def _prompt(self, messages: list[dict[str, str]]) -> torch.Tensor:
        """Ids of the longest end of a conversation that leaves room for an answer, int64 ``[1, n]``."""
        head = [message for message in messages if message["role"] == "system"]
        rest = [message for message in messages if message["role"] != "system"]
        # Templates expect users and assistants to take turns, so what goes are a message and its answer.
        for start in range(0, len(rest), 2):
            ids = self._encode([*head, *rest[start:]])
            if ids.shape[1] <= self._context - self._room:
                return ids
        raise GenerationError(
            f"the message has {ids.shape[1]} tokens with all that goes before it, and the context {self._context}, of "
            f"which {self._room} are for the answer"
        )

    def _encode(self, messages: list[dict[str, str]]) -> torch.Tensor:
        tokenizer = self._generator.tokenizer
        if self._has_template:
            return tokenizer.encode(tokenizer.apply_chat_template(messages), encode_special_tokens=True)
        names = {"system": "", "user": f"{_USER} ", "assistant": f"{_ASSISTANT} "}
        lines = [names[message["role"]] + message["content"] for message in messages]
        return tokenizer.encode("\n".join([*lines, _ASSISTANT]), add_bos=True)
