"""What is wanted of a text, and what each of its tokens leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from constrain.arguments import check_count, check_text, texts_of
from constrain.filters.stack import FilterStack
from constrain.generator.settings import Settings


@dataclass
class Request:
    """What is wanted of a text.

    Attributes:
        settings: how tokens are drawn; read anew for each.
        random: gives a number in [0, 1) for each token.
        seed: of the draws that are made on the device of the model; 63 bits.
        max_new_tokens: after so many the text ends; ``None``: never.
        min_new_tokens: before so many, stop tokens are blocked.
        early_stop_strings: whether stop strings end a text before ``min_new_tokens`` too.
        stop_tokens, stop_strings: what ends the text.
        stop_before_hooks: whether a token that is drawn ends the text, and not what hooks put in its place.
        banned_strings: what must not occur in it, in whatever case; empty ones do not count.
        decode_special_tokens: show special tokens.
        return_top_tokens: number of most likely tokens to report.
        return_logits: report the logits too.
        raw_logits: as they come from the model, not as the sampler leaves them.
        filters: constraints.
        prefer_eos: end the text as soon as the filters allow it.
        filters_see_healing: filters are asked for, and hear of, the token that is generated anew.
        within_budget: filters that can are to complete the text in ``max_new_tokens``.
        trigger: string from which on the filters hold; ``None``: from the beginning.

    Raises:
        ArgumentError: something is of the wrong type, or out of its bounds.
    """

    settings: Settings
    random: Callable[[], float]
    seed: int = 0
    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    early_stop_strings: bool = False
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: Sequence[str] = ()
    stop_before_hooks: bool = False
    banned_strings: Sequence[str] = ()
    decode_special_tokens: bool = False
    return_top_tokens: int = 0
    return_logits: bool = False
    raw_logits: bool = True
    filters: FilterStack | None = None
    prefer_eos: bool = False
    filters_see_healing: bool = False
    within_budget: bool = False
    trigger: str | None = None

    def __post_init__(self) -> None:
        check_count("min_new_tokens", self.min_new_tokens)
        check_count("return_top_tokens", self.return_top_tokens)
        self.banned_strings = [each for each in texts_of("banned_strings", self.banned_strings) if each]
        if self.trigger is not None:
            check_text("trigger", self.trigger)


@dataclass
class Drawn:
    """A token that was drawn.

    Attributes:
        id: the token.
        stops: whether it is a stop token.
        prob: its probability.
        top: the most likely ones and their probabilities, of shape (k,), if asked for.
        logits: float32 of shape (padded vocabulary,), if asked for.
    """

    id: int
    stops: bool
    prob: float
    top: tuple[torch.Tensor, torch.Tensor] | None = None
    logits: torch.Tensor | None = None


@dataclass(frozen=True)
class Piece:
    """Some text and the tokens that carry it."""

    text: str = ""
    tokens: list[Drawn] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


@dataclass(frozen=True)
class End:
    """Why a text ended.

    Attributes:
        reason: ``"stop_token"``, ``"stop_string"``, ``"max_new_tokens"``, ``"end_filter"``, ``"filter_error"``,
            ``"dead_end"`` or ``"error"``.
        trigger: the stop token or stop string.
        error: what went wrong.
        held: what was generated but not released.
    """

    reason: str
    trigger: int | str | None = None
    error: Exception | None = None
    held: Piece = field(default_factory=Piece)


@dataclass(frozen=True)
class Outcome:
    """What a token led to.

    Attributes:
        released: text that is final.
        suppressed: text that was taken back, as it had a banned string in it.
        end: why the text ends here, if it does.
    """

    released: Piece = field(default_factory=Piece)
    suppressed: Piece | None = None
    end: End | None = None
