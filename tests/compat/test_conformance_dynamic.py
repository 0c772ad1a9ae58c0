"""The dynamic generator as programs for exllamav2 rely on it, through the alias."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

Results = list[dict[str, Any]]


@pytest.fixture
def generator(loaded: Any) -> Any:
    from exllamav2.generator import ExLlamaV2DynamicGenerator

    return ExLlamaV2DynamicGenerator(model=loaded.model, cache=loaded.cache, tokenizer=loaded.tokenizer)


@pytest.fixture
def ids_of(loaded: Any) -> Callable[..., list[int]]:
    """Ids of tokens by their texts."""
    return lambda *texts: [loaded.tokenizer.single_id(text) for text in texts]


def make_job(generator: Any, prompt: str | torch.Tensor = "hello", max_new_tokens: int = 8, **options: Any) -> Any:
    from exllamav2.generator import ExLlamaV2DynamicJob, ExLlamaV2Sampler

    ids = generator.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    options = {"gen_settings": ExLlamaV2Sampler.Settings.greedy(), **options}
    return ExLlamaV2DynamicJob(input_ids=ids, max_new_tokens=max_new_tokens, **options)


def run(generator: Any, *args: Any, **options: Any) -> Results:
    """All results of a job that runs by itself."""
    generator.enqueue(make_job(generator, *args, **options))
    results: Results = []
    while generator.num_remaining_jobs():
        results += generator.iterate()
    return results


def streamed(results: Results) -> Results:
    return [result for result in results if result["stage"] == "streaming"]


class Scripted:
    """Settings that draw given tokens, whatever the model says."""

    def __init__(self, tokens: Iterable[int]) -> None:
        self._tokens = iter(tokens)

    def __call__(self, result: Any) -> None:
        result.sampled_token = torch.tensor([[next(self._tokens)]])


def scripted(tokens: Iterable[int]) -> Any:
    from exllamav2.generator import ExLlamaV2Sampler

    return ExLlamaV2Sampler.Settings.greedy(post_sampling_hooks=[Scripted(tokens)])


def recorder(tokens: list[int], background: bool = False, mask: bool = False) -> Any:
    """A filter that allows one token after the other, and notes who asks it for what."""
    from exllamav2.generator.base import ExLlamaV2Filter

    class Recorder(ExLlamaV2Filter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(None, None)
            self.calls: list[Any] = []
            self.threads: list[bool] = []
            self.fed = 0

        def begin(self, prefix_str: str) -> None:
            self.calls.append(("begin", prefix_str))

        def feed(self, token: Any) -> None:
            assert token.shape == (1, 1) and token.dtype == torch.int64
            assert list(range(1000))[token] == int(token[0][0])
            self.calls.append(("feed", int(token)))
            self.fed += 1

        def _asked(self, what: str) -> int:
            self.threads.append(threading.current_thread() is threading.main_thread())
            if self.fed < len(tokens):  # background work may be started once more after the end
                self.calls.append(what)
            return tokens[min(self.fed, len(tokens) - 1)]

        def next(self) -> tuple[list[int], list[int]]:
            return [self._asked("next")], []

        def use_background_worker(self) -> bool:
            return background

        def can_mask_logits(self) -> bool:
            return mask

        def prepare_logit_mask(self) -> bool:
            self._asked("prepare")
            return True

        def mask_logits(self, logits: torch.Tensor) -> torch.Tensor:
            self.calls.append("mask")
            masked = torch.full_like(logits, -torch.inf)
            masked[tokens[self.fed]] = 0.0
            return masked

    return Recorder()


@pytest.mark.parametrize("mode", ["plain", "background", "mask"])
def test_filters_are_called_in_order(
    generator: Any, ids_of: Callable[..., list[int]], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    eos = generator.tokenizer.eos_token_id
    tokens = [*ids_of("yes", "do"), eos]
    observed = recorder(tokens, background=mode == "background", mask=mode == "mask")
    with monkeypatch.context() as patched:
        # Without a GPU, the alias does not ask for masks.
        patched.setattr(torch.cuda, "is_available", lambda: mode == "mask")
        job = make_job(generator, stop_conditions=[eos], filters=[observed])
    generator.enqueue(job)
    results: Results = []
    while generator.num_remaining_jobs():
        results += generator.iterate()
    asked = ["prepare", "mask"] if mode == "mask" else ["next"]
    expected = [("begin", ""), *(call for token in tokens for call in (*asked, ("feed", token)))]
    assert observed.calls == expected
    assert all(observed.threads) or mode == "background"
    assert results[-1]["eos_reason"] == "stop_token" and results[-1]["full_completion"] == "yesdo"


def allowing(passed: Any, ends: Any) -> Any:
    """A filter that always says the same."""
    from exllamav2.generator.filters import ExLlamaV2Filter

    class Allowing(ExLlamaV2Filter):  # type: ignore[misc]
        def begin(self, prefix_str: str) -> None: ...
        def feed(self, token: Any) -> None: ...
        def next(self) -> Any:
            return passed, ends

    return Allowing(None, None)


def test_filters_together_allow_what_each_allows(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    a, b, c = sorted(ids_of("yes", "do", "red"))
    filters = [allowing({a, b}, {a}), allowing([b, c], [b]), allowing(None, None)]
    last = run(generator, filters=filters)[-1]
    assert last["token_ids"].tolist() == [[b]] and last["eos_reason"] == "end_filter"
    last = run(generator, max_new_tokens=3, filters=[allowing({a, b}, set()), allowing([b, c], [])])[-1]
    assert last["eos_reason"] == "max_new_tokens" and last["new_tokens"] == 3
    assert run(generator, max_new_tokens=2, filters=[allowing(None, None)])[-1]["new_tokens"] == 2


def test_a_single_allowed_token_is_taken(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    (yes,) = ids_of("yes")
    results = streamed(run(generator, filters=[allowing([yes], [yes])], return_probs=True))
    assert len(results) == 1 and results[0]["eos"] and results[0]["eos_reason"] == "end_filter"
    assert results[0]["text"] == results[0]["full_completion"] == "yes"
    assert results[0]["token_probs"].tolist() == [[1.0]] and results[0]["token_ids"].tolist() == [[yes]]


def test_the_end_is_preferred_on_demand(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    eos = generator.tokenizer.eos_token_id
    filters = [allowing([eos, *sorted(ids_of("yes", "do"))], [])]
    last = run(generator, filters=filters, filter_prefer_eos=True, stop_conditions=[eos])[-1]
    assert (last["eos_reason"], last["new_tokens"], last["full_completion"]) == ("stop_token", 1, "")
    assert last["eos_triggering_token_id"] == eos and last["eos_triggering_token_str"] == "</s>"


SUMMARY = {
    "job", "stage", "eos", "serial", "eos_reason", "full_completion", "new_tokens", "prompt_tokens", "time_enqueued",
    "time_prefill", "time_generate", "cached_pages", "cached_tokens",
}  # fmt: skip
PLAIN = {"job", "stage", "eos", "serial"}
STOPPED = {"eos_triggering_token_id", "eos_triggering_token_str"}


def test_results_of_a_stop_token(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    eos = generator.tokenizer.eos_token_id
    options = {"stop_conditions": [eos, "yes"]}
    first, last = streamed(run(generator, gen_settings=scripted([*ids_of("do"), eos]), **options))
    assert first.keys() == PLAIN | {"text", "token_ids"}
    assert first["text"] == "do" and first["token_ids"].tolist() == [ids_of("do")]
    assert last.keys() == SUMMARY | STOPPED | {"held"} and last["held"].keys() == {"token_ids"}
    assert (last["eos_reason"], last["full_completion"], last["new_tokens"]) == ("stop_token", "do", 2)
    assert last["held"]["token_ids"].tolist() == [[eos]] and last["prompt_tokens"] == 1


def test_results_of_a_stop_token_in_a_stop_string(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    eos = generator.tokenizer.eos_token_id
    tokens = [*ids_of("y", "e"), eos]
    results = streamed(run(generator, gen_settings=scripted(tokens), stop_conditions=[eos, "yes"]))
    assert [result.keys() for result in results[:2]] == [PLAIN, PLAIN]
    last = results[2]
    assert last.keys() == SUMMARY | STOPPED | {"held"} and last["held"].keys() == {"text", "token_ids"}
    assert (last["eos_reason"], last["full_completion"], last["new_tokens"]) == ("stop_token", "", 3)
    assert last["held"]["text"] == "ye" and last["held"]["token_ids"].tolist() == [tokens]


def test_results_of_a_stop_string(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    tokens = ids_of("do", "y", "es")
    results = streamed(run(generator, gen_settings=scripted(tokens), stop_conditions=["yes"], identifier=0))
    assert [result.get("text") for result in results] == ["do", None, None]
    assert results[1].keys() == PLAIN | {"identifier"}
    last = results[2]
    assert last.keys() == SUMMARY | {"identifier", "eos_triggering_string", "token_ids", "held"}
    assert (last["eos_reason"], last["eos_triggering_string"], last["full_completion"]) == ("stop_string", "yes", "do")
    assert last["token_ids"].tolist() == [tokens[1:]] and last["held"] == {"text": "yes"}


def test_results_of_the_last_token(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    tokens = ids_of("y", "es")
    first, last = streamed(run(generator, "hello", 2, gen_settings=scripted(tokens), stop_conditions=["yes"]))
    assert first.keys() == PLAIN
    assert last.keys() == SUMMARY | {"text", "token_ids"}
    assert (last["eos_reason"], last["text"], last["full_completion"]) == ("max_new_tokens", "yes", "yes")
    assert last["token_ids"].tolist() == [tokens]


def test_banned_strings_are_taken_back(generator: Any) -> None:
    free = run(generator, "The quick", 16)[-1]["full_completion"]
    banned = free[4:7]
    results = streamed(run(generator, "The quick", 16, banned_strings=[banned.upper()]))
    last = results[-1]
    assert banned.lower() not in last["full_completion"].lower()
    assert last["full_completion"] == "".join(result.get("text", "") for result in results)
    suppressed = [result for result in results if "suppressed_text" in result]
    assert suppressed and banned.lower() in suppressed[0]["suppressed_text"].lower()
    assert all("token_ids" not in result and result["suppressed_tokens"].shape[1] > 0 for result in suppressed)
    released = sum(result["token_ids"].shape[1] for result in results if "token_ids" in result)
    assert last["new_tokens"] == released == 16


def test_a_healed_token(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    observed = recorder(ids_of("do", "red"))
    ids = torch.tensor([ids_of("The", " he")])
    results = streamed(run(generator, ids, 2, token_healing=True, filters=[observed]))
    healed = generator.tokenizer.get_id_to_piece_list()[int(results[0]["token_ids"][0, 0])]
    assert healed.startswith(" he")
    assert results[0].get("text", "") == healed.removeprefix(" he")
    last = results[-1]
    assert (last["new_tokens"], last["prompt_tokens"]) == (2, 2)
    assert last["full_completion"] == healed.removeprefix(" he") + "dored"
    assert observed.calls[0] == ("begin", "") and observed.calls.count("next") == 2
    assert sum(result["token_ids"].shape[1] for result in results) == 3


def test_the_least_number_of_tokens(generator: Any, ids_of: Callable[..., list[int]]) -> None:
    from exllamav2.generator import ExLlamaV2Sampler

    do, eos = *ids_of("do"), generator.tokenizer.eos_token_id
    eager = ExLlamaV2Sampler.Settings.greedy(token_bias=torch.zeros(generator.padded_vocab_size))
    eager.token_bias[eos] = 1000.0
    options = {"gen_settings": eager, "filters": [allowing({do, eos}, set())], "stop_conditions": [eos]}
    last = run(generator, min_new_tokens=3, **options)[-1]
    assert (last["eos_reason"], last["full_completion"], last["new_tokens"]) == ("stop_token", "dododo", 4)
    tokens = ids_of("do", "y", "es")
    last = run(generator, gen_settings=scripted(tokens), stop_conditions=["yes"], min_new_tokens=6)[-1]
    assert last["eos_reason"] == "stop_string" and last["new_tokens"] == 3


def prompt_of(length: int, seed: int) -> torch.Tensor:
    return torch.randint(3, 300, (1, length), generator=torch.Generator().manual_seed(seed))


def prefilled(results: Results) -> list[int]:
    return [result["curr_progress"] for result in results if result["stage"] == "prefill"]


def test_pages_are_reused(generator: Any) -> None:
    prompt = prompt_of(600, 1)
    first = run(generator, prompt, 4)
    assert first[-1]["cached_tokens"] == 0 and prefilled(first)[-1] == 599
    again = run(generator, prompt, 4)
    assert (again[-1]["cached_tokens"], again[-1]["cached_pages"]) == (599, 2)
    assert again[-1]["full_completion"] == first[-1]["full_completion"]
    changed = prompt.clone()
    changed[0, 550:] = prompt_of(50, 2)[0]
    assert changed[0, 550] != prompt[0, 550]
    assert run(generator, changed, 4)[-1]["cached_tokens"] == 550


def test_a_whole_page_is_reused_without_a_pass(generator: Any) -> None:
    prompt = prompt_of(257, 3)
    run(generator, prompt, 4)
    again = run(generator, prompt, 4)
    assert (again[-1]["cached_pages"], again[-1]["cached_tokens"]) == (1, 256)
    assert not prefilled(again)


def test_long_prompts_go_in_parts(loaded: Any) -> None:
    from exllamav2.generator import ExLlamaV2DynamicGenerator

    generator = ExLlamaV2DynamicGenerator(loaded.model, loaded.cache, loaded.tokenizer, max_chunk_size=256)
    generator.enqueue(make_job(generator, prompt_of(700, 4), 4))
    rounds = [generator.iterate() for _ in range(3)]
    assert [prefilled(results) for results in rounds] == [[256], [512], [699]]
    assert all(
        result["max_progress"] == 699 for results in rounds for result in results if result["stage"] == "prefill"
    )
    assert [len(streamed(results)) for results in rounds] == [0, 0, 1]
    assert [results[0]["stage"] for results in rounds[:1]] == ["started"]
    generator.clear_queue()
    assert generator.num_remaining_jobs() == 0


def test_generate_takes_a_prompt_or_a_list(generator: Any) -> None:
    from exllamav2.generator import ExLlamaV2Sampler

    options = {"max_new_tokens": 6, "seed": 5, "gen_settings": ExLlamaV2Sampler.Settings(top_k=0, top_p=0)}
    single = generator.generate(prompt="hello", **options)
    assert isinstance(single, str) and single.startswith("hello")
    several = generator.generate(prompt=["hello", "hello"], completion_only=True, **options)
    assert "hello" + several[0] == single
    assert several[1] == generator.generate("hello", completion_only=True, **{**options, "seed": 6}) != several[0]
    assert generator.generate(prompt=["hello"], **options) == [single]
    text, result = generator.generate("hello", return_last_results=True, **options)
    assert text == single and result["eos"] and result["full_completion"] == single.removeprefix("hello")
    texts, results = generator.generate(["hello"], return_last_results=True, **options)
    assert texts == [single] and results[0]["new_tokens"] == 6
    aborted = threading.Event()
    aborted.set()
    assert generator.generate("hello", abort_event=aborted, **options) is None
    assert generator.num_remaining_jobs() == 0


def test_the_small_cache_is_refused(loaded: Any) -> None:
    from exllamav2 import ExLlamaV2Cache_8bit
    from exllamav2.generator import ExLlamaV2DynamicGenerator

    with pytest.raises(RuntimeError, match="8-bit"):
        ExLlamaV2DynamicGenerator(loaded.model, ExLlamaV2Cache_8bit(loaded.model), loaded.tokenizer)
