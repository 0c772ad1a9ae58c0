"""The streaming generator as programs for exllamav2 rely on it, through the alias."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch


@pytest.fixture
def generator(loaded: Any) -> Any:
    from exllamav2.generator import ExLlamaV2StreamingGenerator

    return ExLlamaV2StreamingGenerator(loaded.model, loaded.cache, loaded.tokenizer)


def settings(tokens: Iterable[int] | None = None) -> Any:
    """Greedy settings, or such that draw given tokens, whatever the model says."""
    from exllamav2.generator import ExLlamaV2Sampler

    if tokens is None:
        return ExLlamaV2Sampler.Settings.greedy()
    rest = iter(tokens)

    def draw(result: Any) -> None:
        result.sampled_token = torch.tensor([[next(rest)]])

    return ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[draw])


def stream(generator: Any, calls: int) -> list[dict[str, Any]]:
    """Results of this many calls, or up to the end."""
    results = []
    for _ in range(calls):
        results.append(generator.stream_ex())
        if results[-1]["eos"]:
            break
    return results


@pytest.fixture
def passes(generator: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths of the passes of the model."""
    widths: list[int] = []
    forward = generator.model.forward

    def observed(ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        widths.append(ids.shape[1])
        return forward(ids, *args, **kwargs)

    monkeypatch.setattr(generator.model, "forward", observed)
    return widths


def test_prefixes_of_prompts_are_reused(generator: Any, passes: list[int]) -> None:
    first = generator.tokenizer.encode("The quick brown fox jumps over")
    generator.begin_stream_ex(first, settings())
    assert sum(passes) == first.shape[1] - 1 == generator.cache.current_seq_len
    text = "".join(result["chunk"] for result in stream(generator, 5))
    assert text and generator.sequence_ids.shape[1] == first.shape[1] + 5
    del passes[:]
    generator.begin_stream_ex(first, settings())
    assert sum(passes) == 0
    assert "".join(result["chunk"] for result in stream(generator, 5)) == text
    del passes[:]
    longer = torch.cat([generator.sequence_ids, generator.tokenizer.encode(" the lazy dog")], dim=1)
    generator.begin_stream_ex(longer, settings())
    # The last token that was drawn has not been through the model.
    assert sum(passes) == longer.shape[1] - 1 - (first.shape[1] + 4)


def test_a_stop_string_cuts_inside_a_token(generator: Any) -> None:
    tokens = [generator.tokenizer.single_id(text) for text in ("do", "Yes", " please", "red")]
    generator.set_stop_conditions(["es p", generator.tokenizer.eos_token_id])
    generator.begin_stream_ex(generator.tokenizer.encode("hello"), settings(tokens))
    results = stream(generator, 9)
    assert [result["chunk"] for result in results] == ["do", "", "Y"]
    assert [result["eos"] for result in results] == [False, False, True]
    assert [result["chunk_token_ids"].shape[1] for result in results] == [1, 0, 0]
    generator.set_stop_conditions([generator.tokenizer.eos_token_id])


def test_a_character_over_several_tokens(generator: Any) -> None:
    tokens = generator.tokenizer.encode("😀")[0].tolist()
    assert len(tokens) == 4
    generator.begin_stream_ex(generator.tokenizer.encode("hello"), settings(tokens))
    results = stream(generator, 4)
    assert [result["chunk"] for result in results] == ["", "", "", "😀"]
    assert results[-1]["chunk_token_ids"].tolist() == [tokens]
    assert all(result["chunk_token_ids"].shape == (1, 0) for result in results[:-1])


def test_a_stop_token_releases_what_is_held(generator: Any) -> None:
    eos = generator.tokenizer.eos_token_id
    tokens = [*(generator.tokenizer.single_id(text) for text in ("y", "e")), eos]
    generator.set_stop_conditions([eos, "yes"])
    generator.begin_stream_ex(generator.tokenizer.encode("hello"), settings(tokens))
    results = stream(generator, 9)
    assert [(result["chunk"], result["eos"]) for result in results] == [("", False), ("", False), ("ye", True)]
    assert results[-1]["chunk_token_ids"].shape == (1, 0) and generator.sequence_ids[0, -1] == eos
    assert generator.stop_tokens == {eos} and generator.stop_strings == {"yes"}
    with pytest.raises(ValueError):
        generator.set_stop_conditions([None])


def test_what_can_be_reported(generator: Any) -> None:
    ids = generator.tokenizer.encode("hello")
    generator.begin_stream_ex(ids, settings(), return_probabilities=True, return_top_tokens=3, return_logits=True)
    result = generator.stream_ex(ban_tokens=[5])
    assert result["chunk_token_ids"].shape == result["probs"].shape == (1, 1)
    assert result["top_tokens"].shape == result["top_probs"].shape == (1, 1, 3)
    assert (
        result["top_tokens"][0, 0, 0] == result["chunk_token_ids"][0, 0] and result["top_tokens"].dtype == torch.int64
    )
    width = -(-generator.model.config.vocab_size // 32) * 32
    assert result["logits"].shape == (1, 1, width) and result["logits"].dtype == torch.float32
    # As the sampler has left them: what is banned shows.
    assert result["logits"][0, 0, 5] <= -1e29
    generator.begin_stream_ex(generator.tokenizer.encode("hello"), settings(), return_top_tokens=2)
    held = settings(generator.tokenizer.encode("😀")[0].tolist())
    generator.begin_stream_ex(ids, held, return_top_tokens=2)
    assert generator.stream_ex()["top_tokens"].shape[1] == 0


def test_the_older_calls(generator: Any) -> None:
    ids = generator.tokenizer.encode("hello")
    generator.begin_stream_ex(ids, settings())
    expected = generator.stream_ex()
    generator.begin_stream(ids, settings())
    chunk, eos, tokens = generator.stream()
    assert (chunk, eos) == (expected["chunk"], False) and torch.equal(tokens, expected["chunk_token_ids"])


def test_drafts_only_make_calls_cheap(loaded: Any, generator: Any, passes: list[int]) -> None:
    from exllamav2 import ExLlamaV2Cache
    from exllamav2.generator import ExLlamaV2StreamingGenerator

    ids = generator.tokenizer.encode("The quick brown fox")
    generator.begin_stream_ex(ids, settings())
    expected = [result["chunk_token_ids"].tolist() for result in stream(generator, 8)]
    drafted = ExLlamaV2StreamingGenerator(
        loaded.model, ExLlamaV2Cache(loaded.model), loaded.tokenizer, loaded.model, None, 3
    )
    drafted.speculative_prob_threshold = 0.0
    drafted.begin_stream_ex(ids, settings())
    assert [result["chunk_token_ids"].tolist() for result in stream(drafted, 8)] == expected
    efficiency, accuracy, total, guessed, accepted = drafted.get_sd_stats()
    assert total == 8 and 0 < accepted <= guessed and efficiency == accepted / 8 and accuracy == accepted / guessed
    drafted.reset_sd_stats()
    assert drafted.get_sd_stats()[2:] == (0, 0, 0)


def test_filters(generator: Any) -> None:
    from exllamav2.generator import ExLlamaV2BaseGenerator
    from exllamav2.generator.filters import ExLlamaV2SelectFilter

    assert isinstance(generator, ExLlamaV2BaseGenerator)

    chosen = ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["yes, please", "no"])
    generator.begin_stream_ex(generator.tokenizer.encode("hello"), settings(), filters=[chosen])
    results = stream(generator, 20)
    assert results[-1]["eos"] and "".join(result["chunk"] for result in results) in ("yes, please", "no")


def test_healing_gives_what_is_added_only(generator: Any) -> None:
    pieces = generator.tokenizer.get_id_to_piece_list()
    ids = torch.tensor([[generator.tokenizer.single_id(text) for text in ("The", " he")]])
    generator.begin_stream_ex(ids, settings(), token_healing=True)
    result = generator.stream_ex()
    healed, following = (pieces[int(token)] for token in generator.sequence_ids[0, 1:3])
    assert healed.startswith(" he") and generator.sequence_ids.shape[1] == 3
    if "\ufffd" not in following:
        assert result["chunk"] == healed.removeprefix(" he") + following


def test_the_end_of_the_context_shows(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator.model.config, "max_seq_len", 12)
    generator.set_stop_conditions([])
    generator.begin_stream_ex(torch.arange(3, 13).unsqueeze(0), settings())
    assert not generator.full()
    generator.stream_ex()
    generator.stream_ex()
    assert generator.full()


def test_filters_begin_with_the_first_call(generator: Any) -> None:
    from exllamav2.generator.filters import ExLlamaV2Filter

    calls: list[Any] = []

    class Observed(ExLlamaV2Filter):  # type: ignore[misc]
        def begin(self, prefix_str: str) -> None:
            calls.append(prefix_str)

        def feed(self, token: Any) -> None:
            calls.append(int(token))

        def next(self) -> Any:
            calls.append("next")
            return None, set()

    ids = torch.tensor([[generator.tokenizer.single_id(text) for text in ("The", " he")]])
    generator.begin_stream_ex(ids, settings(), filters=[Observed(None, None)])
    assert calls == []
    generator.stream_ex()
    assert calls == ["", "next", generator.sequence_ids[0, -1]]
    del calls[:]
    generator.begin_stream_ex(ids, settings(), token_healing=True, filters=[Observed(None, None)])
    generator.stream_ex()
    assert calls == [" he", "next", generator.sequence_ids[0, 1], "next", generator.sequence_ids[0, 2]]
