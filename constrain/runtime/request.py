"""A request: prompt, sampling parameters, constraint, and stop conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from constrain.arguments import check_count, check_text, texts_of
from constrain.errors import ArgumentError, GenerationError
from constrain.filters import Constraint
from constrain.filters.masks import TokenMask
from constrain.model import ExLlamaV2Lora, ExLlamaV2MMEmbedding
from constrain.runtime.sampler.params import UNSHAPED, SamplingParams

#: Called with token, probability, logits and top tokens of a sample; returns the token to use and whether the
#: constraint accepts it.
PostSamplingHook = Callable[[int, float, torch.Tensor, "tuple[torch.Tensor, torch.Tensor] | None"], tuple[int, bool]]


@dataclass(frozen=True, eq=False)
class Request:
    """A sequence to be generated. Immutable.

    Attributes:
        prompt: int64 of shape (1, n); a second one, without the condition, for classifier-free guidance.
        sampling: sampling parameters.
        seed: key of the random numbers, 63 bits; the counter is the length of the sequence.
        constraint: restricts the tokens.
        max_new_tokens: maximum number of generated tokens; ``None``: up to the context length.
        min_new_tokens: number of tokens before which stop tokens are excluded.
        stop_tokens, stop_strings: tokens and strings that end the sequence.
        early_stop_strings: whether stop strings end it before ``min_new_tokens`` too.
        drop_held_text: at a stop token, drop text that is held since a stop or banned string may have begun in it, and
            do not look for stop strings in the last token that is allowed, as exllamav2's dynamic generator does.
        stop_before_hook: whether a sampled stop token ends the sequence before the hook sees it.
        banned_strings: strings that must not occur in the output, ignoring case; empty ones are ignored.
        decode_special_tokens: show special tokens in the output.
        return_top_tokens: number of most likely tokens to report.
        return_logits: report the logits too.
        return_logprobs: report the log probability of each token by the model alone, and this number of most likely
            tokens with theirs; ``None``: neither.
        return_confidence: report the probability of each token under the constraint, and what the constraint removed.
        watched_tokens: with ``return_confidence``, tokens whose probability is reported even where many are allowed.
        raw_logits: report logits as the model returns them, not as the sampler modifies them.
        prefer_eos: end the sequence as soon as the constraint allows it.
        heal: regenerate the last token of the prompt together with the text that follows (token healing).
        constrain_healing: whether the constraint applies to the regenerated token.
        within_budget: whether the constraint has to be complete within ``max_new_tokens``.
        trigger: string in the output after which the constraint applies; ``None``: from the beginning.
        hook: sees, and may replace, every sampled token; runs on the host.
        loras: adapters to apply.
        embeddings: embeddings that ids of the prompt refer to.
        priority: requests with a higher priority start first.
        max_skips: number of later, smaller requests that may start before this one; ``None``: no limit.
        faithful: sample outputs from the distribution of the model over all that the constraint allows (see
            :mod:`constrain.runtime.smc`): as many as there are ``particles``, with their weights. An output that
            does not complete the constraint within ``max_new_tokens``, the token that ends it included, has weight 0.
            ``sampling`` must be :data:`~constrain.runtime.sampler.params.UNSHAPED`.
        particles: number of outputs of a faithful request, which are sampled together; number ``i`` uses ``seed + i``.

    Raises:
        ArgumentError: an argument has the wrong type, or is out of range.
        GenerationError: the trigger is empty.
    """

    prompt: Sequence[torch.Tensor]
    sampling: SamplingParams
    seed: int = 0
    constraint: Constraint | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: Sequence[str] = ()
    early_stop_strings: bool = False
    drop_held_text: bool = False
    stop_before_hook: bool = False
    banned_strings: Sequence[str] = ()
    decode_special_tokens: bool = False
    return_top_tokens: int = 0
    return_logits: bool = False
    return_logprobs: int | None = None
    return_confidence: bool = False
    watched_tokens: TokenMask | None = None
    raw_logits: bool = True
    prefer_eos: bool = False
    heal: bool = False
    constrain_healing: bool = False
    within_budget: bool = False
    trigger: str | None = None
    hook: PostSamplingHook | None = None
    loras: tuple[ExLlamaV2Lora, ...] = ()
    embeddings: Sequence[ExLlamaV2MMEmbedding] = ()
    priority: int = 0
    max_skips: int | None = 4
    faithful: bool = False
    particles: int = 1

    def __post_init__(self) -> None:
        check_count("min_new_tokens", self.min_new_tokens)
        check_count("return_top_tokens", self.return_top_tokens)
        if self.return_logprobs is not None:
            check_count("logprobs", self.return_logprobs)
        if self.hook is not None and (self.return_logprobs is not None or self.return_confidence):
            name = "confidence" if self.return_confidence else "logprobs"
            raise ArgumentError(f"{name} cannot be had with post_sampling_hooks, which may replace tokens")
        banned = [each for each in texts_of("banned_strings", self.banned_strings) if each]
        object.__setattr__(self, "banned_strings", banned)
        if self.trigger is not None:
            check_text("trigger", self.trigger)
            if not self.trigger:
                raise GenerationError("the trigger must not be empty; leave it out to constrain the whole output")
        check_count("particles", self.particles, 1)
        if self.faithful:
            self._check_faithful()
            object.__setattr__(self, "return_confidence", True)
        elif self.particles > 1:
            raise ArgumentError("several particles need faithful=True")

    @property
    def num_rows(self) -> int:
        """Number of rows of a pass that the request takes up."""
        return len(self.prompt) * self.particles

    def _check_faithful(self) -> None:
        """Refuse settings that change the distribution of the outputs, other than the constraint."""
        settings = {
            "sampling settings": self.sampling != UNSHAPED,
            "a second prompt": len(self.prompt) > 1,
            "post_sampling_hooks": self.hook is not None,
            "stop_strings": bool(self.stop_strings),
            "banned_strings": bool(self.banned_strings),
            "min_new_tokens": self.min_new_tokens > 0,
            "prefer_eos": self.prefer_eos,
            "token healing": self.heal,
            "trigger": self.trigger is not None,
        }
        found = [name for name, is_set in settings.items() if is_set]
        if found:
            raise ArgumentError(f"faithful sampling is of the model's own distribution, without {', '.join(found)}")

    @property
    def host_bound(self) -> list[str]:
        """User-facing names of the settings that make every token wait for the host before the next pass."""
        return ["post_sampling_hooks"] if self.hook is not None else []
