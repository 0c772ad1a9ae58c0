"""``ExLlamaV2DynamicJob``: a request to a dynamic generator, under the names of exllamav2."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import torch

from constrain.arguments import check_count, check_type, names_of, refused, texts_of, warn_of_misspelt
from constrain.errors import GenerationError
from constrain.filters import combine
from constrain.filters.combined import filters_of
from constrain.generator.arguments import key_of, split_stop_conditions
from constrain.generator.hooks import as_hook
from constrain.generator.prompt import embeddings_of, ids_of
from constrain.generator.results import end_keys, piece_keys, token_ids
from constrain.generator.settings import Settings, check_settings
from constrain.model import ExLlamaV2Lora, ExLlamaV2MMEmbedding
from constrain.runtime import Request, SequenceState
from constrain.runtime.cached_tokens import CachedTokens
from constrain.runtime.outputs import Finish, Update
from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2DynamicJob:
    """A request to a dynamic generator; it can be enqueued only once.

    Args:
        input_ids: the prompt, integers of shape (1, n). A list of two, with the condition and without it, for
            classifier-free guidance, which also needs ``cfg_scale`` in the settings.
        max_new_tokens: maximum number of output tokens.
        min_new_tokens: no stop condition ends the output before this number of tokens, at most ``max_new_tokens``.
        max_skips: most later jobs that may start first while this one does not fit the cache; ``None``: no limit.
        gen_settings: sampling settings, re-read at every step; by default ``Settings()``.
        seed: makes sampling reproducible, regardless of other requests in the batch.
        stop_conditions: ids and strings that end the output; none by default, not even the end-of-sequence token.
        decode_special_tokens: show special tokens in the output.
        return_top_tokens: report this number of most likely tokens at each position.
        return_logits: report the logits that each token was sampled from.
        return_probs: report the probability of each token.
        filters: constraints on the output.
        filter_prefer_eos: end the output as soon as the filters allow it.
        token_healing: replace the last prompt token by a generated one whose text begins with it. Ignored where a
            prompt has a single token, or its last token is special or a part of a character.
        identifier: any object; included in every result of the job.
        banned_strings: strings that must not occur in the output (case-insensitive): it is rolled back to before
            a match.
        embeddings: rows that prompt ids from ``EMBEDDING_INDEX`` on refer to.
        trigger: a string: the output is unconstrained until it occurs, and the filters apply to the text after it.
        complete_within_budget: mask out tokens after which a JSON Schema, regular expression or grammar could not
            be completed within ``max_new_tokens``.
        kwargs: ignored, for compatibility; a name that is similar to one of the above causes a warning.

    Attributes:
        filters: the constraints on the output.
        full_completion: output released so far.
        serial_number: serial number within its generator; ``None`` before ``enqueue``.
        identifier, gen_settings, max_new_tokens, min_new_tokens, max_skips: as given.
        is_finished: whether it has ended.

    Raises:
        ArgumentError: an argument is of the wrong type or out of range.
        GenerationError: there is no prompt, or the arguments contradict each other.
    """

    #: Whether stop strings end the output before ``min_new_tokens``, too.
    early_stop_strings = False
    #: Whether reported logits are the model's, before the sampler modifies them.
    raw_logits = True

    def __init__(
        self,
        input_ids: torch.Tensor | Sequence[torch.Tensor],
        max_new_tokens: int,
        min_new_tokens: int = 0,
        max_skips: int | None = 4,
        gen_settings: Settings | None = None,
        seed: int | None = None,
        stop_conditions: Collection[int | str] | None = None,
        decode_special_tokens: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        return_probs: bool = False,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        token_healing: bool = False,
        identifier: Any = None,
        banned_strings: Sequence[str] | None = None,
        embeddings: Sequence[ExLlamaV2MMEmbedding] | None = None,
        trigger: str | None = None,
        complete_within_budget: bool = True,
        **kwargs: Any,
    ) -> None:
        warn_of_misspelt(kwargs, names_of(ExLlamaV2DynamicJob.__init__))
        prompts = _prompts_of(input_ids)
        check_count("max_new_tokens", max_new_tokens, 1)
        check_count("min_new_tokens", min_new_tokens, 0, max_new_tokens)
        if max_skips is not None:
            check_count("max_skips", max_skips)
        self.gen_settings = Settings() if gen_settings is None else gen_settings
        check_settings(self.gen_settings)
        _check_guidance(self.gen_settings, len(prompts))
        self.max_new_tokens, self.min_new_tokens, self.max_skips = max_new_tokens, min_new_tokens, max_skips
        self.identifier = identifier
        self._rows = [CachedTokens(ids) for ids in prompts]
        stop_tokens, stop_strings = split_stop_conditions(stop_conditions)
        self.serial_number: int | None = None
        self.full_completion = ""
        self.is_finished = False
        self.return_probs = return_probs
        self.filters = filters_of(filters)
        self._sequence: SequenceState | None = None
        self._options: dict[str, Any] = {
            "seed": key_of(seed),
            "heal": token_healing,
            "stop_tokens": stop_tokens,
            "stop_strings": stop_strings,
            "embeddings": embeddings_of(embeddings),
            "banned_strings": _banned(banned_strings),
            "decode_special_tokens": decode_special_tokens,
            "return_top_tokens": return_top_tokens,
            "return_logits": return_logits,
            "prefer_eos": filter_prefer_eos,
            "within_budget": complete_within_budget,
            "trigger": trigger if self.filters else None,
        }

    @property
    def sequences(self) -> list[CachedTokens]:
        """Tokens of the prompt and the output, as ``input_ids`` and ``sequence_ids``; two entries under guidance."""
        return self._rows if self._sequence is None else self._sequence.rows

    @property
    def sequence(self) -> SequenceState:
        """State of the sequence in the runtime.

        Raises:
            GenerationError: the job has not been enqueued.
        """
        if self._sequence is None:
            raise GenerationError("the job has no sequence before a generator has enqueued it")
        return self._sequence

    @property
    def new_tokens(self) -> int:
        """Number of tokens generated so far, including a stop token."""
        return 0 if self._sequence is None else self._sequence.new_tokens

    @property
    def skips(self) -> int:
        """Number of jobs that were scheduled ahead of it."""
        return 0 if self._sequence is None else self._sequence.skips

    @property
    def accepted_draft_tokens(self) -> int:
        """Number of accepted draft tokens."""
        return 0 if self._sequence is None else self._sequence.accepted_draft_tokens

    @property
    def rejected_draft_tokens(self) -> int:
        """Number of rejected draft tokens."""
        return 0 if self._sequence is None else self._sequence.rejected_draft_tokens

    def request(
        self,
        tokenizer: ExLlamaV2Tokenizer,
        width: int,
        loras: Sequence[ExLlamaV2Lora] = (),
        time_limit: float | None = None,
        **fields: Any,
    ) -> Request:
        """Build the request to the runtime.

        Args:
            tokenizer, width: of the model, and its number of logits.
            time_limit: seconds that a custom filter may take per token.
            fields: fields of the request that differ.

        Raises:
            ArgumentError: ``return_top_tokens`` exceeds the vocabulary size, or a stop condition is no id of the model.
            GenerationError: the job was enqueued before, or the shape of the bias differs from that of the logits.
            FilterError: an entry of ``filters`` is not a filter.
        """
        if self._sequence is not None:
            raise GenerationError("a job can be enqueued only once")
        check_count("return_top_tokens", self._options["return_top_tokens"], maximum=tokenizer.get_vocab_size())
        for token in self._options["stop_tokens"]:
            check_count("the id of a stop condition", token, 0, width - 1)
        request = Request(
            prompt=[row.input_ids.torch() for row in self._rows],
            sampling=self.gen_settings.params(tokenizer, width),
            constraint=combine(self.filters, tokenizer, width, time_limit) if self.filters else None,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            early_stop_strings=self.early_stop_strings,
            drop_held_text=not self.filters,  # what a constraint has made complete stays so
            raw_logits=self.raw_logits,
            hook=as_hook(self.gen_settings),
            loras=tuple(loras),
            max_skips=self.max_skips,
            **self._options,
        )
        return replace(request, **fields)

    def attach(self, sequence: SequenceState) -> None:
        """Attach the sequence that the runtime created for this job."""
        self._sequence, self.serial_number = sequence, sequence.serial

    def refresh(self, tokenizer: ExLlamaV2Tokenizer, width: int) -> None:
        """Update the sampling parameters of the sequence from the current settings; Mirostat state is preserved.

        Raises:
            ArgumentError, GenerationError: the settings have become invalid.
        """
        sequence = self.sequence
        check_type("gen_settings", self.gen_settings, Settings, "ExLlamaV2Sampler.Settings")
        _check_guidance(self.gen_settings, len(self._rows))
        sequence.sampling = self.gen_settings.params(tokenizer, width)
        if sequence.sampling.mirostat is None:
            sequence.mu = None

    def result(self, stage: str, **keys: Any) -> dict[str, Any]:
        """Build a result dictionary of this job."""
        base = {"job": self, "stage": stage, "eos": False, "serial": self.serial_number, **keys}
        return base if self.identifier is None else {**base, "identifier": self.identifier}

    def report(
        self,
        update: Update,
        ids: torch.Tensor,
        probs: torch.Tensor | None,
        tokenizer: ExLlamaV2Tokenizer,
        drafting: bool,
    ) -> dict[str, Any]:
        """Build the result after a sampled token; ``ids``, ``probs``: those of the released tokens, of shape (1, n)."""
        self.full_completion += update.released.text
        result = self.result("streaming", **piece_keys(update.released, ids, probs if self.return_probs else None))
        if update.suppressed is not None:
            result["suppressed_text"] = update.suppressed.text
            result["suppressed_tokens"] = token_ids(update.suppressed.tokens)
        if update.finish is not None:
            self.is_finished = True
            result["eos"] = True
            result |= end_keys(update.finish, self.return_probs, tokenizer.get_id_to_piece_list(True))
            result |= self._summary()
            if drafting:
                result["accepted_draft_tokens"] = self.accepted_draft_tokens
                result["rejected_draft_tokens"] = self.rejected_draft_tokens
        return result

    def failed(self, error: Exception, tokenizer: ExLlamaV2Tokenizer, drafting: bool) -> dict[str, Any]:
        """Build the result of a job that an error has ended, between two tokens."""
        return self.report(Update(finish=Finish("error", error=error)), token_ids([]), None, tokenizer, drafting)

    def _summary(self) -> dict[str, Any]:
        rows, times = self.sequence.rows, self.sequence.times
        now = monotonic()
        started = times.get("started", now)
        first = times.get("first_token", now)
        return {
            "full_completion": self.full_completion,
            "new_tokens": self.new_tokens,
            "prompt_tokens": rows[0].prompt_length,
            "time_enqueued": started - times["enqueued"],
            "time_prefill": first - started,
            "time_generate": now - first,
            "cached_pages": sum(row.cached_pages for row in rows) // len(rows),
            "cached_tokens": sum(row.cached_tokens for row in rows) // len(rows),
        }


def _prompts_of(input_ids: Any) -> list[torch.Tensor]:
    """Return the prompts of a job, each int64 of shape (1, n)."""
    prompts: list[Any] = list(input_ids) if isinstance(input_ids, (list, tuple)) else [input_ids]
    if not prompts or any(isinstance(ids, torch.Tensor) and ids.numel() == 0 for ids in prompts):
        raise GenerationError("Input IDs cannot be empty.")
    found = [ids_of(ids) for ids in prompts]
    for ids in found:
        if ids.shape[0] != 1:
            raise GenerationError(f"Input IDs must have shape (1, n), not {tuple(ids.shape)}")
    return found


def _check_guidance(settings: Settings, num_prompts: int) -> None:
    """Raise :class:`GenerationError` unless there are two prompts with, or one without ``cfg_scale``."""
    if (settings.cfg_scale is not None) != (num_prompts == 2) or num_prompts > 2:
        raise GenerationError(f"guidance takes two prompts and cfg_scale, not {num_prompts} and {settings.cfg_scale}")


def _banned(strings: Sequence[str] | None) -> list[str]:
    """Return banned strings as a list; an empty one, which occurs in every text, is refused."""
    banned = [] if strings is None else texts_of("banned_strings", strings)
    if "" in banned:
        raise refused("banned_strings", banned, "texts that are not empty")
    return banned
