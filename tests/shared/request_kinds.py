"""Requests of every kind: each sampler setting, filters, strings, healing, triggers. A job gives its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from constrain import ExLlamaV2, ExLlamaV2Tokenizer
from constrain.filters import (
    ExLlamaV2Filter,
    ExLlamaV2JSONSchemaFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
)
from constrain.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.runtime import Request

EOS = 1
WIDTH = 384
TOKENS = 20
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}}
PROMPTS = ["hello there, the quick brown", "yes, yes, yes", "12 345 hello", '{"name": "Ada", "age']

#: Fields of the settings; elsewhere every token can be sampled, at a temperature of 2.
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"top_k": 1},
    "random": {},
    "repetition penalty": {"token_repetition_penalty": 1.6},
    "fading repetition penalty": {
        "token_repetition_penalty": 1.6,
        "token_repetition_range": 6,
        "token_repetition_decay": 8,
    },
    "frequency and presence penalties": {"token_frequency_penalty": 0.7, "token_presence_penalty": 0.9},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "top_a": {"top_a": 0.3},
    "tfs": {"tfs": 0.6},
    "typical": {"typical": 0.6},
    "skew": {"skew": 0.5},
    "smoothing_factor": {"smoothing_factor": 0.3},
    "dynamic temperature": {"min_temp": 0.5, "max_temp": 3.0},
    "temperature_last": {"temperature_last": True, "min_p": 0.1},
    "mirostat": {"mirostat": True, "mirostat_tau": 3.0},
    "DRY": {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    "XTC": {"xtc_probability": 0.6, "xtc_threshold": 0.05},
    "token_bias": {"token_bias": torch.linspace(-2, 4, WIDTH)},
    "cfg_scale": {"cfg_scale": 1.5},
}

Filters = Callable[[ExLlamaV2, ExLlamaV2Tokenizer], list[Any]]


class Listed(ExLlamaV2Filter):
    """A filter of somebody else: a third of all tokens, another third after each token."""

    def begin(self, prefix_str: str | None) -> None:
        self.heard = 0

    def feed(self, token: torch.Tensor) -> None:
        self.heard += 1

    def next(self) -> Any:
        return {token for token in range(3, 350) if token % 3 == self.heard % 3}, set()

    def clone(self, c: Any = None) -> Any:
        made = super().clone(c)
        made.heard = self.heard
        return made


class InPlace(Listed):
    """A filter of somebody else that changes logits in place."""

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
        logits[..., self.heard % 3 :: 3] = -torch.inf
        logits[..., : self.heard] += 1.0
        return logits


def regex(*patterns: str) -> Filters:
    return lambda model, tokenizer: [ExLlamaV2RegexFilter(model, tokenizer, pattern) for pattern in patterns]


def json_schema(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> list[Any]:
    return [ExLlamaV2JSONSchemaFilter(model, tokenizer, SCHEMA)]


def select(model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer) -> list[Any]:
    return [ExLlamaV2SelectFilter(model, tokenizer, ["yes, please", "no, thanks", "hello there"])]


def shift(result: Any) -> None:
    """A post-sampling hook: now and then the next token."""
    token = int(result.sampled_token)
    result.sampled_token = torch.tensor([[token + 1 if token % 7 == 3 else token]])


#: Arguments of jobs; filters are made for each.
OPTIONS: dict[str, dict[str, Any]] = {
    "stop tokens": {"stop_conditions": [*range(2, 40)]},
    "stop strings": {"stop_conditions": ["e", "t"], "max_new_tokens": 40},
    "min_new_tokens": {"min_new_tokens": 6, "stop_conditions": [*range(2, 200)]},
    "one token": {"max_new_tokens": 1},
    "forced text": {"filters": regex("(the|quick|fox){3} jumps over [0-9]{4}")},
    "two regexes": {"filters": regex("[a-z ]{2,9}", "[a-f ]{3,}")},
    "JSON": {"filters": json_schema},
    "JSON, the end preferred": {"filters": json_schema, "filter_prefer_eos": True},
    "options": {"filters": select},
    "unfinished": {"filters": regex("[a-z ]{60,}"), "complete_within_budget": False},
    "listed tokens": {"filters": lambda *parts: [Listed(*parts)]},
    "logits in place": {"filters": lambda *parts: [InPlace(*parts)]},
    "all kinds of filters": {"filters": lambda *parts: [Listed(*parts), *regex("[a-z, ]+")(*parts)]},
    "banned strings": {"banned_strings": ["e", "o"]},
    "banned strings under a filter": {"banned_strings": ["e", "x"], "filters": regex("[a-z]{3,}")},
    "healing": {"token_healing": True},
    "healing under a filter": {"token_healing": True, "filters": regex("[a-z ]{5,}")},
    "trigger": {"filters": regex("[a-z]{3}"), "trigger": "e"},
    "hook": {"hooks": [shift]},
    "hook under a filter": {"hooks": [shift], "filters": lambda *parts: [Listed(*parts)]},
}
KINDS = [*SETTINGS, *OPTIONS]


def settings(kind: str, greedy: bool = False) -> ExLlamaV2Sampler.Settings:
    """The settings of a kind; with ``greedy``, elsewhere the most likely token is taken."""
    base = {"temperature": 2.0, "top_k": 1 if greedy else 0, "top_p": 0.0, "token_repetition_penalty": 1.0}
    return ExLlamaV2Sampler.Settings(
        **{**base, **SETTINGS.get(kind, {}), "post_sampling_hooks": OPTIONS.get(kind, {}).get("hooks", [])}
    )


def prompt(kind: str) -> str:
    return PROMPTS[KINDS.index(kind) % len(PROMPTS)]


def job(kind: str, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, greedy: bool = False) -> ExLlamaV2DynamicJob:
    """A job; the seed is the number of the kind."""
    options = {name: value for name, value in OPTIONS.get(kind, {}).items() if name != "hooks"}
    if "filters" in options:
        options["filters"] = options["filters"](model, tokenizer)
    ids = [tokenizer.encode(prompt(kind))]
    if kind == "cfg_scale":
        ids.append(tokenizer.encode("no, thanks"))
    given = {"max_new_tokens": TOKENS, "stop_conditions": [EOS], "seed": KINDS.index(kind), **options}
    return ExLlamaV2DynamicJob(ids, gen_settings=settings(kind, greedy), **given)


def request(kind: str, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, greedy: bool = False) -> Request:
    return job(kind, model, tokenizer, greedy).request(tokenizer, WIDTH)
