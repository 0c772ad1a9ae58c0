"""The base generator: every argument of generate_simple, on a tiny model with random weights."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Lora, ExLlamaV2Tokenizer
from constrain.errors import BudgetError, DeadEnd, FilterError, GenerationError
from constrain.filters import ExLlamaV2PrefixFilter, ExLlamaV2RegexFilter, ExLlamaV2SelectFilter
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2PostSamplingResult, ExLlamaV2Sampler

BOS, EOS, PAD = 0, 1, 2
GREEDY = ExLlamaV2Sampler.Settings.greedy()
RANDOM = ExLlamaV2Sampler.Settings(temperature=2.0, top_k=0, top_p=0.0)
PROMPT = "hello there, the quick brown"


@pytest.fixture
def generator(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> ExLlamaV2BaseGenerator:
    return ExLlamaV2BaseGenerator(tiny_model, ExLlamaV2Cache(tiny_model, batch_size=3), tiny_tokenizer)


def reference(model: ExLlamaV2, ids: list[int], count: int) -> list[int]:
    """Greedy continuation without a cache."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(model.forward(torch.tensor([ids]))[0, -1, :380].argmax()))
    return ids


def encode(generator: ExLlamaV2BaseGenerator, text: str) -> list[int]:
    ids: list[int] = generator.tokenizer.encode(text)[0].tolist()
    return ids


def sequence(generator: ExLlamaV2BaseGenerator, row: int = 0) -> list[int]:
    assert generator.sequence_ids is not None
    ids: list[int] = generator.sequence_ids[row].tolist()
    return ids


def test_the_text_is_that_of_the_most_likely_tokens(generator: ExLlamaV2BaseGenerator) -> None:
    text = generator.generate_simple(PROMPT, GREEDY, 20, stop_token=None)
    expected = reference(generator.model, encode(generator, PROMPT), 20)
    assert sequence(generator) == expected
    assert text == generator.tokenizer.decode(torch.tensor(expected))
    assert text.startswith(PROMPT)


def test_calls_start_over(generator: ExLlamaV2BaseGenerator) -> None:
    first = generator.generate_simple(PROMPT, GREEDY, 8)
    generator.generate_simple("something else", GREEDY, 8)
    assert generator.generate_simple(PROMPT, GREEDY, 8) == first


def test_completion_only_leaves_out_the_prompt(generator: ExLlamaV2BaseGenerator) -> None:
    whole = generator.generate_simple(PROMPT, GREEDY, 8)
    assert generator.generate_simple(PROMPT, GREEDY, 8, completion_only=True) == whole[len(PROMPT) :]


def test_a_list_gives_a_list_and_each_row_what_it_would_alone(generator: ExLlamaV2BaseGenerator) -> None:
    prompts = [PROMPT, "yes", "12 345"]
    alone = [generator.generate_simple(prompt, GREEDY, 12) for prompt in prompts]
    assert generator.generate_simple(prompts, GREEDY, 12) == alone
    assert generator.generate_simple([PROMPT], GREEDY, 12) == alone[:1]


def test_a_seed_makes_draws_reproducible_and_leaves_the_global_state(generator: ExLlamaV2BaseGenerator) -> None:
    state = random.getstate()
    first = generator.generate_simple(PROMPT, RANDOM, 12, seed=5)
    assert random.getstate() == state
    assert generator.generate_simple(PROMPT, RANDOM, 12, seed=5) == first
    assert generator.generate_simple(PROMPT, RANDOM, 12, seed=6) != first


def test_without_a_seed_draws_follow_the_global_state(generator: ExLlamaV2BaseGenerator) -> None:
    random.seed(3)
    first = generator.generate_simple(PROMPT, RANDOM, 12)
    assert generator.generate_simple(PROMPT, RANDOM, 12) != first
    random.seed(3)
    assert generator.generate_simple(PROMPT, RANDOM, 12) == first


def forcing(generator: ExLlamaV2BaseGenerator, *ids: int) -> ExLlamaV2Sampler.Settings:
    """Settings whose hook puts the given tokens in place of those sampled."""
    given = iter(ids)

    def hook(result: ExLlamaV2PostSamplingResult) -> None:
        result.sampled_token = torch.full_like(result.sampled_token, next(given))

    return ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[hook])


def test_a_stop_token_ends_the_text_and_is_not_part_of_it(generator: ExLlamaV2BaseGenerator) -> None:
    ids = encode(generator, PROMPT)
    continuation = reference(generator.model, ids, 12)[len(ids) :]
    stop = continuation[6]
    length = len(ids) + continuation.index(stop)
    text = generator.generate_simple(PROMPT, GREEDY, 12, stop_token=stop)
    assert sequence(generator) == [*ids, *continuation][:length]
    assert text == generator.tokenizer.decode(torch.tensor(sequence(generator)))


def test_the_end_of_the_sequence_is_the_default_stop_token(generator: ExLlamaV2BaseGenerator) -> None:
    bias = torch.zeros(384)
    bias[EOS] = 1e4
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias)
    assert generator.generate_simple(PROMPT, settings, 5) == PROMPT
    assert sequence(generator) == encode(generator, PROMPT)
    generator.generate_simple(PROMPT, settings, 5, stop_token=None)
    assert sequence(generator) == [*encode(generator, PROMPT), *[EOS] * 5]


def test_a_row_that_has_stopped_is_padded_while_others_go_on(generator: ExLlamaV2BaseGenerator) -> None:
    prompts = [PROMPT, "yes", "12 345"]
    rows = {p: reference(generator.model, encode(generator, p), 12)[len(encode(generator, p)) :] for p in prompts}
    stop = rows[PROMPT][3]
    texts = generator.generate_simple(prompts, GREEDY, 12, stop_token=stop, completion_only=True)
    for text, prompt in zip(texts, prompts, strict=True):
        row = rows[prompt]
        expected = row[: row.index(stop)] if stop in row else row
        assert text == generator.tokenizer.decode(torch.tensor(expected))
    assert sequence(generator)[-1] == PAD


def test_the_beginning_of_the_sequence_is_put_before_the_prompt(generator: ExLlamaV2BaseGenerator) -> None:
    generator.generate_simple("yes", GREEDY, 2, add_bos=True)
    assert sequence(generator)[:-2] == [BOS, *encode(generator, "yes")]
    assert generator.generate_simple("", GREEDY, 2, add_bos=True, stop_token=None)


def test_special_tokens_in_the_prompt(generator: ExLlamaV2BaseGenerator) -> None:
    generator.generate_simple("yes</s>", GREEDY, 1, encode_special_tokens=True)
    assert sequence(generator)[:-1] == [*encode(generator, "yes"), EOS]


def test_special_tokens_in_the_text(generator: ExLlamaV2BaseGenerator) -> None:
    settings = forcing(generator, EOS, *encode(generator, "yes"))
    text = generator.generate_simple("no", settings, 2, completion_only=True, decode_special_tokens=True)
    assert text == "</s>yes"
    settings = forcing(generator, EOS, *encode(generator, "yes"))
    assert generator.generate_simple("no", settings, 2, completion_only=True) == "yes"


def test_a_long_prompt_is_cut_on_the_left(generator: ExLlamaV2BaseGenerator) -> None:
    long = PROMPT * 60
    ids = encode(generator, long)[-(256 - 10) :]
    generator.generate_simple(long, GREEDY, 10, stop_token=None)
    assert sequence(generator) == reference(generator.model, ids, 10)
    assert generator.full()
    both = generator.generate_simple([long, "yes"], GREEDY, 10, stop_token=None, completion_only=True)
    assert both[1] == generator.generate_simple("yes", GREEDY, 10, stop_token=None, completion_only=True)
    assert not generator.full()


def test_the_cache_limits_the_prompt_too(tiny_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    small = ExLlamaV2BaseGenerator(tiny_model, ExLlamaV2Cache(tiny_model, max_seq_len=32), tiny_tokenizer)
    small.generate_simple(PROMPT * 9, GREEDY, 10, stop_token=None)
    assert len(sequence(small)) == 32


def test_before_the_first_call_nothing_is_full(generator: ExLlamaV2BaseGenerator) -> None:
    assert generator.sequence_ids is None
    assert not generator.full()
    generator.warmup()
    assert generator.cache.current_seq_len == 0


@pytest.mark.parametrize("prompt", [PROMPT, [PROMPT, "yes please", "12 345"]])
def test_a_healed_token_begins_like_the_one_removed(generator: ExLlamaV2BaseGenerator, prompt: Any) -> None:
    pieces = generator.tokenizer.get_id_to_piece_list()
    prompts = [prompt] if isinstance(prompt, str) else prompt
    texts = generator.generate_simple(prompts, GREEDY, 6, token_healing=True, stop_token=None)
    rests = generator.generate_simple(prompts, GREEDY, 6, token_healing=True, stop_token=None, completion_only=True)
    for i, (text, rest, single) in enumerate(zip(texts, rests, prompts, strict=True)):
        ids = encode(generator, single)
        healed = sequence(generator, i)[-6]
        assert pieces[healed].startswith(pieces[ids[-1]])
        assert text == single + rest
        assert sequence(generator, i)[-6 - len(ids) + 1 : -6] == ids[:-1]


def test_healing_extends_a_word(generator: ExLlamaV2BaseGenerator) -> None:
    pieces = generator.tokenizer.get_id_to_piece_list()
    bias = torch.zeros(384)
    bias[pieces.index("hello")] = 1e4
    settings = ExLlamaV2Sampler.Settings.greedy(token_bias=bias)
    arguments: dict[str, Any] = {"token_healing": True, "completion_only": True}
    assert generator.generate_simple("the\nhe", settings, 1, **arguments) == "llo"


@pytest.mark.parametrize("prompt", ["y", "yes</s>", "漢"[:1]])
def test_healing_is_left_out_where_it_means_nothing(generator: ExLlamaV2BaseGenerator, prompt: str) -> None:
    plain = generator.generate_simple(prompt, GREEDY, 6)
    assert generator.generate_simple(prompt, GREEDY, 6, token_healing=True) == plain


class Chatty:
    """A filter that allows everything and writes down what it hears."""

    def __init__(self, result: Any = (None, set())) -> None:
        self.heard: list[Any] = []
        self.result = result

    def begin(self, prefix_str: str) -> None:
        self.heard.append(prefix_str)

    def feed(self, token: torch.Tensor) -> None:
        self.heard.append((tuple(token.shape), int(token[0][0])))

    def next(self) -> Any:
        self.heard.append("next")
        return self.result


def test_filters_hear_of_every_token(generator: ExLlamaV2BaseGenerator) -> None:
    listener = Chatty()
    generator.generate_simple(PROMPT, GREEDY, 3, filters=[listener], stop_token=None)
    fed = [((1, 1), token) for token in sequence(generator)[-3:]]
    assert listener.heard == ["", "next", fed[0], "next", fed[1], "next", fed[2]]


def test_filters_hear_of_the_end_and_of_the_healed_text(generator: ExLlamaV2BaseGenerator) -> None:
    listener = Chatty(({EOS}, set()))
    generator.generate_simple(PROMPT, GREEDY, 3, filters=[listener])
    assert listener.heard == ["", "next", ((1, 1), EOS)]
    listener = Chatty()
    generator.generate_simple(PROMPT, GREEDY, 1, filters=[listener], token_healing=True)
    pieces = generator.tokenizer.get_id_to_piece_list()
    assert listener.heard[0] == pieces[encode(generator, PROMPT)[-1]]


def test_the_text_obeys_the_filter(generator: ExLlamaV2BaseGenerator) -> None:
    model, tokenizer = generator.model, generator.tokenizer
    arguments: dict[str, Any] = {"completion_only": True, "seed": 1}
    select = ExLlamaV2SelectFilter(model, tokenizer, ["yes please", "no, thanks"])
    text = generator.generate_simple(PROMPT, RANDOM, 20, filters=[select], **arguments)
    assert text in ("yes please", "no, thanks")
    regex = ExLlamaV2RegexFilter(model, tokenizer, "[0-9]{3}-[a-f]{4}é")
    text = generator.generate_simple(PROMPT, RANDOM, 20, filters=[regex], **arguments)
    assert text[:3].isdigit()
    assert (text[3], text[-1], len(text)) == ("-", "é", 9)
    both = [ExLlamaV2PrefixFilter(model, tokenizer, "hel"), ExLlamaV2RegexFilter(model, tokenizer, "[a-z]{6}")]
    text = generator.generate_simple(PROMPT, RANDOM, 20, filters=both, **arguments)
    assert text.startswith("hel")
    assert len(text) == 6


def test_a_filter_ends_the_text_without_a_stop_token(generator: ExLlamaV2BaseGenerator) -> None:
    for constraint in (
        ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "yes"),
        ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["yes"]),
    ):
        text = generator.generate_simple(
            PROMPT, GREEDY, 20, filters=[constraint], stop_token=None, completion_only=True
        )
        assert text == "yes"
        assert len(sequence(generator)) < len(encode(generator, PROMPT)) + 5


def test_filters_hold_for_what_follows_a_healed_token(generator: ExLlamaV2BaseGenerator) -> None:
    constraint = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "llo[0-9]{2}")
    text = generator.generate_simple("the\nhe", RANDOM, 20, filters=[constraint], token_healing=True, seed=2)
    assert text.startswith("the\nhello")
    assert text[-2:].isdigit()
    select = ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["llo!"])
    arguments: dict[str, Any] = {"token_healing": True, "completion_only": True}
    assert generator.generate_simple("the\nhe", GREEDY, 20, filters=[select], **arguments) == "llo!"


def test_the_end_is_preferred_as_soon_as_filters_allow_it(generator: ExLlamaV2BaseGenerator) -> None:
    constraint = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "[a-z]{2,200}")
    arguments: dict[str, Any] = {"filters": [constraint], "completion_only": True, "seed": 1}
    text = generator.generate_simple(PROMPT, RANDOM, 30, filter_prefer_eos=True, **arguments)
    assert 2 <= len(text) <= 8
    assert len(generator.generate_simple(PROMPT, RANDOM, 30, **arguments)) > len(text)


def test_a_constrained_text_is_complete_within_its_tokens(generator: ExLlamaV2BaseGenerator) -> None:
    constraint = ExLlamaV2RegexFilter(generator.model, generator.tokenizer, "<[a-z]*>")
    arguments: dict[str, Any] = {"filters": [constraint], "completion_only": True, "seed": 1}
    assert generator.generate_simple(PROMPT, RANDOM, 5, **arguments).endswith(">")
    assert not generator.generate_simple(PROMPT, RANDOM, 5, complete_within_budget=False, **arguments).endswith(">")
    with pytest.raises(BudgetError):
        generator.generate_simple(PROMPT, RANDOM, 1, **arguments)


class Raising(Chatty):
    def next(self) -> Any:
        raise ValueError("out of ideas")


def test_a_failing_filter_leaves_the_generator_working(generator: ExLlamaV2BaseGenerator) -> None:
    expected = generator.generate_simple(PROMPT, GREEDY, 5)
    with pytest.raises(FilterError, match=r"Raising: next\(\) raised ValueError: out of ideas"):
        generator.generate_simple(PROMPT, GREEDY, 5, filters=[Raising()])
    with pytest.raises(DeadEnd, match="Chatty: no token is allowed"):
        generator.generate_simple(PROMPT, GREEDY, 5, filters=[Chatty((set(), set()))])
    assert generator.generate_simple(PROMPT, GREEDY, 5) == expected


def test_hooks_see_and_replace_tokens(generator: ExLlamaV2BaseGenerator) -> None:
    seen: list[ExLlamaV2PostSamplingResult] = []
    listener = Chatty()
    settings = forcing(generator, 50, 51)
    settings.post_sampling_hooks.insert(0, seen.append)
    generator.generate_simple(PROMPT, settings, 2, filters=[listener])
    assert sequence(generator)[-2:] == [50, 51]
    assert [heard[1] for heard in listener.heard if isinstance(heard, tuple)] == [50, 51]
    assert seen[0].sampled_prob.tolist() == [[1.0]]
    assert seen[0].logits.shape == (1, 1, 384)
    assert seen[0].candidate_tokens is None


def test_hooks_may_keep_a_token_from_the_filters(generator: ExLlamaV2BaseGenerator) -> None:
    def mute(result: ExLlamaV2PostSamplingResult) -> None:
        result.feed_filters = False

    listener = Chatty()
    settings = ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[mute])
    generator.generate_simple(PROMPT, settings, 2, filters=[listener], stop_token=None)
    assert listener.heard == ["", "next", "next"]


class Countdown(threading.Event):
    """Is set after it was looked at a number of times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_an_event_ends_the_text_early(generator: ExLlamaV2BaseGenerator) -> None:
    event = threading.Event()
    event.set()
    settings = ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[lambda result: event.set()])
    text = generator.generate_simple(PROMPT, settings, 9, abort_event=event)
    assert text == generator.generate_simple(PROMPT, GREEDY, 1)
    assert generator.generate_simple(PROMPT, GREEDY, 9, abort_event=Countdown(0)) == ""
    assert generator.generate_simple([PROMPT, "yes"], GREEDY, 9, abort_event=Countdown(0)) == ["", ""]


def test_embeddings_take_the_place_of_the_placeholder(generator: ExLlamaV2BaseGenerator, tiny_dir: Path) -> None:
    ids = encode(generator, " the")
    table = generator.model.modules[0].weight  # type: ignore[attr-defined]
    rows = table[ids].unsqueeze(0)
    expected = generator.generate_simple("hello the fox", GREEDY, 8, completion_only=True)
    actual = generator.generate_simple(
        "hello{{EMBED_HERE}} fox", GREEDY, 8, input_embeddings=rows, completion_only=True
    )
    assert actual == expected
    both = generator.generate_simple(
        ["hello{{EMBED_HERE}} fox"] * 2,
        GREEDY,
        8,
        input_embeddings=torch.cat([rows, torch.randn_like(rows)]),
        completion_only=True,
    )
    assert both[0] == expected
    assert both[1] != expected
    last = generator.generate_simple("hello{{EMBED_HERE}}", GREEDY, 8, input_embeddings=rows, completion_only=True)
    assert last == generator.generate_simple("hello the", GREEDY, 8, completion_only=True)
    with pytest.raises(GenerationError, match="EMBED_HERE}} exactly once"):
        generator.generate_simple("hello", GREEDY, 8, input_embeddings=rows)
    with pytest.raises(GenerationError, match=r"must have shape \(1, n, 32\), not"):
        generator.generate_simple("{{EMBED_HERE}}", GREEDY, 8, input_embeddings=rows[0])


@pytest.fixture
def lora(tiny_model: ExLlamaV2, tmp_path: Path) -> Iterator[ExLlamaV2Lora]:
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = {f"{name}.lora_A.weight": torch.randn(4, 32), f"{name}.lora_B.weight": torch.randn(32, 4)}
    save_file(weights, tmp_path / "adapter_model.safetensors")
    config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    adapter = ExLlamaV2Lora.from_directory(tiny_model, tmp_path)
    yield adapter
    adapter.unload()


def test_adapters_are_applied(generator: ExLlamaV2BaseGenerator, lora: ExLlamaV2Lora) -> None:
    plain = generator.generate_simple(PROMPT, GREEDY, 12)
    adapted = generator.generate_simple(PROMPT, GREEDY, 12, loras=lora)
    assert adapted != plain
    assert generator.generate_simple(PROMPT, GREEDY, 12, loras=[lora]) == adapted
    assert generator.generate_simple(PROMPT, GREEDY, 12) == plain


def test_guidance_draws_one_token_for_both_prompts(generator: ExLlamaV2BaseGenerator) -> None:
    settings = ExLlamaV2Sampler.Settings.greedy(cfg_scale=1.0)
    texts = generator.generate_simple([PROMPT, "yes"], settings, 6, completion_only=True)
    alone = generator.generate_simple(PROMPT, GREEDY, 6, completion_only=True)
    assert texts == [alone, alone]
    select = ExLlamaV2SelectFilter(generator.model, generator.tokenizer, ["yes"])
    arguments: dict[str, Any] = {"filters": [select], "completion_only": True}
    assert generator.generate_simple([PROMPT, "no"], settings, 6, **arguments) == ["yes", "yes"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"prompt": ["a"] * 4}, "4 prompts do not fit a cache with batch_size=3"),
        ({"prompt": ["a", "b"], "filters": [Chatty()]}, "filters constrain a single sequence"),
        ({"prompt": ""}, "prompt 0 has no token"),
        ({"prompt": ["a", ""]}, "prompt 1 has no token"),
        ({"prompt": []}, "list of prompts is empty"),
        ({"prompt": "a", "num_tokens": 256}, "num_tokens=256 leaves no room for a prompt in 256 positions"),
        ({"prompt": "a", "gen_settings": ExLlamaV2Sampler.Settings(cfg_scale=2.0)}, "guidance takes two prompts"),
    ],
)
def test_requests_that_cannot_be_carried_out(
    generator: ExLlamaV2BaseGenerator, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(GenerationError, match=complaint):
        generator.generate_simple(**{"gen_settings": GREEDY, "num_tokens": 5, **arguments})
