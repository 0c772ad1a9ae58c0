"""How a prompt is continued, apart from constraints."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from constrain.arguments import check_count, check_number
from constrain.filters.combined import filters_of
from constrain.generator.job import SEED_BITS, split_stop_conditions
from constrain.generator.settings import Settings, check_settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a prompt is continued.

    Attributes:
        max_new_tokens: upper bound; lowered to what the context still takes.
        settings: how tokens are sampled.
        temperature, top_p, top_k, min_p: take the place of those in ``settings``; ``None``: keep them.
        stop: a text or an id, or several, before which the output ends; besides the model's own end-of-sequence tokens.
        seed: makes sampling reproducible; ``None``: from Python's ``random``.
        logprobs: report log probabilities of each token, and of this number of most likely ones.
        timeout: seconds after which the request is given up; ``None``: never.
        priority: requests of a higher one start first.
        filters: constraints on the output; each follows one sequence at a time.

    Raises:
        ArgumentError: something is of the wrong type, or out of its bounds.
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
    timeout: float | None = None
    priority: int = 0
    filters: Sequence[Any] = ()

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
        self.stop_conditions()
        object.__setattr__(self, "filters", filters_of(self.filters))

    @property
    def overrides(self) -> dict[str, Any]:
        """Sampling settings that are given by themselves."""
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k", "min_p")}
        return {name: value for name, value in given.items() if value is not None}

    def sampling(self, default: Settings) -> Settings:
        """The settings to sample by.

        Args:
            default: those where none are given at all.
        """
        overrides = self.overrides
        if not overrides:
            return default if self.settings is None else self.settings
        settings = replace(Settings() if self.settings is None else self.settings, **overrides)
        check_settings(settings)
        return settings

    def stop_conditions(self) -> tuple[frozenset[int], list[str]]:
        """The ids and texts before which the output ends."""
        stop = [self.stop] if isinstance(self.stop, (str, int)) else self.stop
        return split_stop_conditions(stop)

    def numbered(self, number: int) -> Options:
        """The options of one of several outputs, whose seeds follow each other."""
        return self if self.seed is None else replace(self, seed=self.seed + number)

    def key(self) -> int:
        """The key of the random numbers."""
        return random.getrandbits(SEED_BITS) if self.seed is None else self.seed % 2**SEED_BITS
