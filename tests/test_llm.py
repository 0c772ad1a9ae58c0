"""One object for a model: what it writes keeps to the constraints, and its limits are said clearly.

The model has random weights, so whatever keeps the form is the constraint's doing.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from pydantic import Field

import constrain
from constrain import LLM, ExLlamaV2Cache_TP
from constrain.engine import GrammarCache
from constrain.errors import (
    ArgumentError,
    BudgetError,
    DeadEnd,
    ExtractionError,
    FilterError,
    GenerationError,
    GenerationTimeout,
    GrammarError,
    ModelError,
    SchemaError,
    TokenizerError,
)
from constrain.extract import Target
from constrain.filters import ExLlamaV2RegexFilter, NamedFilter
from constrain.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler
from constrain.llm import load_model
from constrain.model.memory import token_bytes
from constrain.runtime import Runtime

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@dataclass
class Person:
    name: Annotated[str, Field(max_length=8)]
    kind: Literal["a", "b"]
    age: Annotated[int, Field(ge=0, le=120)]


def biased(llm: LLM, text: str) -> ExLlamaV2Sampler.Settings:
    """Settings that take the token of a text wherever it is allowed."""
    settings = ExLlamaV2Sampler.Settings()
    settings.token_bias = torch.zeros(llm.model.config.padded_vocab_size)
    settings.token_bias[llm.tokenizer.single_id(text)] = 1e4
    return settings


def regex(llm: LLM, pattern: str) -> ExLlamaV2RegexFilter:
    return ExLlamaV2RegexFilter(llm.model, llm.tokenizer, pattern)


def short_prompt(schema: object, text: str) -> str:
    return text + "\n"


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir, prompt=short_prompt)


@pytest.mark.parametrize("seed", range(4))
def test_a_record_is_a_value_of_its_type(llm: LLM, seed: int) -> None:
    result = llm.extract(Person, "hello", settings=ExLlamaV2Sampler.Settings(), seed=seed)
    assert isinstance(result.value, Person)
    assert result.json == {"name": result.value.name, "kind": result.value.kind, "age": result.value.age}
    assert re.fullmatch(r'\{"name": ?".*", ?"kind": ?"[ab]", ?"age": ?\d+\}', result.text)
    assert result.finish_reason == "stop"
    assert llm.tokenizer.decode(torch.tensor(result.tokens)) == result.text


@pytest.mark.parametrize("seed", range(3))
def test_fields_may_be_taken_from_the_document(llm: LLM, seed: int) -> None:
    quote = {"type": "string", "minLength": 3, "maxLength": 12, "x-verbatim": {"source": "text"}}
    text = 'He said "hello there",\nand left.'
    found = llm.extract(quote, text, settings=ExLlamaV2Sampler.Settings(), seed=seed).value
    assert found in text and 3 <= len(found) <= 12


def test_a_dict_gives_json(llm: LLM) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    result = llm.extract(schema, "hello")
    assert result.value == result.json
    assert len(result.value) == 2


def test_a_target_is_taken(llm: LLM) -> None:
    assert llm.extract(Target.of(Literal["x", "y"]), "hello").value in ("x", "y")


def test_constraints_hold(llm: LLM) -> None:
    assert re.fullmatch(r"[0-9]{2}:[0-9]{2}", llm.generate("hello", regex=r"[0-9]{2}:[0-9]{2}").text)
    assert llm.generate("hello", choices=["yes", "no"]).text in ("yes", "no")
    assert llm.generate("hello", grammar='start: "a" "b"~2').text == "abb"
    assert llm.generate("hello", grammar='start: "a" @b', grammars={"b": 'start: "b"~2'}).text == "abb"
    assert llm.generate("hello", grammar='root ::= "a" b\nb ::= "b"{2}').text == "abb"
    assert llm.generate("hello", prefix="The ", max_new_tokens=10).text.startswith("The ")
    assert llm.generate("hello", json_schema=bool).text in ("true", "false")
    assert json.loads(llm.generate("hello", json_schema={"const": [1]}).text) == [1]


def test_constraints_hold_together(llm: LLM) -> None:
    digits = ExLlamaV2RegexFilter(llm.model, llm.tokenizer, "[0-4]+")
    text = llm.generate("hello", regex="[3-9]{3}", prefix="34", filters=[digits]).text
    assert re.fullmatch("34[34]", text)


def test_constraints_that_exclude_each_other_are_called_by_their_arguments(llm: LLM) -> None:
    with pytest.raises(DeadEnd, match=r"^regex and prefix: no token is allowed by all of them") as caught:
        llm.generate("hello", regex="a+", prefix="b")
    assert caught.value.filters == ("regex", "prefix")
    with pytest.raises(DeadEnd, match=r"^ExLlamaV2RegexFilter and choices"):
        llm.generate("hello", choices=["a", "b"], filters=[regex(llm, "c")])
    outputs = llm.generate_many(["hello"], json_schema={"type": "null"}, grammar='start: "x"')
    assert [str(each.error).partition(":")[0] for each in outputs] == ["json_schema and grammar"]
    with pytest.raises(DeadEnd, match=r"^schema and the filter regex: "):
        llm.extract(Person, "hello", filters=[NamedFilter("regex", {"pattern": "x"})])


def test_a_filter_follows_one_request_at_a_time(llm: LLM) -> None:
    same = regex(llm, "[a-c]{9}")
    with llm.generate("hello", filters=[same], stream=True) as stream:
        begun = next(stream)
        with pytest.raises(FilterError, match=r"ExLlamaV2RegexFilter: follows another request .*clone\(\)"):
            llm.generate("hello", filters=[same])
        with pytest.raises(FilterError, match="follows another request"):
            llm.extract(str, "hello", filters=[regex(llm, '"x*"'), same])
        assert re.fullmatch("[a-c]{9}", begun + "".join(stream))
    with pytest.raises(BudgetError):
        llm.generate("hello", filters=[same], max_new_tokens=1)
    assert re.fullmatch("[a-c]{9}", llm.generate("hello", filters=[same]).text)


def test_a_seed_makes_the_draw_reproducible(llm: LLM) -> None:
    texts = {llm.generate("hello", max_new_tokens=12, seed=7).text for _ in range(3)}
    others = {llm.generate("hello", max_new_tokens=12, seed=seed).text for seed in range(5)}
    assert len(texts) == 1
    assert len(others) > 1


def test_where_the_tokens_run_out(llm: LLM) -> None:
    endless = ExLlamaV2Sampler.Settings()
    endless.disallow_tokens(llm.tokenizer, [llm.tokenizer.eos_token_id])
    free = llm.generate("hello", max_new_tokens=5, settings=endless)
    assert (free.finish_reason, len(free.tokens), free.complete) == ("length", 5, True)
    assert llm.generate("hello", regex="ab", max_new_tokens=50).finish_reason == "stop"
    cut = llm.generate("hello", regex="(ab)*", max_new_tokens=7)
    assert re.fullmatch("(ab)*", cut.text) and cut.complete


def test_a_budget_that_is_too_small_is_refused_at_once(llm: LLM) -> None:
    with pytest.raises(BudgetError, match=r"a budget of 5 tokens is too small: the shortest text takes 50"):
        llm.generate("hello", regex="[a-c]{50}", max_new_tokens=5)
    with pytest.raises(BudgetError, match="a budget of 6 tokens") as caught:
        llm.extract(Person, "hello", max_new_tokens=6)
    record = llm.extract(Person, "hello", max_new_tokens=caught.value.needed)
    assert len(record.tokens) <= caught.value.needed


@pytest.mark.parametrize("seed", range(3))
def test_json_is_complete_within_the_budget(llm: LLM, seed: int) -> None:
    written = llm.generate("hello", json_schema={"type": "array", "minItems": 1}, max_new_tokens=12, seed=seed)
    assert json.loads(written.text) and written.complete and len(written.tokens) <= 12


class Unbudgeted(ExLlamaV2RegexFilter):
    """A filter whose masks know of no budget."""

    def fill_bitmask(self, bits: np.ndarray | torch.Tensor, row: int = 0) -> bool:  # type: ignore[override]
        return super().fill_bitmask(bits, row)


def test_what_no_budget_holds_for_is_incomplete(llm: LLM) -> None:
    free = Unbudgeted(llm.model, llm.tokenizer, "a*b")
    written = llm.generate("hello", filters=[free], max_new_tokens=8, settings=biased(llm, "a"))
    assert (written.text, written.finish_reason, written.complete) == ("a" * 8, "length", False)
    whole = llm.generate("hello", regex="a*b", max_new_tokens=8, settings=biased(llm, "a"))
    assert (whole.text, whole.complete) == ("a" * 7 + "b", True)


def test_constraints_that_only_together_fit_no_budget(llm: LLM) -> None:
    with pytest.raises(DeadEnd, match="no token is allowed by all of them"):
        llm.generate("hello", regex="(aaaa)+", filters=[regex(llm, "(aaa)+")], max_new_tokens=5)


def test_a_loop_is_told_from_a_text_that_was_cut(llm: LLM) -> None:
    loop = llm.generate("hello", regex="a*", max_new_tokens=20, settings=biased(llm, "a"))
    assert (loop.text, loop.finish_reason) == ("a" * 20, "repetition")
    closed = llm.generate("hello", regex='"a*[b-d]{10}"', max_new_tokens=40, settings=biased(llm, "a"))
    assert (closed.finish_reason, closed.complete) == ("repetition", True)
    assert llm.generate("hello", regex="a{16}b", settings=biased(llm, "a")).finish_reason == "stop"
    assert llm.generate("hello", regex="(xq){10}", max_new_tokens=20).finish_reason == "length"


def test_a_record_for_which_the_context_is_too_small(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_seq_len=16, prompt=short_prompt)
    with pytest.raises(ExtractionError, match=r"the context of 16 tokens leaves no room for the document"):
        llm.extract(Person, "hello")
    with pytest.raises(GenerationError, match=r"which leaves .* for an answer of at least 99: shorten the text"):
        llm.generate("hello", regex="[a-c]{99}")


def test_a_record_that_is_complete_with_the_last_token_is_no_error(llm: LLM) -> None:
    needed = len(llm.extract(Person, "hello").tokens)
    result = llm.extract(Person, "hello", max_new_tokens=needed)
    assert (result.finish_reason, len(result.tokens)) == ("length", needed)


def test_a_prompt_that_is_too_long_is_named(llm: LLM) -> None:
    with pytest.raises(GenerationError, match=r"the prompt has \d+ tokens and the context 256"):
        llm.generate("hello " * 300)


def test_a_document_that_is_too_long_is_read_in_chunks(llm: LLM) -> None:
    result = llm.extract(Person, "hello " * 300)
    assert isinstance(result.value, Person) and result.usage.prompt_tokens > 256


def test_the_answer_gets_what_the_context_has_left(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_seq_len=32)
    answer = llm.generate("hello", regex="a{10,100}", max_new_tokens=100, settings=biased(llm, "a"))
    assert answer.prompt_tokens + len(answer.tokens) == 32


def test_no_tokens_at_all_is_refused(llm: LLM) -> None:
    with pytest.raises(ArgumentError, match="max_new_tokens must be a whole number of at least 1, not 0"):
        llm.generate("hello", max_new_tokens=0)


def test_choose_returns_an_option(llm: LLM) -> None:
    options = ["one", "one hundred", "zwölf"]
    assert llm.choose("hello", options) in options
    assert llm.choose("hello", ["only"]) == "only"


@pytest.mark.parametrize("options", [[], "yes"])
def test_options_are_a_list_that_is_not_empty(options: Sequence[str], llm: LLM) -> None:
    with pytest.raises(GrammarError, match=r"choice|options must be a list"):
        llm.choose("hello", options)


def test_grammars_without_the_one_that_refers_to_them_are_refused(llm: LLM) -> None:
    with pytest.raises(GrammarError, match="grammar, which is missing"):
        llm.generate("hello", grammars={"b": 'start: "b"'})


def test_a_schema_that_cannot_be_used_is_named(llm: LLM) -> None:
    with pytest.raises(SchemaError) as caught:
        llm.extract({"properties": {"a": {"type": "strin"}}}, "hello")
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a", "type")


def test_schemas_compile_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = GrammarCache()
    monkeypatch.setattr("constrain.extract.extractor.grammar_cache", cache)
    for n in (0, 1, 0, 1):
        assert llm.extract({"const": n}, "hello").value == n
    assert len(cache) == 2


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=str(tmp_path)):
        constrain.load(tmp_path)


def test_several_texts_have_the_seeds_that_follow(llm: LLM) -> None:
    several = llm.generate("hello", n=3, seed=7, max_new_tokens=12)
    assert [each.text for each in several] == [
        llm.generate("hello", seed=seed, max_new_tokens=12).text for seed in (7, 8, 9)
    ]
    assert [each.index for each in several] == [0, 1, 2]
    times = llm.generate("hello", n=4, regex=r"[0-9]{2}:[0-9]{2}", filters=[regex(llm, "[0-4:]*")])
    assert all(re.fullmatch(r"[0-4]{2}:[0-4]{2}", each.text) for each in times)
    with pytest.raises(ArgumentError, match="a stream is of one text, not of n=2"):
        llm.generate("hello", n=2, stream=True)  # type: ignore[call-overload]


def test_settings_may_be_given_by_themselves(llm: LLM) -> None:
    greedy = llm.generate("hello", max_new_tokens=12, settings=GREEDY).text
    assert llm.generate("hello", max_new_tokens=12, top_k=1).text == greedy
    assert llm.generate("hello", max_new_tokens=12, settings=ExLlamaV2Sampler.Settings(), top_k=1).text == greedy
    assert {
        llm.generate("hello", max_new_tokens=12, settings=GREEDY, top_k=50, top_p=1, seed=s).text for s in range(3)
    } != {greedy}
    with pytest.raises(ArgumentError, match="temperature must be a finite number"):
        llm.generate("hello", temperature=-1)
    record = llm.extract(Person, "hello", seed=1).json
    assert record == llm.extract(Person, "hello", seed=2).json
    assert {str(llm.extract(Person, "hello", temperature=1.5, seed=seed).json) for seed in range(4)} != {str(record)}


def test_stop_conditions_end_the_text(llm: LLM) -> None:
    text = llm.generate("hello", regex="a{3}b{20}", stop="bb")
    assert (text.text, text.finish_reason) == ("aaa", "stop")
    token = llm.tokenizer.single_id("b")
    assert token is not None
    assert llm.generate("hello", regex="a{3}b{20}", stop=[token, "zz"]).text == "aaa"


def test_what_a_stop_condition_cuts_off_is_incomplete(llm: LLM) -> None:
    token = llm.tokenizer.single_id("b")
    assert token is not None
    for stop in ("b", token):
        assert not llm.generate("hello", regex="aab", stop=stop).complete
        assert llm.generate("hello", regex="aab?", stop=stop, settings=biased(llm, "b")).complete
    assert llm.generate("hello", regex="aab", stop="c").complete


def test_text_that_might_have_begun_a_stop_string_is_not_lost(llm: LLM) -> None:
    result = llm.generate("hello", regex="abc end", stop=["d!"])
    assert (result.text, result.finish_reason, result.complete) == ("abc end", "stop", True)
    assert llm.tokenizer.decode(torch.tensor(result.tokens)) == "abc end"


@pytest.mark.parametrize("limit", [5, 6])
def test_a_stop_string_in_the_last_token_ends_the_text(llm: LLM, limit: int) -> None:
    result = llm.generate("hello", regex="abxyz[cd]*", stop=["xyz"], max_new_tokens=limit)
    assert (result.text, result.finish_reason) == ("ab", "stop")


def test_log_probabilities_are_those_of_the_model(llm: LLM) -> None:
    written = llm.generate("hello", regex="[ab]{4}", logprobs=3, seed=1)
    assert written.logprobs is not None and len(written.logprobs) == len(written.tokens)
    ids = llm.tokenizer.encode("hello", add_bos=True)
    ids = torch.cat([ids, torch.tensor([written.tokens])], dim=1)
    expected = llm.model.forward(ids, last_id_only=False)[0, :, : llm.tokenizer.get_vocab_size()].log_softmax(-1)
    for place, (token, found) in enumerate(
        zip(written.tokens, written.logprobs, strict=True), written.prompt_tokens - 1
    ):
        assert found.logprob == pytest.approx(float(expected[place, token]), abs=1e-3)
        values, top = expected[place].topk(3)
        assert [token for token, _ in found.top] == top.tolist()
        assert [value for _, value in found.top] == pytest.approx(values.tolist(), abs=1e-3)
    assert llm.generate("hello", max_new_tokens=2).logprobs is None
    bare = llm.generate("hello", max_new_tokens=2, logprobs=0).logprobs
    assert bare is not None and [each.top for each in bare] == [[], []]
    with pytest.raises(ArgumentError, match="logprobs must be a whole number from 0 to"):
        llm.generate("hello", logprobs=10**6)
    hooked = ExLlamaV2Sampler.Settings(post_sampling_hooks=[print])
    with pytest.raises(ArgumentError, match="logprobs cannot be had with post_sampling_hooks"):
        llm.generate("hello", logprobs=1, settings=hooked)


def test_a_stream_has_the_whole_at_its_end(llm: LLM) -> None:
    whole = llm.generate("hello", max_new_tokens=12, seed=2)
    stream = llm.generate("hello", max_new_tokens=12, seed=2, stream=True)
    assert stream.completion is None
    pieces = list(stream)
    assert "".join(pieces) == whole.text and len(pieces) > 1
    assert stream.completion == whole
    assert list(stream) == []


@pytest.mark.parametrize("taken", [0, 2])
def test_a_stream_that_is_closed_or_dropped_cancels_its_request(llm: LLM, taken: int) -> None:
    with llm.generate("hello", max_new_tokens=100, seed=2, stream=True) as stream:
        for _ in range(taken):
            next(stream)
        assert llm.runtime.has_work
    assert not llm.runtime.has_work and list(stream) == [] and stream.completion is None
    dropped = llm.generate("hello", max_new_tokens=100, seed=2, stream=True)
    for _ in range(taken):
        next(dropped)
    del dropped
    assert not llm.runtime.has_work


def test_a_request_that_takes_too_long_is_cancelled(llm: LLM) -> None:
    start = time.monotonic()
    with pytest.raises(GenerationTimeout, match=r"did not end within 0\.02 seconds, and was cancelled") as caught:
        llm.generate("hello", regex="[ab]{200,}", max_new_tokens=230, timeout=0.02)
    assert isinstance(caught.value, TimeoutError) and time.monotonic() - start < 10
    assert not llm.runtime.has_work
    with pytest.raises(GenerationTimeout):
        list(llm.generate("hello", max_new_tokens=200, timeout=0, stream=True))
    with pytest.raises(GenerationTimeout):
        llm.extract(Person, "hello", timeout=0)
    with pytest.raises(ArgumentError, match="timeout must be a finite number of at least 0"):
        llm.generate("hello", timeout=-1)
    assert not llm.runtime.has_work


def test_requests_of_a_higher_priority_start_first(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, max_batch_size=1)
    running = llm.generate("hello", max_new_tokens=20, stream=True)
    next(running)
    low, high = (llm.generate("hello", max_new_tokens=3, priority=priority, stream=True) for priority in (0, 1))
    assert [each.request.priority for each in llm.runtime.scheduler.waiting] == [1, 0]
    assert list(high) and list(low) and list(running)


def test_messages_go_through_the_chat_template(llm: LLM, tiny_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_dir, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}<s>{{ m.content }}{% endfor %}")
    talking = constrain.load(folder)
    messages = [{"role": "user", "content": "hello"}, {"role": "user", "content": "hell"}]
    answer = talking.generate(messages=messages, max_new_tokens=4, settings=GREEDY)
    # The beginning-of-sequence token of a plain prompt is the one that the template writes here.
    assert answer == talking.generate("hello<s>hell", max_new_tokens=4, settings=GREEDY)
    assert (
        answer.prompt_tokens == len(talking.tokenizer.encode("hello")[0]) + len(talking.tokenizer.encode("hell")[0]) + 2
    )
    with pytest.raises(TokenizerError, match="no chat template"):
        llm.generate(messages=messages)
    with pytest.raises(ArgumentError, match="give a prompt or messages, not both"):
        llm.generate("hello", messages=messages)
    with pytest.raises(ArgumentError, match="messages must be a list of dicts"):
        llm.generate(messages="hello")  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="give a prompt, or messages"):
        llm.generate()


def test_the_cache_has_room_for_several_contexts(tiny_dir: Path) -> None:
    sizes = {
        constrain.load(tiny_dir, **options).runtime.cache.max_seq_len  # type: ignore[arg-type]
        for options in ({}, {"max_seq_len": 200})
    }
    assert sizes == {8 * 256}
    assert constrain.load(tiny_dir, max_batch_size=3).runtime.cache.max_seq_len == 3 * 256
    assert constrain.load(tiny_dir, cache_tokens=257).runtime.cache.max_seq_len == 512
    for wrong in ({"max_batch_size": 0}, {"cache_tokens": -1}):
        with pytest.raises(ArgumentError, match="must be a whole number of at least 1"):
            constrain.load(tiny_dir, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"tensor_parallel": ["cpu"] * 3}, {"gpu_split": [0.001]}])
def test_models_are_split_over_devices(tiny_dir: Path, options: dict[str, Any]) -> None:
    split, whole = (constrain.load(tiny_dir, max_seq_len=256, **each) for each in (options, {}))
    assert split.generate("hello", max_new_tokens=9, temperature=0) == whole.generate(
        "hello", max_new_tokens=9, temperature=0
    )
    if "tensor_parallel" in options:
        assert isinstance(split.runtime.cache, ExLlamaV2Cache_TP)
        assert split.runtime.cache.max_seq_len == whole.runtime.cache.max_seq_len


def test_a_cache_takes_half_of_the_free_memory_at_most(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = load_model(tiny_dir)
    per_token = token_bytes(model, constrain.ExLlamaV2Cache)
    for tokens, expected in ((3 * 256 + 5, 3 * 256), (100, 256), (10**6, 8 * 256)):
        monkeypatch.setattr("constrain.llm.loading.free_memory", lambda _, tokens=tokens: [2 * per_token * tokens])
        assert constrain.load(tiny_dir).runtime.cache.max_seq_len == expected
    many = constrain.load(tiny_dir, max_batch_size=10**5)  # more than can run at a time
    assert many.runtime.cache.max_seq_len == many.runtime.max_batch_size * 256


def test_an_llm_of_parts(llm: LLM) -> None:
    cache = constrain.ExLlamaV2Cache(llm.model, max_seq_len=512)
    runtime = Runtime(llm.model, cache, llm.tokenizer)
    generator = constrain.ExLlamaV2DynamicGenerator(llm.model, constrain.ExLlamaV2Cache(llm.model), llm.tokenizer)
    expected = llm.generate("hello", max_new_tokens=8, seed=1)
    for source in (runtime, generator):
        made = LLM(source, prompt=short_prompt)
        assert made.runtime is (source if source is runtime else generator.runtime)
        assert made.generate("hello", max_new_tokens=8, seed=1) == expected
        assert made.extract(Person, "hello").json == llm.extract(Person, "hello").json


def test_a_generator_that_writes_over_the_cache_leaves_no_stale_prefix(llm: LLM) -> None:
    generator = ExLlamaV2BaseGenerator(llm.model, constrain.ExLlamaV2Cache(llm.model), llm.tokenizer)
    made = LLM(generator)
    prompt = "hello there, " * 30
    first = made.generate(prompt, max_new_tokens=8, settings=GREEDY)
    generator.generate_simple("yes, please; " * 30, GREEDY, 8)
    assert made.generate(prompt, max_new_tokens=8, settings=GREEDY) == first


def test_what_happens_is_logged_but_not_what_is_said(tiny_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "constrain"):
        constrain.load(tiny_dir).generate("hello there", max_new_tokens=3)
    messages = [record.getMessage() for record in caplog.records]
    assert any(re.match(r"loaded .*: \d+ bytes of weights in [\d.]+ s", message) for message in messages)
    assert "KV cache of 8 pages of 256 tokens" in messages
    assert any(re.match(r"request 0: \d+ tokens, at most 3 more", message) for message in messages)
    assert any(re.match(r"request 0: max_new_tokens after 3 tokens", message) for message in messages)
    assert not [message for message in messages if "hello" in message]
    assert {record.name for record in caplog.records} == {"constrain.llm.loading", "constrain.runtime.runtime"}
