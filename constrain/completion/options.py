"""Options of a completion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from constrain.arguments import check_count, check_number
from constrain.errors import ArgumentError
from constrain.filters.combined import filters_of
from constrain.generator.arguments import key_of, split_stop_conditions
from constrain.generator.settings import Settings, check_settings

if TYPE_CHECKING:
    from constrain.filters.masks import TokenMask
    from constrain.model import ExLlamaV2Lora, ExLlamaV2MMEmbedding


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a completion.

    Attributes:
        max_new_tokens: maximum number of output tokens; lowered to what fits in the context.
        settings: sampling settings.
        temperature, top_p, top_k, min_p: override those in ``settings``; ``None``: keep them.
        stop: a string or id, or several, before which the output ends; in addition to the model's end-of-sequence
            tokens.
        seed: makes sampling reproducible; ``None``: taken from Python's ``random``.
        logprobs: report the log probability of each token, and of this number of most likely ones.
        confidence: report the probability of each token under the constraint, and what the constraint removed; has no
            effect with ``post_sampling_hooks``, which may replace tokens.
        watched_tokens: with ``confidence``, tokens whose probability is reported even where many are allowed.
        timeout: seconds after which the request is cancelled; ``None``: never.
        since: the ``time.monotonic()`` from which ``timeout`` counts; ``None``: when the request is submitted.
        priority: requests with a higher priority start first.
        loras: adapters of the model to apply.
        embeddings: what ids of the prompt beyond the vocabulary refer to.
        special_tokens: show special tokens in the text as it is streamed.
        filters: constraints on the output; each can constrain only one sequence at a time.
        particles: number of weighted outputs of faithful sampling; ``None``: one output, of masked sampling.

    Raises:
        ArgumentError: an option is of the wrong type or out of range.
    """

    max_new_tokens: int = 256
    settings: Settings | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: str | int | Collection[str | int] | None = None
    seed: int | None = None
    logprobs: int | None = None
    confidence: bool = False
    watched_tokens: TokenMask | None = None
    timeout: float | None = None
    since: float | None = None
    priority: int = 0
    loras: Sequence[ExLlamaV2Lora] = ()
    embeddings: Sequence[ExLlamaV2MMEmbedding] = ()
    special_tokens: bool = False
    filters: Sequence[Any] = ()
    particles: int | None = None

    def __post_init__(self) -> None:
        check_count("max_new_tokens", self.max_new_tokens, 1)
        check_count("priority", self.priority, None)
        if self.seed is not None:
            check_count("seed", self.seed, None)
        if self.logprobs is not None:
            check_count("logprobs", self.logprobs)
        if self.timeout is not None:
            check_number("timeout", self.timeout, 0)
        if self.settings is not None:
            check_settings(self.settings)
        if self.overrides:
            check_settings(self.sampling(Settings()))
        if self.particles is not None:
            self._check_faithful(self.particles)
        self.stop_conditions()
        object.__setattr__(self, "filters", filters_of(self.filters))

    @property
    def overrides(self) -> dict[str, Any]:
        """Sampling options that override those in ``settings``."""
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k", "min_p")}
        return {name: value for name, value in given.items() if value is not None}

    def sampling(self, default: Settings) -> Settings:
        """Return the sampling settings.

        Args:
            default: used if neither ``settings`` nor overrides are given.
        """
        overrides = self.overrides
        if not overrides:
            return default if self.settings is None else self.settings
        return replace(Settings() if self.settings is None else self.settings, **overrides)

    def stop_conditions(self) -> tuple[frozenset[int], list[str]]:
        """Return the token ids and strings before which the output ends."""
        stop = [self.stop] if isinstance(self.stop, (str, int)) else self.stop
        return split_stop_conditions(stop)

    def _check_faithful(self, particles: int) -> None:
        check_count("n", particles, 1)
        given = [*self.overrides, *(["settings"] if self.settings is not None else [])]
        if given:
            raise ArgumentError(f"faithful sampling is of the model's own distribution, without {', '.join(given)}")

    def numbered(self, number: int) -> Options:
        """Return the options of output ``number`` of several, whose seeds are consecutive."""
        return self if self.seed is None else replace(self, seed=self.seed + number)

    def key(self) -> int:
        """Return the seed of the request, drawn at random if none is given."""
        return key_of(self.seed)
