"""The settings object: defaults, copies, and bias helpers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrain.generator import ExLlamaV2Sampler

Settings = ExLlamaV2Sampler.Settings

DEFAULTS: dict[str, Any] = {
    "token_repetition_penalty": 1.025,
    "token_repetition_range": -1,
    "token_repetition_decay": 0,
    "token_frequency_penalty": 0.0,
    "token_presence_penalty": 0.0,
    "temperature": 0.8,
    "smoothing_factor": 0.0,
    "min_temp": 0,
    "max_temp": 0.0,
    "temp_exponent": 1.0,
    "top_k": 50,
    "top_p": 0.8,
    "top_a": 0.0,
    "min_p": 0,
    "tfs": 0,
    "typical": 0,
    "skew": 0,
    "temperature_last": False,
    "mirostat": False,
    "mirostat_tau": 1.5,
    "mirostat_eta": 0.1,
    "mirostat_mu": None,
    "token_bias": None,
    "cfg_scale": None,
    "post_sampling_hooks": [],
    "dry_allowed_length": 2,
    "dry_base": 1.75,
    "dry_multiplier": 0.0,
    "dry_sequence_breakers": None,
    "dry_range": 0,
    "dry_max_ngram": 20,
    "ngram_trie": None,
    "ngram_index": 0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "xtc_ignore_tokens": None,
}


def test_every_field_has_its_published_default() -> None:
    fields = vars(Settings())
    assert list(fields.pop("ngram_history")) == []
    assert fields == DEFAULTS


def test_any_field_may_be_given_and_any_attribute_set() -> None:
    settings: Any = Settings(temperature=0.5, xtc_threshold=0.3)
    settings.something_else = 1
    assert (settings.temperature, settings.xtc_threshold, settings.something_else) == (0.5, 0.3, 1)


def test_hooks_are_not_shared_between_objects() -> None:
    assert Settings().post_sampling_hooks is not Settings().post_sampling_hooks


def test_greedy() -> None:
    settings = Settings.greedy(cfg_scale=1.5, temperature=0.3)
    assert vars(settings) | {"ngram_history": None} == vars(Settings()) | {
        "temperature": 0.3,
        "token_repetition_penalty": 1.0,
        "top_p": 0.0,
        "top_k": 1,
        "cfg_scale": 1.5,
        "ngram_history": None,
    }


def test_a_clone_is_shallow() -> None:
    settings = Settings(token_bias=torch.zeros(4), top_k=3)
    copy = settings.clone()
    copy.top_k = 7
    assert settings.top_k == 3
    assert copy.token_bias is settings.token_bias
    assert copy.post_sampling_hooks is settings.post_sampling_hooks


def test_a_greedy_clone_keeps_penalties_only() -> None:
    settings = Settings(
        token_repetition_penalty=1.2, dry_multiplier=0.5, dry_base=2.0, xtc_probability=0.1, token_bias=torch.zeros(4)
    )
    copy = settings.greedy_clone()
    assert (copy.top_k, copy.top_p, copy.token_bias) == (1, 0, None)
    assert (copy.token_repetition_penalty, copy.dry_multiplier, copy.dry_base, copy.xtc_probability) == (
        1.2,
        0.5,
        2.0,
        0.1,
    )


def test_disallowed_tokens_get_a_bias_as_wide_as_the_logits(letters: Any) -> None:
    settings = Settings()
    settings.disallow_tokens(letters, [3, 5])
    assert settings.token_bias is not None
    assert settings.token_bias.shape == (64,)
    assert torch.nonzero(settings.token_bias).flatten().tolist() == [3, 5]
    assert torch.isneginf(settings.token_bias[[3, 5]]).all()
    with pytest.raises(ValueError, match="None is neither the id nor"):
        settings.disallow_tokens(letters, [3, None])  # type: ignore[list-item]


def test_allowed_tokens_are_the_only_ones_or_readmitted(letters: Any) -> None:
    only = Settings()
    only.allow_tokens(letters, [3, "abc"])
    assert only.token_bias is not None
    assert torch.nonzero(only.token_bias == 0).flatten().tolist() == [3, 53]
    again = Settings()
    again.disallow_tokens(letters, [3, 5])
    again.allow_tokens(letters, [5])
    assert again.token_bias is not None
    assert torch.nonzero(again.token_bias).flatten().tolist() == [3]


@pytest.mark.parametrize("wrong", [2.5, None, "no such token"])
def test_something_else_than_a_token_is_refused(letters: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="neither the id nor the text of a single token"):
        Settings().allow_tokens(letters, [wrong])
