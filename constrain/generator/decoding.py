"""One text in the making: what happens to the logits of a position until its token's text is released.

This is the body of every generator's loop: draw a token under the filters, let hooks look at it, feed the filters, put
the text together, and decide whether it ends. It knows nothing of caches, passes or other texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import torch

from constrain.arguments import check_count
from constrain.engine.advance import Advance
from constrain.errors import ConstrainError, DeadEnd, FilterError, NoTokenLeft
from constrain.filters.masks import TokenMask
from constrain.filters.stack import FilterStack, Scout
from constrain.generator.hooks import call_hooks
from constrain.generator.outcome import Drawn, End, Outcome, Piece, Request
from constrain.generator.sampler import ExLlamaV2Sampler
from constrain.generator.settings import Settings
from constrain.generator.text import Banned, Detokenizer, HeldText, Stop
from constrain.generator.trigger import Trigger

if TYPE_CHECKING:
    from constrain.model import SeqTensor
    from constrain.tokenizer import ExLlamaV2Tokenizer


class Decoding:
    """A text in the making.

    Attributes:
        rows: the sequence, prompt included, int64 of shape (1, n); a second one, with the other prompt, for guidance.
        new_tokens: tokens generated; a token that is generated anew does not count.
        end: why it ended; ``None`` before.
        mask: what may come next, as the last :meth:`constrain` has found it; ``None`` for everything.
        masks_ahead: what may come behind each of its proposals, as far as that could be told.
        length: length of the sequence up to there, without a stop token.
        last_token: the last token of the sequence.
    """

    def __init__(
        self,
        request: Request,
        tokenizer: ExLlamaV2Tokenizer,
        rows: Sequence[SeqTensor],
        prefix_token: torch.Tensor | None = None,
    ) -> None:
        """Start behind a prompt.

        Args:
            request: what is wanted.
            tokenizer: of the model.
            rows: the prompt; tokens are appended.
            prefix_token: int64 of shape (rows, 1), a token taken from the end of the prompt that the first one drawn
                has to begin with.

        Raises:
            ArgumentError: more tokens are to be reported than there are.
            GenerationError: the trigger is empty.
        """
        check_count("return_top_tokens", request.return_top_tokens, most=tokenizer.get_vocab_size())
        self.rows = rows
        self.new_tokens = 0 if prefix_token is None else -1
        self.end: End | None = None
        self.mask: TokenMask | None = None
        self.masks_ahead: Sequence[TokenMask | None] = ()
        self.length = len(rows[0])
        self.last_token = int(rows[0].torch()[0, -1])
        self._mirostat = request.settings.mirostat_mu
        self._request = request
        self._tokenizer = tokenizer
        self._prefix_token = prefix_token
        self._start = len(rows[0])
        self._prefix = "" if prefix_token is None else self._piece(int(prefix_token[0, 0]))
        self._forbidden: dict[int, set[int]] = {}
        detokenizer = Detokenizer(tokenizer, request.decode_special_tokens)
        self._held: HeldText[Drawn] = HeldText(detokenizer, request.stop_strings, request.banned_strings)
        self._trigger = None if request.trigger is None else Trigger(request.trigger, tokenizer)
        self._constrained = False
        self._ordinary = not (
            request.trigger or request.banned_strings or request.return_top_tokens or request.return_logits
        ) and (request.filters is None or request.filters.names_masks)

    @property
    def unsettled(self) -> int:
        """Number of last tokens that may be taken back."""
        return len(self._held.tokens) if self._request.banned_strings else 0

    @property
    def remaining(self) -> int | None:
        """Number of tokens that may still come; ``None`` for any."""
        limit = self._request.max_new_tokens
        return None if limit is None else limit - self.new_tokens

    @property
    def healing(self) -> bool:
        """Whether the next token is one of the prompt, generated anew."""
        return self._prefix_token is not None

    @property
    def filters(self) -> FilterStack | None:
        """The filters, if they hold for the next token."""
        return self._request.filters if self._constrained else None

    def begin(self) -> Outcome | None:
        """Start the filters if it is their time; returns an outcome where that ends the text."""
        request = self._request
        if request.filters is None or self._constrained or self._trigger is not None:
            return None
        if self.healing and not request.filters_see_healing:
            return None
        return self._guarded(self._begin_filters)

    def ends_with(self, token: int) -> bool:
        """Whether a token ends the text."""
        return token in self._request.stop_tokens

    def scout(self) -> Scout | None:
        """What the filters would allow further on."""
        filters = self.filters
        if filters is None:
            return None
        self._set_budget()
        return filters.scout()

    def forced(self, limit: int) -> list[int]:
        """Tokens, ``limit`` at most, of text that the filters leave no choice about."""
        if self.filters is None or self.healing or self.end is not None:
            return []
        try:
            return self.filters.forced(limit)
        except FilterError:
            return []  # it will show when the filter is asked for the next token

    def look_ahead(self, pool: Executor, proposals: Sequence[int]) -> Outcome | None:
        """Start evaluating filters for the next token, and behind each of ``proposals``, on other threads."""
        filters = self.filters
        if filters is None:
            return None
        self._set_budget()
        return self._guarded(filters.start, pool, proposals)

    def step(self, logits: torch.Tensor, blocked: Sequence[int] = ()) -> Outcome:
        """Draw the next token.

        Args:
            logits: float32 of shape (rows, padded vocabulary), on the CPU; changed in place.
            blocked: tokens not to be drawn, this time.
        """
        return self._guarded(self._step, logits.unsqueeze(1), blocked) or Outcome()

    @property
    def seed(self) -> int:
        """Of the draws that are made elsewhere."""
        return self._request.seed

    def is_plain(self, ahead: int) -> bool:
        """Whether, behind ``ahead`` tokens that are not known yet, there may be another, and drawing it elsewhere,
        under :attr:`mask`, and then :meth:`take` is all that :meth:`step` would do."""
        most, count = self._request.max_new_tokens, self.new_tokens + ahead
        return (
            self._ordinary
            and not self.healing
            and (most is None or count < most)
            and count >= self._request.min_new_tokens
        )

    def promise(self, advance: Advance, token: int | None = None) -> bool:
        """Have the filters hear of the token, if any, that :meth:`take` is given next, with those of other texts.

        Returns:
            Whether :meth:`look_ahead` has nothing left to do then.
        """
        filters, budget = self.filters, self.remaining
        if filters is None:
            return False
        if token is not None and (token < 0 or token in self._request.stop_tokens or budget == 1):
            return False
        if budget is not None:
            # The token after the end of the text need not fit.
            budget += 1 - (token is not None)
        return filters.promise(advance, token, budget if self._request.within_budget else None)

    @property
    def ready(self) -> bool:
        """Whether :meth:`constrain` has nothing to wait for."""
        return self.end is not None or self.filters is None or self.filters.ready

    def constrain(self, proposals: Sequence[int]) -> Outcome | None:
        """Find what may come next, and behind each of ``proposals`` as far as that can be told.

        Returns:
            An outcome where that ends the text.
        """
        self.mask, self.masks_ahead, filters = None, (), self.filters
        return None if filters is None else self._guarded(self._constrain, filters, proposals)

    def take(self, token: int, probability: float) -> Outcome:
        """Go on with a token that was drawn elsewhere; -1 where none could be drawn."""
        return self._guarded(self._take, token, probability) or Outcome()

    def finish(self) -> None:
        """Let go of what runs in the background."""
        if self._request.filters is not None:
            self._request.filters.drop()

    def _guarded(self, work: Callable[..., Outcome | None], *args: Any) -> Outcome | None:
        """The outcome of ``work``; an error in it ends this text, and no other."""
        try:
            outcome = work(*args)
        except ConstrainError as error:
            outcome = Outcome(end=self._ended(_reason(error), error=error))
        if outcome is not None and outcome.end is not None:
            self.end = outcome.end
        self.length = len(self.rows[0]) - (self.end is not None and self.end.reason == "stop_token")
        return outcome

    def _begin_filters(self) -> None:
        filters = self._request.filters
        assert filters is not None
        filters.drop()
        filters.begin(self._prefix if self.healing else "")
        self._constrained = True

    def _set_budget(self) -> None:
        # The token after the end of the text need not fit: the text is complete without it.
        remaining = self.remaining
        if self.filters is not None and self._request.within_budget and remaining is not None:
            self.filters.budget = remaining + 1

    def _step(self, logits: torch.Tensor, blocked: Sequence[int]) -> Outcome:
        self.begin()
        if self.end is not None:
            return Outcome(end=self.end)
        return self._go_on(*self._draw(logits, blocked))

    def _constrain(self, filters: FilterStack, proposals: Sequence[int]) -> None:
        self._set_budget()
        self.mask = filters.mask(self._request.prefer_eos)
        if proposals:
            self.masks_ahead = filters.masks_behind(proposals, self._request.prefer_eos)

    def _take(self, token: int, probability: float) -> Outcome:
        if token < 0:
            raise NoTokenLeft("no token can be drawn: none that is allowed has a finite logit")
        drawn = Drawn(token, token in self._request.stop_tokens, probability)
        return self._go_on(drawn, self.filters is not None and self.filters.ends(token), True)

    def _go_on(self, drawn: Drawn, completes: bool, feed: bool) -> Outcome:
        """Append a token, which may complete a filter; ``feed``: the filters are to hear of it."""
        healed, self._prefix_token = self.healing, None
        if healed and not self._request.filters_see_healing:
            self._start += 1
        elif feed:
            self._observe(drawn.id)
        for row in self.rows:
            row.append_one(drawn.id)
        self.last_token = drawn.id
        self.new_tokens += 1
        if not (healed or drawn.stops):
            text = self._held.pass_through(drawn.id)
            if text is not None:
                return Outcome(Piece(text, [drawn]), end=self._complete(completes))
        self._held.push(drawn.id, drawn, len(self._prefix) if healed else 0)
        return self._heal(completes) if healed else self._judge(drawn, completes)

    def _draw(self, logits: torch.Tensor, blocked: Sequence[int]) -> tuple[Drawn, bool, bool]:
        """A token, whether it completes a filter, and whether the filters are to hear of it."""
        request, position = self._request, len(self.rows[0])
        excluded = [*blocked, *self._forbidden.get(position, ())]
        if self.healing or self.new_tokens < request.min_new_tokens:
            excluded += request.stop_tokens
        waiting = self._trigger is not None and not self._trigger.found
        raw = logits[0, 0].clone() if request.return_logits and request.raw_logits else None
        self._set_budget()
        settings = self._settings()
        while True:
            row = logits.clone() if waiting else logits
            tokens, top_tokens, top_probs, probs, completes = ExLlamaV2Sampler.sample(
                row,
                settings,
                self.rows[0].torch(),
                request.random(),
                self._tokenizer,
                prefix_token=None if self._prefix_token is None else self._prefix_token[:1],
                return_top_tokens=request.return_top_tokens,
                blocked_tokens=excluded,
                filters=self.filters,
                filter_prefer_eos=request.prefer_eos,
            )
            top = None if top_tokens.is_meta else (top_tokens, top_probs)
            stops = request.stop_before_hooks and int(tokens[0, 0]) in request.stop_tokens
            hooks = [] if stops else request.settings.post_sampling_hooks
            tokens, feed = call_hooks(hooks, tokens, probs, row, top)
            token = int(tokens[0, 0])
            if not waiting or self._may_trigger(token):
                break
            if token in excluded:
                raise NoTokenLeft(f"the constraint excludes all that may follow the trigger {request.trigger!r}")
            excluded.append(token)
        self._mirostat = settings.mirostat_mu
        if request.return_logits and raw is None:
            raw = row[0, 0].clone()
        stops = stops or (not request.stop_before_hooks and token in request.stop_tokens)
        drawn = Drawn(token, stops, float(probs[0, 0]), logits=raw)
        if top is not None:
            drawn.top = top_tokens[0, 0], top_probs[0, 0]
        return drawn, completes, feed

    def _settings(self) -> Settings:
        """The settings as they are now; what they keep from token to token is this text's own."""
        settings = self._request.settings
        if settings.mirostat:
            settings = settings.clone()
            settings.mirostat_mu = None if self._mirostat is None else list(self._mirostat)
        return settings

    def _may_trigger(self, token: int) -> bool:
        """Whether what a token has beyond the trigger, if it completes it, is allowed by the filters."""
        assert self._trigger is not None and self._request.filters is not None
        rest = self._trigger.rest_after(token)
        return rest is None or self._request.filters.begin_within(rest)

    def _observe(self, token: int) -> None:
        """Tell the trigger, or the filters once they hold, of a token."""
        filters, trigger = self._request.filters, self._trigger
        if filters is None:
            return
        if trigger is None or trigger.found:
            if self._constrained:
                filters.feed(token)
            return
        rest = trigger.rest_after(token)
        trigger.feed(token)
        if rest is not None:
            self._constrained = filters.begin_within(rest)

    def _heal(self, completes: bool) -> Outcome:
        """The outcome of a token generated anew, which is final at once."""
        if self._held.undecided(stop=False) and not completes:
            return Outcome()
        return Outcome(Piece(*self._held.take()), end=End("end_filter") if completes else None)

    def _judge(self, drawn: Drawn, completes: bool) -> Outcome:
        request = self._request
        if drawn.stops:
            return Outcome(end=self._ended("stop_token", drawn.id))
        stops = request.early_stop_strings or self.new_tokens >= request.min_new_tokens
        end = self._complete(completes)
        full = end is not None and end.reason == "max_new_tokens"
        found = self._held.search(stops and not full)
        if isinstance(found, Banned):
            return self._rewind(found.kept)
        if end is not None:
            return Outcome(Piece(*self._held.take()), end=end)
        if isinstance(found, Stop):
            text, tokens = self._held.take()
            end = End("stop_string", found.string, held=Piece(text[found.start :]))
            return Outcome(Piece(text[: found.start], tokens), end=end)
        if self._held.undecided(stops):
            return Outcome()
        self._forbidden.clear()
        return Outcome(Piece(*self._held.take()))

    def _complete(self, completes: bool) -> End | None:
        """The end of a text that is as long as it may be, or complete for a filter."""
        remaining = self.remaining
        if remaining is not None and remaining <= 0:
            return End("max_new_tokens")
        return End("end_filter") if completes else None

    def _rewind(self, kept: int) -> Outcome:
        """Take a banned string back, and forbid the token that it begins in at its place."""
        suppressed = Piece(*self._held.rewind(kept))
        self.new_tokens -= len(suppressed.tokens)
        position = len(self.rows[0]) - len(suppressed.tokens)
        for row in self.rows:
            row.truncate(len(row) - len(suppressed.tokens))
        self.last_token = int(self.rows[0].torch()[0, -1])
        # What is forbidden further on was so after another beginning.
        self._forbidden = {place: tokens for place, tokens in self._forbidden.items() if place <= position}
        forbidden, first = self._forbidden.setdefault(position, set()), suppressed.tokens[0].id
        self._replay()
        if first in forbidden:
            error = NoTokenLeft(f"every token that may come next leads to a banned string: {suppressed.text!r}")
            return Outcome(suppressed=suppressed, end=self._ended("dead_end", error=error))
        forbidden.add(first)
        return Outcome(suppressed=suppressed)

    def _replay(self) -> None:
        """Bring trigger and filters to where the sequence is."""
        if self._request.filters is None:
            return
        self._request.filters.drop()
        if self._trigger is None:
            self._request.filters.begin(self._prefix if self._request.filters_see_healing else "")
        else:
            self._trigger.reset()
            self._constrained = False
        for token in self.rows[0].torch_slice(self._start, None)[0].tolist():
            self._observe(token)

    def _ended(self, reason: str, trigger: int | str | None = None, error: Exception | None = None) -> End:
        return End(reason, trigger, error, Piece(*self._held.take()))

    def _piece(self, token: int) -> str:
        return self._tokenizer.get_id_to_piece_list()[token]


def _reason(error: ConstrainError) -> str:
    if isinstance(error, (DeadEnd, NoTokenLeft)):
        return "dead_end"
    return "filter_error" if isinstance(error, FilterError) else "error"
