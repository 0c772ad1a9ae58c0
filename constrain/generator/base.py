"""The simplest generator: prompts in, texts out."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from constrain.arguments import check_count, texts_of
from constrain.errors import GenerationError
from constrain.filters import ExLlamaV2Filter
from constrain.filters.combined import filters_of
from constrain.filters.stack import FilterStack
from constrain.generator.decoding import Decoding
from constrain.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult
from constrain.generator.limits import check_event, check_parts
from constrain.generator.outcome import Outcome, Request
from constrain.generator.prompt import PromptBatch, encode_prompts, split_embeddings
from constrain.generator.sampler import ExLlamaV2Sampler
from constrain.generator.settings import Settings, check_settings
from constrain.model import ExLlamaV2Lora, SeqTensor

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2CacheBase
    from constrain.tokenizer import ExLlamaV2Tokenizer

__all__ = [
    "ExLlamaV2BaseGenerator",
    "ExLlamaV2Filter",
    "ExLlamaV2PostSamplingHook",
    "ExLlamaV2PostSamplingResult",
    "ExLlamaV2Sampler",
]

Prompt = TypeVar("Prompt", str, list[str])


class ExLlamaV2BaseGenerator:
    """Generates a batch of texts in one call.

    Attributes:
        model, cache, tokenizer: what it was made from.
        sequence_ids: the tokens of the last call, prompts included, int64 of shape (batch, n); ``None`` before.
        abort_event: the event that stops the running call, if it was given one.
    """

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, tokenizer: ExLlamaV2Tokenizer) -> None:
        check_parts(model, cache, tokenizer)
        self.model = model
        self.cache = cache
        self.tokenizer = tokenizer
        self.sequence_ids: torch.Tensor | None = None
        self.abort_event: threading.Event | None = None
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="constrain-filter")

    def warmup(self) -> None:
        """Run a tiny forward pass, so that the first real one has nothing left to initialise."""
        self.model.forward(torch.zeros((1, 2), dtype=torch.long))

    def full(self) -> bool:
        """Whether the sequence of the last call has reached the longest that the model takes."""
        return self.sequence_ids is not None and self.sequence_ids.shape[-1] >= self.model.config.max_seq_len

    @torch.inference_mode()
    def generate_simple(
        self,
        prompt: Prompt,
        gen_settings: Settings,
        num_tokens: int,
        seed: int | None = None,
        token_healing: bool = False,
        encode_special_tokens: bool = False,
        decode_special_tokens: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        stop_token: int | None = -1,
        add_bos: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: torch.Tensor | None = None,
        completion_only: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
    ) -> Prompt:
        """Generate a continuation of each prompt.

        Args:
            prompt: a prompt, or a list of prompts that run as a batch. With ``cfg_scale`` in the settings, two: with
                the condition and without it.
            gen_settings: how tokens are drawn.
            num_tokens: the most tokens to generate. Prompts that leave no room for them are cut on the left.
            seed: makes the draws reproducible; by default they follow the state of Python's ``random``.
            token_healing: generate the last token of the prompt anew, together with what follows. Ignored where a
                prompt has a single token, or its last token is special or a part of a character.
            encode_special_tokens: the text of special tokens in the prompt means these tokens.
            decode_special_tokens: show special tokens in the result.
            loras: adapters to apply.
            stop_token: id that ends a text; -1 for the tokenizer's end of sequence, ``None`` for none.
            add_bos: put the beginning-of-sequence token before the prompts.
            abort_event: set it (from another thread) to end early. It is cleared first.
            input_embeddings: of shape (batch, n, hidden size), for the place of ``{{EMBED_HERE}}`` in each prompt.
            completion_only: return the text without the prompt.
            filters: constraints on the text, for a single prompt.
            filter_prefer_eos: end the text as soon as the filters allow it.

        Returns:
            The text, or a list of texts for a list of prompts. Empty where it was aborted before the first token.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GenerationError: the arguments do not fit together, or not into model and cache.
            FilterError: a filter failed; :class:`DeadEnd` where the filters allow no token.
        """
        prompts = [prompt] if isinstance(prompt, str) else texts_of("prompt", prompt)
        check_settings(gen_settings)
        check_count("num_tokens", num_tokens)
        check_event(abort_event)
        for name, number in {"seed": seed, "stop_token": stop_token}.items():
            if number is not None:
                check_count(name, number, least=None)
        constraints = filters_of(filters)
        lora_list = ExLlamaV2Lora.listed(loras)
        self.abort_event = abort_event
        if abort_event is not None:
            abort_event.clear()
        batch = self._encode(prompts, num_tokens, add_bos, encode_special_tokens, input_embeddings)
        self._check(batch, gen_settings, constraints)

        whole_prompt, prefix_token = batch.ids, None
        if token_healing and batch.can_heal(self.tokenizer):
            batch, prefix_token = batch.split_last()
        forward = partial(
            self.model.forward,
            cache=self.cache,
            input_mask=batch.input_mask,
            position_offsets=batch.position_offsets,
            loras=lora_list,
            abort_event=abort_event,
            indexed_embeddings=list(batch.embeddings) or None,
        )
        self._gen_begin_base(batch.ids, forward)
        if self._aborted():
            return "" if isinstance(prompt, str) else [""] * len(prompts)
        stop = self.tokenizer.eos_token_id if stop_token == -1 else stop_token
        request = Request(
            settings=gen_settings,
            random=random.random if seed is None else random.Random(seed).random,
            stop_tokens=frozenset() if stop is None else frozenset({stop}),
            stop_before_hooks=True,
            filters=FilterStack(constraints, self.tokenizer, self.model.config.vocab_size) if constraints else None,
            prefer_eos=filter_prefer_eos,
            filters_see_healing=True,
        )
        texts = self._texts_of(batch.ids, request, prefix_token)
        try:
            self._decode_loop(texts, forward, num_tokens)
        finally:
            for text in texts:
                text.finish()
        lengths = self._keep(texts)
        answers = self._decode_all(batch, whole_prompt, lengths, completion_only, decode_special_tokens)
        return answers[0] if isinstance(prompt, str) else answers

    def _encode(
        self,
        prompts: list[str],
        num_tokens: int,
        add_bos: bool,
        encode_special_tokens: bool,
        input_embeddings: torch.Tensor | None,
    ) -> PromptBatch:
        limit = min(self.model.config.max_seq_len, self.cache.max_seq_len)
        if num_tokens >= limit:
            raise GenerationError(f"num_tokens={num_tokens} leaves no room for a prompt in {limit} positions")
        if not prompts:
            raise GenerationError("the list of prompts is empty")
        embeddings = [] if input_embeddings is None else split_embeddings(self.model, input_embeddings, len(prompts))
        batch = encode_prompts(self.tokenizer, prompts, add_bos, encode_special_tokens, embeddings)
        return batch.cut_left(limit - num_tokens)

    def _check(self, batch: PromptBatch, settings: Settings, filters: Sequence[Any]) -> None:
        rows = batch.ids.shape[0]
        if rows > self.cache.batch_size:
            raise GenerationError(f"{rows} prompts do not fit a cache with batch_size={self.cache.batch_size}")
        if settings.cfg_scale is not None and rows != 2:
            raise GenerationError(f"cfg_scale needs two prompts (with and without condition), not {rows}")
        if filters and rows > 1 and settings.cfg_scale is None:
            raise GenerationError(f"filters constrain a single sequence, but there are {rows} prompts")

    def _gen_begin_base(self, input_ids: torch.Tensor, forward: Callable[..., Any]) -> None:
        """Fill the cache with all of the prompt but its last token."""
        self.cache.current_seq_len = 0
        self.sequence_ids = input_ids
        if input_ids.shape[1] > 1:
            forward(input_ids[:, :-1], preprocess_only=True)

    def _texts_of(self, ids: torch.Tensor, request: Request, prefix_token: torch.Tensor | None) -> list[Decoding]:
        """The texts to be made: one for each prompt, or for guidance one for both."""
        rows = [SeqTensor.from_tensor(row.unsqueeze(0), seq_dim=-1) for row in ids]
        if request.settings.cfg_scale is not None:
            return [Decoding(request, self.tokenizer, rows, prefix_token)]
        prefixes = [None] * len(rows) if prefix_token is None else [each[None] for each in prefix_token]
        return [Decoding(request, self.tokenizer, [row], prefix) for row, prefix in zip(rows, prefixes, strict=True)]

    def _decode_loop(self, texts: Sequence[Decoding], forward: Callable[..., Any], num_tokens: int) -> None:
        """Go on with all texts, until the last of them ends or ``num_tokens`` are drawn."""
        pad = torch.tensor([[self.tokenizer.pad_token_id]])
        for _ in range(num_tokens):
            for text in (text for text in texts if text.end is None):
                _raise(text.begin() or text.look_ahead(self._pool, ()))
            last = torch.cat([row.torch()[:, -1:] for text in texts for row in text.rows])
            logits: torch.Tensor | None = forward(last, last_id_only=True)
            if logits is None or self._aborted():
                return
            parts = torch.split(logits[:, 0].float().cpu(), [len(text.rows) for text in texts])
            for text, part in zip(texts, parts, strict=True):
                if text.end is None:
                    _raise(text.step(part))
                else:
                    text.rows[0].append(pad)
            if all(text.end is not None for text in texts):
                return

    def _keep(self, texts: Sequence[Decoding]) -> torch.Tensor:
        """Put all sequences, without stop tokens, into ``sequence_ids``; return their lengths, int64 (rows,)."""
        lengths = torch.tensor([text.length for text in texts for _ in text.rows])
        ids = torch.cat([row.torch() for text in texts for row in text.rows])[:, : int(lengths.max())]
        past_end = torch.arange(ids.shape[1]) >= lengths[:, None]
        self.sequence_ids = ids.masked_fill(past_end, self.tokenizer.pad_token_id)
        return lengths

    def _decode_all(
        self,
        batch: PromptBatch,
        whole_prompt: torch.Tensor,
        lengths: torch.Tensor,
        completion_only: bool,
        decode_special_tokens: bool,
    ) -> list[str]:
        assert self.sequence_ids is not None
        decode = partial(self.tokenizer.decode, decode_special_tokens=decode_special_tokens)
        start = batch.ids.shape[1]
        healed = whole_prompt.shape[1] > start
        texts = []
        for row, prompt, pad, end in zip(
            self.sequence_ids, whole_prompt, batch.padding.tolist(), lengths.tolist(), strict=True
        ):
            if not completion_only:
                texts.append(decode(row[pad:end]))
            elif healed:
                texts.append(decode(row[pad:end])[len(decode(prompt[pad:])) :])
            else:
                texts.append(decode(row[start:end]))
        return texts

    def _aborted(self) -> bool:
        return self.abort_event is not None and self.abort_event.is_set()


def _raise(outcome: Outcome | None) -> None:
    """Raise the error, if any, that has ended a text."""
    if outcome is not None and outcome.end is not None and outcome.end.error is not None:
        raise outcome.end.error
