"""``ExLlamaV2DynamicJob``: a text that a dynamic generator is asked for."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from constrain.arguments import check_count, refused
from constrain.errors import BudgetError, GenerationError
from constrain.filters import ExLlamaV2EngineFilter
from constrain.filters.combined import filters_of
from constrain.filters.stack import FilterStack
from constrain.generator.decoding import Decoding
from constrain.generator.outcome import Outcome, Request
from constrain.generator.pages import PageTable
from constrain.generator.prompt import can_heal, check_ids, embeddings_of
from constrain.generator.results import end_keys, piece_keys, token_ids
from constrain.generator.sequence import JobSequence
from constrain.generator.settings import Settings, check_settings

if TYPE_CHECKING:
    from constrain.model import ExLlamaV2MMEmbedding
    from constrain.tokenizer import ExLlamaV2Tokenizer


_SEED_BITS = 63


class ExLlamaV2DynamicJob:
    """A text to be generated. Made with what is wanted, then given to ``enqueue`` of a generator, once.

    Attributes:
        sequences: the prompt and what follows it, with ``input_ids`` and ``sequence_ids``; two of them for guidance.
        full_completion: text released so far.
        serial_number: its number among the jobs of its generator; ``None`` before ``enqueue``.
        identifier, gen_settings, max_new_tokens, min_new_tokens, max_skips: as given.
        is_finished: whether it has ended.
        skips: how many jobs have overtaken it.
        accepted_draft_tokens, rejected_draft_tokens: drafted tokens that were, and were not, what was drawn.
    """

    #: Whether stop strings end a text before ``min_new_tokens``, too.
    early_stop_strings = False
    #: Whether the logits reported are those of the model, before the sampler changes them.
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
        """Say what is wanted.

        Args:
            input_ids: the prompt, int64 of shape (1, n). A list of two, with the condition and without it, for
                classifier-free guidance, which also needs ``cfg_scale`` in the settings.
            max_new_tokens: after so many tokens the text ends.
            min_new_tokens: no stop condition ends the text before so many.
            max_skips: how often other jobs, which need less room, may overtake this one; ``None``: any number of times.
            gen_settings: how tokens are drawn, read anew for each; by default ``Settings()``.
            seed: makes the draws reproducible, whatever else runs.
            stop_conditions: ids and strings that end the text; none by default, not even the end of the sequence.
            decode_special_tokens: show special tokens in the text.
            return_top_tokens: report so many most likely tokens for each.
            return_logits: report the logits behind each token.
            return_probs: report the probability of each token.
            filters: constraints on the text.
            filter_prefer_eos: end the text as soon as the filters allow it.
            token_healing: generate the last token of the prompt anew, together with what follows. Ignored where a
                prompt has a single token, or its last token is special or a part of a character.
            identifier: anything; part of every result of the job.
            banned_strings: strings that must not occur in the text, in whatever case: it is rewound to before one.
            embeddings: what ids of the prompt from ``EMBEDDING_INDEX`` on stand for.
            trigger: a string: the text is free until it has occurred, and the filters hold for what follows it.
            complete_within_budget: let filters of JSON Schemas, regular expressions and grammars allow only tokens
                after which their text can be completed in ``max_new_tokens``.
            kwargs: ignored, for compatibility.

        Raises:
            ArgumentError: an argument is of the wrong type, or out of its bounds.
            GenerationError: there is no prompt, or the arguments do not fit together.
        """
        prompts: list[Any] = list(input_ids) if isinstance(input_ids, (list, tuple)) else [input_ids]
        if not prompts or any(isinstance(ids, torch.Tensor) and ids.numel() == 0 for ids in prompts):
            raise GenerationError("Input IDs cannot be empty.")
        for ids in prompts:
            check_ids(ids)
            if ids.shape[0] != 1:
                raise GenerationError(f"Input IDs must have shape (1, n), not {tuple(ids.shape)}")
        check_count("max_new_tokens", max_new_tokens, 1)
        for name, number, least in (("max_skips", max_skips, 0), ("seed", seed, None)):
            if number is not None:
                check_count(name, number, least)
        self.gen_settings = Settings() if gen_settings is None else gen_settings
        check_settings(self.gen_settings)
        if (self.gen_settings.cfg_scale is not None) != (len(prompts) == 2) or len(prompts) > 2:
            raise GenerationError(
                f"guidance takes two prompts and cfg_scale, not {len(prompts)} and {self.gen_settings.cfg_scale}"
            )
        self.max_new_tokens, self.min_new_tokens, self.max_skips = max_new_tokens, min_new_tokens, max_skips
        self.identifier = identifier
        self.embeddings = embeddings_of(embeddings)
        self.sequences = [JobSequence(ids) for ids in prompts]
        self.stop_tokens, self.stop_strings = split_stop_conditions(stop_conditions)
        self.serial_number: int | None = None
        self.full_completion = ""
        self.is_finished = False
        self.skips = 0
        self.accepted_draft_tokens = self.rejected_draft_tokens = 0
        self._text: Decoding | None = None
        self.return_probs = return_probs
        self._filters = filters_of(filters)
        self._healing = token_healing
        self._random = random.Random(seed).random
        self._seed = random.getrandbits(_SEED_BITS) if seed is None else seed % 2**_SEED_BITS
        self._times: dict[str, float] = {}
        self._options: dict[str, Any] = {
            "banned_strings": () if banned_strings is None else banned_strings,
            "decode_special_tokens": decode_special_tokens,
            "return_top_tokens": return_top_tokens,
            "return_logits": return_logits,
            "prefer_eos": filter_prefer_eos,
            "within_budget": complete_within_budget,
            "trigger": trigger if self._filters else None,
        }

    @property
    def new_tokens(self) -> int:
        """Tokens generated so far, a stop token included."""
        return 0 if self._text is None else self._text.new_tokens

    @property
    def text(self) -> Decoding:
        """The text in the making, once it was enqueued."""
        assert self._text is not None
        return self._text

    @property
    def ready(self) -> bool:
        """Whether the next token can be drawn."""
        return all(sequence.ready for sequence in self.sequences)

    @property
    def running(self) -> bool:
        """Whether it has pages."""
        return bool(self.sequences[0].pages)

    @property
    def copied(self) -> bool:
        """Whether a part of the prompt was found in a page that is not a page of its own."""
        return any(sequence.copied for sequence in self.sequences)

    def start(self, table: PageTable) -> bool:
        """Take pages; returns false, and takes none, where there are not enough."""
        for number, sequence in enumerate(self.sequences):
            if not sequence.start(table, self.max_new_tokens):
                for other in self.sequences[:number]:
                    other.stop(table)
                return False
        return True

    def stop(self, table: PageTable) -> None:
        """Give back the pages, and let go of what runs in the background."""
        for sequence in self.sequences:
            sequence.stop(table)
        self.text.finish()

    def prepare(self, tokenizer: ExLlamaV2Tokenizer, width: int, time_limit: float | None, serial_number: int) -> None:
        """Make ready to run.

        Args:
            tokenizer: of the model.
            width: number of logits.
            time_limit: seconds that a filter of somebody else's may take for a token.
            serial_number: of the job.

        Raises:
            GenerationError: the job was enqueued before, or its trigger is empty.
            BudgetError: no text that a filter allows has as few tokens as the job.
            FilterError: an object is no filter.
        """
        if self.serial_number is not None:
            raise GenerationError("a job can be enqueued only once")
        if self._options["within_budget"] and self._options["trigger"] is None:
            for each in self._filters:
                check_budget(each, self.max_new_tokens)
        prefix = self._split_for_healing(tokenizer)
        request = Request(
            settings=self.gen_settings,
            random=self._random,
            seed=self._seed,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            early_stop_strings=self.early_stop_strings,
            stop_tokens=self.stop_tokens,
            stop_strings=self.stop_strings,
            raw_logits=self.raw_logits,
            filters=FilterStack(self._filters, tokenizer, width, time_limit) if self._filters else None,
            **self._options,
        )
        self._text = Decoding(request, tokenizer, [each.sequence_ids for each in self.sequences], prefix)
        self.serial_number = serial_number
        self.mark("enqueued")

    def mark(self, event: str) -> None:
        """Note when something happened for the first time."""
        self._times.setdefault(event, monotonic())

    def result(self, stage: str, **keys: Any) -> dict[str, Any]:
        """A result of this job."""
        base = {"job": self, "stage": stage, "eos": False, "serial": self.serial_number, **keys}
        return base if self.identifier is None else {**base, "identifier": self.identifier}

    def progress(self) -> dict[str, Any]:
        """The result after a part of the prompt."""
        done, total = (sum(each) for each in zip(*((s.position, s.prompt_end) for s in self.sequences), strict=True))
        return self.result("prefill", curr_progress=done, max_progress=total)

    def report(
        self, outcome: Outcome, ids: torch.Tensor, tokenizer: ExLlamaV2Tokenizer, drafting: bool
    ) -> dict[str, Any]:
        """The result after a token; ``ids``: those of the tokens that were released."""
        self.full_completion += outcome.released.text
        result = self.result("streaming", **piece_keys(outcome.released, ids, self.return_probs))
        if outcome.suppressed is not None:
            result["suppressed_text"] = outcome.suppressed.text
            result["suppressed_tokens"] = token_ids(outcome.suppressed.tokens)
        if outcome.end is not None:
            self.is_finished = True
            result["eos"] = True
            result |= end_keys(outcome.end, self.return_probs, tokenizer.get_id_to_piece_list(True))
            result |= self._summary()
            if drafting:
                result["accepted_draft_tokens"] = self.accepted_draft_tokens
                result["rejected_draft_tokens"] = self.rejected_draft_tokens
        return result

    def _summary(self) -> dict[str, Any]:
        now, count = monotonic(), len(self.sequences)
        prefill = self._times.get("prefill", now)
        first = self._times.get("first_token", now)
        return {
            "full_completion": self.full_completion,
            "new_tokens": self.new_tokens,
            "prompt_tokens": len(self.sequences[0].input_ids),
            "time_enqueued": prefill - self._times["enqueued"],
            "time_prefill": first - prefill,
            "time_generate": now - first,
            "cached_pages": sum(sequence.cached_pages for sequence in self.sequences) // count,
            "cached_tokens": sum(sequence.cached_tokens for sequence in self.sequences) // count,
        }

    def _split_for_healing(self, tokenizer: ExLlamaV2Tokenizer) -> torch.Tensor | None:
        """Take the last token off each prompt, if it is to be generated anew; int64 of shape (sequences, 1)."""
        if not self._healing or min(len(sequence.input_ids) for sequence in self.sequences) < 2:
            return None
        last = torch.cat([sequence.input_ids.torch()[:, -1:] for sequence in self.sequences])
        if not all(can_heal(tokenizer, int(token)) for token in last):
            return None
        for sequence in self.sequences:
            sequence.sequence_ids.truncate(len(sequence.input_ids) - 1)
        return last


def split_stop_conditions(conditions: Collection[Any] | None) -> tuple[frozenset[int], list[str]]:
    """The ids and the strings among stop conditions.

    Raises:
        ArgumentError: something is neither, or an empty string.
    """
    if conditions is not None and not isinstance(conditions, (list, tuple, set, frozenset)):
        raise refused("stop conditions", conditions, "a list, tuple or set")
    tokens = frozenset(each for each in conditions or () if isinstance(each, int))
    strings = [each for each in conditions or () if isinstance(each, str)]
    for each in conditions or ():
        if not isinstance(each, (int, str)) or each == "":
            raise refused("a stop condition", each, "an id, or a text that is not empty")
    return tokens, strings


def check_budget(candidate: Any, max_new_tokens: int) -> None:
    """Raise :class:`BudgetError` where no text that a filter allows has so few tokens."""
    if isinstance(candidate, ExLlamaV2EngineFilter):
        # The token after the end need not fit.
        needed = candidate.grammar.matcher().min_tokens() - 1
        if needed > max_new_tokens:
            raise BudgetError(max_new_tokens, needed)
