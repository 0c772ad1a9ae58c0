"""``ExLlamaV2StreamingGenerator``: one text, a piece at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from constrain.arguments import check_count, refused
from constrain.errors import GenerationError
from constrain.filters.combined import filters_of
from constrain.filters.stack import FilterStack
from constrain.generator.base import ExLlamaV2BaseGenerator
from constrain.generator.decoding import Decoding
from constrain.generator.draft import Drafter, ModelDrafter, NgramDrafter
from constrain.generator.job import check_budget, split_stop_conditions
from constrain.generator.limits import check_event
from constrain.generator.outcome import Drawn, Outcome, Request
from constrain.generator.pages import PageTable
from constrain.generator.prompt import can_heal, check_ids, prepend_embeddings
from constrain.generator.results import token_ids
from constrain.generator.sequence import JobSequence
from constrain.generator.settings import Settings, check_settings
from constrain.generator.stream import Stream
from constrain.model import ExLlamaV2Lora

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2, ExLlamaV2CacheBase, ExLlamaV2MMEmbedding
    from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2StreamingGenerator(ExLlamaV2BaseGenerator):
    """Generates one text and hands it out as it comes: ``begin_stream_ex`` once, then ``stream_ex`` until ``eos``.

    What a prompt has in common with the text before it is not computed again.

    Attributes:
        stop_tokens, stop_strings: what ends a text; the end of the sequence, unless they are set.
        speculative_ngram: guess tokens by what occurred before in the text.
        speculative_ngram_min, speculative_ngram_threshold: accepted for compatibility.
        speculative_ngram_max, speculative_ngram_max_inf: most tokens that are compared for that, and guessed.
        num_speculative_tokens: tokens that the draft model guesses at a time.
        speculative_prob_threshold: it stops guessing at a token that is less likely than this.
        total_tokens: tokens drawn.
    """

    #: Whether a call of ``stream_ex`` draws a single token, however many are ready.
    one_token_per_call = False
    #: Whether the logits reported are those of the model, before the sampler changes them.
    raw_logits = True

    def __init__(
        self,
        model: ExLlamaV2,
        cache: ExLlamaV2CacheBase,
        tokenizer: ExLlamaV2Tokenizer,
        draft_model: ExLlamaV2 | None = None,
        draft_cache: ExLlamaV2CacheBase | None = None,
        num_speculative_tokens: int = 5,
    ) -> None:
        """Make a generator.

        Args:
            model: what it runs on.
            cache: bounds the length of the text; has two rows for guidance.
            tokenizer: of the model.
            draft_model: a smaller model with the same vocabulary, which guesses tokens.
            draft_cache: its cache; made, if left out, as long as the other.
            num_speculative_tokens: tokens that are guessed at a time.

        Raises:
            GenerationError: the draft cache has several rows.
        """
        super().__init__(model, cache, tokenizer)
        self.stop_tokens: set[int] = set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        self.stop_strings: set[str] = set()
        self.num_speculative_tokens = num_speculative_tokens
        self.speculative_prob_threshold = 0.25
        self.speculative_ngram = False
        self.speculative_ngram_min, self.speculative_ngram_threshold = 1, 1
        self.speculative_ngram_max, self.speculative_ngram_max_inf = 5, 3
        self.draft_model = draft_model
        self.draft_cache = draft_cache
        if draft_model is not None and draft_cache is None:
            self.draft_cache = type(cache)(draft_model, max_seq_len=cache.max_seq_len)
        self.total_tokens = 0
        self._counted = 0, 0
        self._preloaded: list[int] = []
        self._stream: Stream | None = None
        self._last_ids: torch.Tensor | None = None
        self._conditions: tuple[Any, ...] | None = None
        self._wanted: tuple[bool, int, bool] = (False, 0, False)

    @property
    def total_draft_tokens(self) -> int:
        """Tokens guessed."""
        return self._counted[0] + (self._stream.drafted if self._stream else 0)

    @property
    def accepted_draft_tokens(self) -> int:
        """Tokens guessed right."""
        return self._counted[1] + (self._stream.accepted if self._stream else 0)

    def set_stop_conditions(self, stop_conditions: Collection[int | str]) -> None:
        """End texts, from the next one on, at these ids and strings, and at no others.

        Raises:
            ArgumentError: something is neither an id nor a string.
        """
        if stop_conditions is None:
            raise refused("stop conditions", None, "a list, tuple or set")
        tokens, strings = split_stop_conditions(stop_conditions)
        self.stop_tokens, self.stop_strings = set(tokens), set(strings)

    def ngram_preload(self, input_ids: torch.Tensor | Sequence[int]) -> None:
        """Guess by these tokens too, where ``speculative_ngram`` is set."""
        self._preloaded = input_ids.flatten().tolist() if isinstance(input_ids, torch.Tensor) else list(input_ids)

    def reset_sd_stats(self) -> None:
        """Count drawn and guessed tokens from zero."""
        stream = self._stream
        self.total_tokens = 0
        self._counted = (0, 0) if stream is None else (-stream.drafted, -stream.accepted)

    def get_sd_stats(self) -> tuple[float, float, int, int, int]:
        """Shares of right guesses among all tokens and among guesses; numbers of tokens, guesses, and right guesses."""
        total, drafted, accepted = self.total_tokens, self.total_draft_tokens, self.accepted_draft_tokens
        return accepted / total if total else 0.0, accepted / drafted if drafted else 0.0, total, drafted, accepted

    def begin_stream(
        self,
        input_ids: torch.Tensor,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        input_mask: torch.Tensor | None = None,
        position_offsets: torch.Tensor | None = None,
        abort_event: threading.Event | None = None,
        **kwargs: Any,
    ) -> None:
        """:meth:`begin_stream_ex` with what there was before it."""
        self.begin_stream_ex(
            input_ids,
            gen_settings,
            token_healing,
            loras,
            input_mask,
            position_offsets,
            abort_event=abort_event,
            **kwargs,
        )

    def begin_stream_ex(
        self,
        input_ids: torch.Tensor,
        gen_settings: Settings,
        token_healing: bool = False,
        loras: ExLlamaV2Lora | list[ExLlamaV2Lora] | None = None,
        input_mask: torch.Tensor | None = None,
        position_offsets: torch.Tensor | None = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        abort_event: threading.Event | None = None,
        input_embeddings: torch.Tensor | None = None,
        decode_special_tokens: bool = False,
        banned_strings: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        max_new_tokens: int | None = None,
        trigger: str | None = None,
        complete_within_budget: bool = True,
        **kwargs: Any,
    ) -> None:
        """Begin a text: take a prompt through the model.

        Args:
            input_ids: int64 of shape (1, n); (2, n) for guidance, with the condition and without it, which also needs
                ``cfg_scale`` in the settings.
            gen_settings: how tokens are drawn, read anew for each.
            token_healing: generate the last token of the prompt anew, together with what follows. Ignored where the
                prompt has a single token, or its last token is special or a part of a character.
            loras: adapters to apply.
            input_mask: added to the scores of key positions; see :meth:`ExLlamaV2.forward`.
            position_offsets: added to the positions of each row.
            return_probabilities: report the probability of each token.
            return_top_tokens: report so many most likely tokens for each.
            return_logits: report the logits behind each token.
            abort_event: set it (from another thread) to end early; then the next call of ``stream_ex`` is the last.
            input_embeddings: of shape (rows, n, hidden size), put before the prompt.
            decode_special_tokens: show special tokens in the text.
            banned_strings: strings that must not occur in the text, in whatever case: it is rewound to before one.
            filters: constraints on the text.
            filter_prefer_eos: end the text as soon as the filters allow it.
            max_new_tokens: after so many tokens the text ends; it ends with the context in any case.
            trigger: a string: the text is free until it has occurred, and the filters hold for what follows it.
            complete_within_budget: let filters of JSON Schemas, regular expressions and grammars allow only tokens
                after which their text can be completed in ``max_new_tokens``, where that is given.
            kwargs: ignored, for compatibility.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GenerationError: the arguments do not fit together, or not into model and cache.
            BudgetError: no text that a filter allows has as few tokens as ``max_new_tokens``.
        """
        check_ids(input_ids)
        check_settings(gen_settings)
        if max_new_tokens is not None:
            check_count("max_new_tokens", max_new_tokens, 1)
        check_event(abort_event)
        constraints = filters_of(filters)
        lora_list = ExLlamaV2Lora.listed(loras)
        self.abort_event = abort_event
        if self._stream is not None:
            self._stream.text.finish()
        rows = input_ids.shape[0]
        if rows != (1 if gen_settings.cfg_scale is None else 2):
            raise GenerationError(f"{rows} prompts: there must be one, or with cfg_scale two")
        embeddings: list[ExLlamaV2MMEmbedding] = []
        if input_embeddings is not None:
            input_ids, embeddings = prepend_embeddings(self.model, input_ids, input_embeddings)
        prefix = None
        if token_healing and input_ids.shape[1] > 1 and all(can_heal(self.tokenizer, int(t)) for t in input_ids[:, -1]):
            input_ids, prefix = input_ids[:, :-1], input_ids[:, -1:]
        within_budget = complete_within_budget and max_new_tokens is not None
        if within_budget and trigger is None:
            for each in constraints:
                check_budget(each, max_new_tokens or 0)
        room = min(self.model.config.max_seq_len, self.cache.max_seq_len) - input_ids.shape[1]
        request = Request(
            settings=gen_settings,
            random=random.random,
            max_new_tokens=room if max_new_tokens is None else min(room, max_new_tokens),
            stop_tokens=frozenset(self.stop_tokens),
            stop_strings=[*self.stop_strings],
            banned_strings=() if banned_strings is None else banned_strings,
            decode_special_tokens=decode_special_tokens,
            return_top_tokens=return_top_tokens,
            return_logits=return_logits,
            raw_logits=self.raw_logits,
            filters=FilterStack(constraints, self.tokenizer, self.model.config.padded_vocab_size)
            if constraints
            else None,
            prefer_eos=filter_prefer_eos,
            filters_see_healing=True,
            within_budget=within_budget,
            trigger=trigger if constraints else None,
        )
        forward = partial(
            self._forward,
            loras=lora_list,
            input_mask=input_mask,
            position_offsets=position_offsets,
            abort_event=abort_event,
            indexed_embeddings=embeddings or None,
        )
        plain = input_mask is None and position_offsets is None and not embeddings
        sequences = [JobSequence(row.unsqueeze(0)) for row in input_ids]
        self._rewind_to_common(input_ids, sequences[0], (rows, *lora_list) if plain else None)
        text = Decoding(request, self.tokenizer, [each.sequence_ids for each in sequences], prefix)
        drafter, count = (None, 0) if embeddings else self._drafting(sequences[0])
        self._counted = self.total_draft_tokens, self.accepted_draft_tokens
        self._stream = Stream(text, sequences, self.cache, forward, self._pool, drafter, count)
        self._stream.prefill()
        self._wanted = return_probabilities, return_top_tokens, return_logits
        self.sequence_ids = self._last_ids = self._stream.ids

    def _forward(self, ids: torch.Tensor, fill_only: bool, **options: Any) -> torch.Tensor | None:
        logits: torch.Tensor | None = self.model.forward(ids, self.cache, preprocess_only=fill_only, **options)
        return logits

    def stream_ex(self, ban_tokens: torch.Tensor | Sequence[int] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Go on with the text.

        Args:
            ban_tokens: ids that are not drawn in this call.
            kwargs: ignored, for compatibility.

        Returns:
            A dictionary, for what one or more tokens led to:

            - ``chunk``: text that was released, perhaps none;
            - ``eos``: whether the text has ended, with ``eos_reason`` as in the results of the dynamic generator, or
              ``"aborted"``;
            - ``chunk_token_ids``: its tokens, int64 of shape (1, n); none in the call in which a stop condition ends
              the text;
            - ``probs``: if asked for, their probabilities, float32 of shape (n,);
            - ``top_tokens``: if asked for, pairs of id and probability, for each token as many as were asked for, the
              most likely first;
            - ``logits``: if asked for, float32 of shape (1, n, padded vocabulary);
            - ``suppressed``: a text with a banned string, which was taken back.

            A call draws several tokens where they were guessed right, or filters leave no choice about them.

        Raises:
            ArgumentError: ``ban_tokens`` are no ids.
            GenerationError: no text was begun.
            FilterError: a filter failed; :class:`DeadEnd` where the filters allow no token.
        """
        stream = self._stream
        if stream is None:
            raise GenerationError("call begin_stream_ex before stream_ex")
        if self._aborted():
            return self._result([], aborted=True)
        blocked = [] if ban_tokens is None else self._banned(ban_tokens)
        healing = stream.text.healing
        outcomes = [stream.draw(blocked)]
        if healing and outcomes[0] is not None and stream.text.end is None:
            outcomes.append(stream.draw(blocked))
        while stream.more and not self.one_token_per_call:
            outcomes.append(stream.draw(blocked))
        drawn = [outcome for outcome in outcomes if outcome is not None]
        self.total_tokens += len(drawn)
        self.sequence_ids = self._last_ids = stream.ids
        return self._result(drawn, aborted=len(drawn) < len(outcomes))

    def stream(self, ban_tokens: torch.Tensor | Sequence[int] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """:meth:`stream_ex` as a tuple: chunk, eos, token ids, and if asked for probabilities and logits."""
        result = self.stream_ex(ban_tokens)
        if "logits" in result:
            result["logits"] = result["logits"][0]
        return tuple(result[key] for key in ("chunk", "eos", "chunk_token_ids", "probs", "logits") if key in result)

    def _banned(self, tokens: torch.Tensor | Sequence[int]) -> list[int]:
        if not isinstance(tokens, (torch.Tensor, list, tuple)):
            raise refused("ban_tokens", tokens, "a list of ids")
        ids: list[int] = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else list(tokens)
        for token in ids:
            check_count("a token of ban_tokens", token, 0, self.model.config.padded_vocab_size - 1)
        return ids

    def _result(self, outcomes: list[Outcome], aborted: bool) -> dict[str, Any]:
        """The result of a call that led to these outcomes."""
        end = next((outcome.end for outcome in outcomes if outcome.end is not None), None)
        if end is not None and end.error is not None:
            raise end.error
        chunk = "".join(outcome.released.text for outcome in outcomes)
        if end is not None and end.reason == "stop_token":
            chunk += end.held.text
        stopped = end is not None and end.reason in ("stop_token", "stop_string")
        tokens = [t for outcome in outcomes if not (stopped and outcome.end) for t in outcome.released.tokens]
        result = {"chunk": chunk, "eos": aborted or end is not None, "chunk_token_ids": token_ids(tokens)}
        result |= self._token_keys(tokens)
        suppressed = [outcome.suppressed.text for outcome in outcomes if outcome.suppressed is not None]
        if suppressed:
            result["suppressed"] = suppressed[0]
        if result["eos"]:
            result["eos_reason"] = "aborted" if end is None else end.reason
        return result

    def _token_keys(self, tokens: list[Drawn]) -> dict[str, Any]:
        """What was asked for of released tokens."""
        probs, top, logits = self._wanted
        result: dict[str, Any] = {}
        if probs:
            result["probs"] = torch.tensor([token.prob for token in tokens])
        if top:
            pairs = [zip(*token.top, strict=True) for token in tokens if token.top is not None]
            result["top_tokens"] = [(int(token), float(prob)) for pair in pairs for token, prob in pair]
        if logits:
            width = self.model.config.padded_vocab_size
            rows = [token.logits for token in tokens if token.logits is not None]
            result["logits"] = torch.stack(rows)[None] if rows else torch.empty(1, 0, width)
        return result

    def _drafting(self, sequence: JobSequence) -> tuple[Drafter | None, int]:
        """What guesses tokens for a sequence, and how many."""
        if self.draft_model is not None and self.draft_cache is not None:
            table = PageTable([self.draft_cache], self.draft_cache.max_seq_len)
            sequence.pages = table.pages
            least = self.speculative_prob_threshold
            drafter = ModelDrafter(
                self.draft_model, self.draft_cache, table, self.model.config.padded_vocab_size, least
            )
            return drafter, self.num_speculative_tokens
        if not self.speculative_ngram:
            return None, 0
        ngrams = NgramDrafter(self.speculative_ngram_max)
        ngrams.preload(self._preloaded)
        return ngrams, self.speculative_ngram_max_inf

    def _rewind_to_common(self, ids: torch.Tensor, sequence: JobSequence, conditions: tuple[Any, ...] | None) -> None:
        """Keep in the caches what the new prompt has in common with the last text, if nothing else differs."""
        last, common = self._stream, 0
        unchanged = conditions is not None and conditions == self._conditions and self.sequence_ids is self._last_ids
        if last is not None and unchanged:
            width = min(len(last.sequences[0].sequence_ids), ids.shape[1] - 1, self.cache.current_seq_len)
            differs = (last.ids[:, :width] != ids[:, :width]).any(dim=0).nonzero()
            common = int(differs[0]) if len(differs) else width
            sequence.draft_position = min(last.sequences[0].draft_position, common)
        self.cache.current_seq_len = common
        self._conditions = conditions
