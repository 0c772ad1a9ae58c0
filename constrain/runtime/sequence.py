"""State of one sequence: its tokens and output, its constraint and next mask, and why it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from time import monotonic
from typing import Any

import torch

from constrain.errors import ConstrainError, DeadEnd, FilterError, GenerationError, NoTokenLeft
from constrain.filters.masks import TokenMask, exclude, intersect, mask_of
from constrain.runtime.cached_tokens import CachedTokens
from constrain.runtime.constraints import SequenceConstraint
from constrain.runtime.detokenizer import Detokenizer
from constrain.runtime.mask_batch import MaskBatch
from constrain.runtime.outputs import Finish, Piece, SampledToken, Update
from constrain.runtime.request import PostSamplingHook, Request
from constrain.runtime.smc.lineage import Lineage
from constrain.runtime.stop_strings import Banned, Stop, StopStringMatcher
from constrain.runtime.trigger import Trigger
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Number of times that tokens are taken back to find an output without banned strings.
_MAX_RETRIES = 256


class SequenceState:
    """A sequence from its request to its end.

    Attributes:
        request: the request.
        rows: its tokens and pages; for guidance a second row, with the other prompt.
        max_new_tokens: maximum number of generated tokens.
        constraint: its constraint, with the next mask.
        sampling: sampling parameters of the next token; may be replaced between steps.
        mu: state of Mirostat; ``None``: that of the parameters.
        finish: why it ended; ``None`` before.
        last_token: the last token of the sequence.
        banned_tokens: tokens that must not be sampled next, unless no other is left.
        epoch: changes when the in-flight tokens of the sequence must be discarded.
        skips: number of later sequences that started before this one.
        serial: its number among all sequences of the runtime.
        has_handle: whether its updates go to a handle.
        times: when it was enqueued, started, and had its first token, in seconds.
        accepted_draft_tokens, rejected_draft_tokens: number of draft tokens that were accepted and rejected.
        lineage: of a particle, those with the same tokens, see :mod:`constrain.runtime.smc.particles`.
        is_complete: of a particle, whether the last token ended the sequence with its constraint complete.
    """

    def __init__(
        self, request: Request, max_new_tokens: int, tokenizer: ExLlamaV2Tokenizer, width: int, serial: int
    ) -> None:
        """Prepare a sequence, for token healing without the last token of its prompts; ``width``: number of logits."""
        self.request, self.sampling, self.serial = request, request.sampling, serial
        self.mu: float | None = None
        self.rows = [CachedTokens(ids) for ids in request.prompt]
        self._num_prompt = self._length = self.rows[0].prompt_length
        self._prefix_token: int | None = None
        if request.heal and can_heal(tokenizer, request.prompt):
            self._prefix_token = self._last_token()
            self._truncate(1)
        self.max_new_tokens = max_new_tokens
        self.finish: Finish | None = None
        self.last_token = self._last_token()
        self.banned_tokens: Sequence[int] = ()
        self.epoch = self.skips = 0
        self.times: dict[str, float] = {}
        self.accepted_draft_tokens = self.rejected_draft_tokens = 0
        self.has_handle = self.is_complete = False
        self.lineage: Lineage | None = None
        self._tokenizer, self._width = tokenizer, width
        self._start = len(self)
        self._prefix = "" if self._prefix_token is None else tokenizer.get_id_to_piece_list()[self._prefix_token]
        self._forbidden: dict[int, set[int]] = {}
        self._num_retries: int | None = None  # of the search for other ends of banned strings, once it has begun
        detokenizer = Detokenizer(tokenizer, request.decode_special_tokens)
        self._held = StopStringMatcher(detokenizer, request.stop_strings, request.banned_strings)
        trigger = None if request.trigger is None else Trigger(request.trigger, tokenizer)
        eos = tokenizer.eos_token_id if request.prefer_eos else None
        self.constraint = SequenceConstraint(request.constraint, eos, trigger)

    def __len__(self) -> int:
        """Return the number of tokens, prompt included."""
        return self._length

    @property
    def new_tokens(self) -> int:
        """Number of generated tokens; a regenerated token of the prompt (token healing) does not count."""
        return self._length - self._num_prompt

    @property
    def num_uncommitted(self) -> int:
        """Number of last tokens that may still be removed."""
        return len(self._held.tokens) if self.request.banned_strings else 0

    @property
    def remaining(self) -> int:
        """Number of tokens that may still be generated."""
        return self.max_new_tokens + self._num_prompt - self._length

    @property
    def is_healing(self) -> bool:
        """Whether the next token regenerates one of the prompt (token healing)."""
        return self._prefix_token is not None

    @property
    def is_prefilled(self) -> bool:
        """Whether the next token can be sampled."""
        return self.rows[0].is_prefilled and self.rows[-1].is_prefilled

    @property
    def is_running(self) -> bool:
        """Whether it has pages."""
        return bool(self.rows[0].block_table)

    @property
    def budget(self) -> int | None:
        """Number of tokens within which the constraint has to be complete; ``None``: no limit."""
        # The token after the end of the sequence need not fit: the output is complete without it. But it counts among
        # those of a particle, whose weight is not known without it.
        after = 0 if self.request.faithful else 1
        return self.remaining + after if self.request.within_budget else None

    @property
    def may_speculate(self) -> bool:
        """Whether proposed tokens may follow the last one; particles grow by one token a step, all together."""
        return len(self.rows) == 1 and self.request.hook is None and not self.request.faithful

    @property
    def samples_freely(self) -> bool:
        """Whether the next token can be sampled with what the host already knows."""
        request = self.request
        return not (
            request.constraint is not None
            or request.faithful
            or request.banned_strings
            or request.hook is not None
            or self.sampling.mirostat is not None
            or self.banned_tokens
            or self._forbidden
            or self.is_healing
            or self.new_tokens < request.min_new_tokens
        )

    def mark(self, event: str) -> None:
        """Record the time at which an event first happens."""
        if event not in self.times:
            self.times[event] = monotonic()

    def begin(self) -> Update | None:
        """Begin a constraint that may begin, if it applies from now on; return an update if that ends the sequence."""
        if self.finish is not None or (self.is_healing and not self.request.constrain_healing):
            return None
        return self.guarded(self.constraint.begin, self._prefix if self.is_healing else "")

    def forced_tokens(self, limit: int) -> list[int]:
        """Return at most ``limit`` tokens that are certain to follow, none of which ends the sequence."""
        if limit <= 0 or self.is_healing or self.finish is not None:
            return []
        forced = list(self.constraint.forced_tokens(limit, self.budget))
        stop = self.request.stop_tokens
        return forced[: next((i for i, token in enumerate(forced) if token in stop), len(forced))]

    def prefetch(self, batch: MaskBatch, token: int | None) -> None:
        """Queue the next mask in a batch, after ``token`` if given; :meth:`accept` must get it next."""
        request = self.request
        ends = token is not None and (token < 0 or token in request.stop_tokens or self.remaining == 1)
        if ends or (token is not None and request.hook is not None):
            return
        budget = self.budget
        if budget is not None and token is not None:
            budget -= 1
        self.constraint.prefetch(batch, token, budget)

    def mask(self) -> TokenMask | None:
        """Return the tokens that may come next, ``None`` for all.

        Raises:
            DeadEnd: no token is allowed.
            FilterError: a filter failed.
        """
        mask = self.constraint.mask(self.budget)
        if self.request.faithful and self.constraint.bias is not None:
            raise FilterError("a filter that adds to logits changes the distribution, so that it cannot be faithful")
        if self._prefix_token is not None:
            ids = self._tokenizer.get_prefix_id_to_ids_dict()[self._prefix_token]
            healing = mask_of(ids, self._width)
            mask = healing if mask is None else intersect([mask, healing], healing.words)
        excluded = self._excluded()
        return exclude(mask, excluded, self._width) if excluded else mask

    def fork(self, request: Request, block_table: Sequence[int]) -> SequenceState:
        """Return an independent copy, on given pages, which hold its keys and values.

        Args:
            request: the request, with the seed of the copy; it has neither a trigger nor banned strings.
            block_table: the pages.

        Raises:
            FilterError: a filter failed, or cannot be copied.
        """
        other = copy(self)
        other.request, other.times = request, dict(self.times)
        other.rows = [row.fork(block_table) for row in self.rows]
        other._held = self._held.copy()
        if self.finish is None:
            other.constraint = self.constraint.fork(self.budget)
        return other

    def join(self, lineage: Lineage) -> None:
        """Make the sequence a particle of a lineage."""
        self.lineage, self._place = lineage, lineage.size
        lineage.size += 1

    @property
    def uniform(self) -> float | None:
        """Random number in [0, 1) that the next token of a particle is sampled with; ``None``: that of its seed."""
        return None if self.lineage is None else self.lineage.uniform(self._place, self.request.seed, len(self))

    def accept(self, sampled: SampledToken) -> Update:
        """Process a sampled token, and return its update; id -1 if none could be sampled."""
        return self.guarded(self._accept, sampled) or Update()

    @property
    def has_own_conditions(self) -> bool:
        """Whether the next token is sampled under conditions that apply to its position only."""
        return self.sampling.mirostat is not None or bool(self._excluded())

    def _excluded(self) -> frozenset[int]:
        early = self.is_healing or self.new_tokens < self.request.min_new_tokens
        excluded = self.request.stop_tokens if early else frozenset()
        if self.banned_tokens:
            excluded = excluded.union(self.banned_tokens)
        return excluded.union(self._forbidden.get(len(self), ())) if self._forbidden else excluded

    def guarded(self, work: Callable[..., Update | None], *args: Any) -> Update | None:
        """Return the update of ``work``; an error in it ends this sequence only."""
        try:
            update = work(*args)
        except ConstrainError as error:
            update = Update(finish=self._finished(_reason(error), error=error))
        if update is not None and update.finish is not None:
            self.finish = update.finish
        return update

    def _accept(self, sampled: SampledToken) -> Update:
        if sampled.id < 0:
            raise NoTokenLeft("no token can be sampled: none that is allowed has a finite logit")
        request, accepts = self.request, True
        completes = sampled.id in self.constraint.ends
        stops = sampled.id in request.stop_tokens
        if request.hook is not None and not (stops and request.stop_before_hook):
            accepts = self._run_hook(request.hook, sampled)
            stops = not request.stop_before_hook and sampled.id in request.stop_tokens
        if request.faithful:
            self.is_complete = completes or (stops and self.constraint.may_end)
        if self._num_retries is not None and sampled.id in self._forbidden.get(len(self), ()):
            return self._rewind(len(self._held.tokens))  # no other token is left here
        if self.lineage is not None and sampled.confidence is not None:
            self.join(self.lineage.after(sampled.id, sampled.confidence))
        if not self.constraint.may_follow(sampled.id):
            return self._reject(sampled.id)
        return self._append(sampled, completes, stops, accepts)

    def _run_hook(self, hook: PostSamplingHook, sampled: SampledToken) -> bool:
        """Let a hook replace a token; return whether the constraint accepts the token."""
        logits, sampled.final_logits = sampled.final_logits, None
        assert logits is not None
        try:
            token, accepts = hook(sampled.id, sampled.prob, logits, sampled.top)
        except Exception as error:
            raise GenerationError(f"a post-sampling hook raised {type(error).__name__}: {error}") from error
        if not 0 <= token < self._width:
            raise GenerationError(
                f"a post-sampling hook chose token {token}, but there are ids from 0 to {self._width - 1}"
            )
        sampled.id = token
        return accepts

    def _append(self, sampled: SampledToken, completes: bool, stops: bool, accepts: bool) -> Update:
        """Append a token, which may complete the constraint, or be a stop token; ``accepts``: notify the constraint."""
        healed, self._prefix_token = self.is_healing, None
        if healed and not self.request.constrain_healing:
            self._start += 1
        elif accepts:
            self.constraint.accept(sampled.id)
        else:
            self.constraint.discard_mask()
        for row in self.rows:
            row.sequence_ids.append_one(sampled.id)
        self._length += 1
        self.last_token = sampled.id
        if not (healed or stops):
            text = self._held.pass_through(sampled.id)
            if text is not None:
                self._forbidden.clear()
                return Update(Piece(text, [sampled]), finish=self._complete(completes))
        if stops and not healed:
            return self._stop(sampled)
        self._held.push(sampled, len(self._prefix) if healed else 0)
        return self._release_healed(completes) if healed else self._match_strings(completes)

    def _stop(self, sampled: SampledToken) -> Update:
        """Return the update of a stop token: no string can go on in the held text, so it belongs to the output."""
        released = Piece()
        if not self.request.drop_held_text:
            self._held.flush()
            found = self._held.match(stop=False)
            if isinstance(found, Banned):
                self._held.push(sampled)
                return self._rewind(found.kept)
            released = self._held.release()
        self._held.push(sampled)
        return Update(released, finish=self._finished("stop_token", sampled.id))

    def _reject(self, token: int) -> Update:
        """Forbid a token at this position, and sample again."""
        forbidden = self._forbidden.setdefault(len(self), set())
        if token in forbidden:
            raise NoTokenLeft(f"the constraint excludes all that may follow the trigger {self.request.trigger!r}")
        forbidden.add(token)
        self.epoch += 1
        return Update()

    def _release_healed(self, completes: bool) -> Update:
        """Return the update of a regenerated token, which is final at once."""
        if self._held.undecided(stop=False) and self._complete(completes) is None:
            return Update()
        return Update(self._held.release(), finish=self._complete(completes))

    def _match_strings(self, completes: bool) -> Update:
        """Match stop and banned strings in the held text, and return the update."""
        request = self.request
        stops = request.early_stop_strings or self.new_tokens >= request.min_new_tokens
        finish = self._complete(completes)
        full = self.remaining <= 0
        if finish is not None:
            self._held.flush()
        found = self._held.match(stops and not (full and request.drop_held_text))
        if isinstance(found, Banned):
            return self._rewind(found.kept)
        if finish is not None and not (full and isinstance(found, Stop)):
            return Update(self._held.release(), finish=finish)
        if isinstance(found, Stop):
            held = self._held.release()
            finish = Finish("stop_string", found.string, held=Piece(held.text[found.start :]))
            return Update(Piece(held.text[: found.start], held.tokens), finish=finish)
        if self._held.undecided(stops):
            return Update()
        self._forbidden.clear()
        return Update(self._held.release())

    def _complete(self, completes: bool) -> Finish | None:
        """Return the finish of a sequence at its maximum length or with a complete constraint."""
        if self.remaining <= 0:
            return Finish("max_new_tokens")
        return Finish("end_filter") if completes else None

    def _rewind(self, kept: int) -> Update:
        """Remove a banned string, and forbid the token in which it begins at its position.

        Where the constraint allows no other token there, the last token of the string is forbidden instead, then the
        one before it where no other is allowed, and so on (depth-first search).
        """
        if self._num_retries is not None:
            kept = len(self._held.tokens) - 1
            self._num_retries += 1
        if kept < 0 or (self._num_retries or 0) > _MAX_RETRIES:
            raise self._only_banned()
        suppressed = self._held.rewind(kept)
        position = len(self) - len(suppressed.tokens)
        self._truncate(len(suppressed.tokens))
        self.last_token = self._last_token()
        self.epoch += 1
        # Tokens at later positions were forbidden after a different prefix.
        self._forbidden = {place: tokens for place, tokens in self._forbidden.items() if place <= position}
        forbidden, first = self._forbidden.setdefault(position, set()), suppressed.tokens[0].id
        prefix = self._prefix if self.request.constrain_healing else ""
        self.constraint.restart(prefix, self.rows[0].tokens(self._start))
        if first not in forbidden or self._num_retries is not None:
            forbidden.add(first)
        elif self.request.constraint is not None:
            forbidden.clear()
            self._num_retries = 0
        else:
            return Update(suppressed=suppressed, finish=self._finished("dead_end", error=self._only_banned()))
        return Update(suppressed=suppressed)

    def _only_banned(self) -> NoTokenLeft:
        strings = ", ".join(map(repr, self.request.banned_strings))
        return NoTokenLeft(f"every token that may come next leads to a banned string ({strings})")

    def _finished(self, reason: str, trigger: int | str | None = None, error: Exception | None = None) -> Finish:
        return Finish(reason, trigger, error, self._held.release())

    def _truncate(self, count: int) -> None:
        """Remove the last tokens."""
        for row in self.rows:
            row.sequence_ids.truncate(len(row.sequence_ids) - count)
        self._length -= count

    def _last_token(self) -> int:
        return int(self.rows[0].sequence_ids.torch()[0, -1])


def can_heal(tokenizer: ExLlamaV2Tokenizer, prompts: Sequence[torch.Tensor]) -> bool:
    """Return whether the last token of every prompt is text of whole characters, and has a token before it.

    Args:
        tokenizer: of the model.
        prompts: int64, each of shape (1, n).
    """
    pieces = tokenizer.get_id_to_piece_list()
    last = [int(ids[0, -1]) for ids in prompts]
    texts = [pieces[token] if token < len(pieces) else "" for token in last]
    return all(ids.shape[1] > 1 for ids in prompts) and all(text and "\ufffd" not in text for text in texts)


def _reason(error: ConstrainError) -> str:
    if isinstance(error, (DeadEnd, NoTokenLeft)):
        return "dead_end"
    return "filter_error" if isinstance(error, FilterError) else "error"
