"""Passes over a paged KV cache, eager or graphed, match each sequence running alone in a cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from constrain import ExLlamaV2Tokenizer
from constrain.errors import GenerationError
from constrain.kernels import attention
from constrain.model import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2CacheBase,
    Intervention,
)
from constrain.runtime import Request, Runtime, SamplingParams, attention_metadata
from constrain.runtime.cuda_graphs import DecodeGraphRunner, padded_width
from constrain.runtime.forward_batch import BatchRow
from constrain.runtime.model_runner import ModelRunner

SIZE = 16
PROMPT = 13
FAMILIES = [
    "llama",
    "llama_biases",
    "llama_tied",
    "mistral_window",
    "phi3_longrope",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2_moe",
    "smollm3",
    "glm4",
    "olmo2",
    "cohere_qk_norm",
    "cohere2",
    "starcoder2",
    "gpt_oss",
    "deepseek_v2_groups",
    "deepseek_v3",
    "gemma2",
    "gemma3",
    "phi3_window",
]
BLOCK_TABLES = [[5, 1], [3, 2], [0, 4], [6, 7]]


@pytest.fixture
def ids() -> torch.Tensor:
    """Return three sequences, each longer than a page."""
    return torch.randint(3, 99, (3, 21), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def llama(checkpoint: Any) -> ExLlamaV2:
    loaded: ExLlamaV2 = checkpoint("llama").load()
    return loaded


def rows(ids: torch.Tensor, start: int, end: int) -> list[BatchRow]:
    """Return batch rows of the same slice of every sequence."""
    return [BatchRow(row[start:end].tolist(), start, table) for row, table in zip(ids, BLOCK_TABLES, strict=False)]


def prefilled(model: ExLlamaV2, ids: torch.Tensor, kind: type[ExLlamaV2CacheBase] = ExLlamaV2Cache) -> ModelRunner:
    """Return a runner with the prompts of all sequences in its cache."""
    runner = ModelRunner(model, kind(model, max_seq_len=8 * SIZE), SIZE)
    for row in rows(ids, 0, PROMPT):
        runner.prefill([row])
    return runner


def graphs_of(runner: ModelRunner) -> DecodeGraphRunner:
    return DecodeGraphRunner(
        runner.model, runner.cache, runner.page_size, runner.history, runner.sampled, runner.uploads
    )


def eager_logits(runner: ModelRunner, batch: Sequence[BatchRow]) -> torch.Tensor:
    """Return the logits of every token of an eager pass."""
    out = runner.decode(batch)
    with torch.inference_mode():
        return runner.model.head(out.states, out.context).float()


def graph_logits(graphs: DecodeGraphRunner, model: ExLlamaV2, batch: Sequence[BatchRow]) -> torch.Tensor:
    """Return the logits of every token of a graph pass, without padding."""
    graph = graphs.run(batch, ())
    with torch.inference_mode():
        logits = model.head(graph.states, graph.context).float()
    places = [i * graph.batch.width + j for i, row in enumerate(batch) for j in range(len(row.ids))]
    return logits[places]


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", ExLlamaV2Cache),
        ("llama", ExLlamaV2Cache_Q4),
        ("mistral_window", ExLlamaV2Cache),
        ("gpt_oss", ExLlamaV2Cache),
        ("gemma2", ExLlamaV2Cache),
        ("deepseek_v3", ExLlamaV2Cache),
    ],
)
def test_prompt_chunks_in_one_pass_match_those_in_passes_of_their_own(
    checkpoint: Any, ids: torch.Tensor, family: str, kind: type[ExLlamaV2CacheBase]
) -> None:
    model = checkpoint(family).load()
    alone, together = (ModelRunner(model, kind(model, max_seq_len=8 * SIZE), SIZE) for _ in range(2))
    for start, end in ((0, 9), (9, 20)):
        chunks = rows(ids, start, end)
        chunks[2] = chunks[2]._replace(ids=chunks[2].ids[: end - start - 2 * (end == 20)])
        together.prefill(chunks)
        for chunk in chunks:
            alone.prefill([chunk])
    for expected, found in zip(alone.paged_tensors(), together.paged_tensors(), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_short_prompts_through_graphs_are_as_without(
    checkpoint: Any, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model = checkpoint(name).load()
    eager, replayed = (ModelRunner(model, ExLlamaV2Cache(model, max_seq_len=8 * SIZE), SIZE) for _ in range(2))
    chunks = [*rows(ids, 0, 9), *rows(ids, 9, 12)]
    runs = [chunks[:1], [chunks[1], chunks[2]._replace(ids=chunks[2].ids[:3])], [chunks[3], chunks[4]]]
    for run in runs:
        eager.prefill(run)
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: True))
    monkeypatch.setattr(ModelRunner, "capture", None)
    for run in runs:
        assert replayed._replays_prefill(run)
        replayed.prefill(run)
    for row in (chunks[3], chunks[4]):
        for expected, found in zip(eager.paged_tensors(), replayed.paged_tensors(), strict=True):
            page = row.block_table[0]
            torch.testing.assert_close(found[page, : row.end], expected[page, : row.end], atol=2e-4, rtol=1e-3)


def test_padding_of_prompts_stays_within_the_page_of_their_ends(
    llama: ExLlamaV2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next page may be shared with a sequence that has computed it."""
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: True))
    runner = ModelRunner(llama, ExLlamaV2Cache(llama, max_seq_len=8 * SIZE), SIZE)
    for past, tokens, replays in (
        (0, 9, True),
        (0, 16, True),
        (0, 17, True),
        (1, 15, False),
        (5, 9, False),
        (5, 8, True),
        (15, 3, True),
    ):
        assert runner._replays_prefill([BatchRow([5] * tokens, past, [1, 2])]) is replays
    assert not runner._replays_prefill([BatchRow([5] * 16, 0, [page]) for page in range(17)])


def test_prompt_chunks_of_one_shape_are_one_attention_call(
    llama: ExLlamaV2, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, int]] = []

    def counted(q: torch.Tensor, k: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        shapes.append((len(q), k.shape[1]))
        return attention(q, k, *args, **options)

    monkeypatch.setattr(attention_metadata, "attention", counted)
    runner = ModelRunner(llama, ExLlamaV2Cache(llama, max_seq_len=8 * SIZE), SIZE)
    runner.prefill(rows(ids, 0, 9))
    first, second, third = rows(ids, 9, 20)
    runner.prefill([first, second, third._replace(ids=third.ids[:4])])
    assert shapes == [*[(3, 9)] * llama.config.num_hidden_layers, *[(2, 20), (1, 13)] * llama.config.num_hidden_layers]


@pytest.mark.parametrize("name", ["llama", "mistral_window", "gemma2", "gemma3", "qwen2", "phi3_longrope"])
@pytest.mark.parametrize("kind", [ExLlamaV2Cache, ExLlamaV2Cache_8bit])
def test_rows_do_not_depend_on_one_another_or_on_where_their_pages_are(
    checkpoint: Any, name: str, kind: type[ExLlamaV2Cache]
) -> None:
    model = checkpoint(name).load()
    random = torch.Generator().manual_seed(1)
    first, second = (torch.randint(3, 99, (n,), generator=random) for n in (29, 13))
    runner = ModelRunner(model, kind(model, max_seq_len=64), 8)
    # One sequence in scattered pages, one in adjacent ones; in two passes of different lengths.
    runner.prefill([BatchRow(first[:20].tolist(), 0, [5, 1, 6, 0])])
    got = eager_logits(runner, [BatchRow(first[20:].tolist(), 20, [5, 1, 6, 0]), BatchRow(second.tolist(), 0, [2, 3])])
    expected = []
    for ids, cut in ((first, 20), (second, 0)):
        alone = kind(model, max_seq_len=64)
        if cut:
            model.forward(ids[None, :cut], alone, preprocess_only=True)
        expected.append(model.forward(ids[None, cut:], alone)[0])
    torch.testing.assert_close(got, torch.cat(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_graphs_give_the_logits_of_eager_passes(checkpoint: Any, ids: torch.Tensor, name: str) -> None:
    model = checkpoint(name).load()
    eager, runner = prefilled(model, ids), prefilled(model, ids)
    graphs = graphs_of(runner)
    for i in range(PROMPT, 21):  # across a page boundary
        batch = rows(ids, i, i + 1)
        expected = eager_logits(eager, batch)
        torch.testing.assert_close(graph_logits(graphs, model, batch), expected, atol=2e-4, rtol=1e-3)
    # Padding rows have written nothing.
    for got, wanted in zip(runner.cache.all_tensors(), eager.cache.all_tensors(), strict=True):
        torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-3)
    assert torch.equal(runner.history, eager.history)


@pytest.mark.parametrize("name", FAMILIES)
def test_several_tokens_give_the_logits_of_single_steps(checkpoint: Any, ids: torch.Tensor, name: str) -> None:
    model = checkpoint(name).load()
    single, several, graphed = (prefilled(model, ids[:1]) for _ in range(3))
    expected = torch.cat([eager_logits(single, rows(ids[:1], i, i + 1)) for i in range(PROMPT, 19)])
    whole = rows(ids[:1], PROMPT, 19)
    torch.testing.assert_close(eager_logits(several, whole), expected, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(graph_logits(graphs_of(graphed), model, whole), expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("graphs", [False, True])
def test_the_first_token_may_come_from_the_previous_pass(
    llama: ExLlamaV2, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    """Sampled tokens stay on the device, where the next pass reads them and appends them to the history."""
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: graphs))
    known, taken = prefilled(llama, ids), prefilled(llama, ids)
    expected = eager_logits(known, rows(ids, PROMPT, PROMPT + 1))[:3]
    taken.sampled[:3] = ids[[2, 0, 1], PROMPT]
    sources = [1, 2, 0]
    batch = [
        row._replace(ids=(0,), source=source)
        for row, source in zip(rows(ids, PROMPT, PROMPT + 1), sources, strict=True)
    ]
    torch.testing.assert_close(eager_logits(taken, batch)[:3], expected)
    assert torch.equal(taken.history, known.history)


def test_the_history_holds_the_tokens_of_every_page(llama: ExLlamaV2) -> None:
    runner = ModelRunner(llama, ExLlamaV2Cache(llama, max_seq_len=8 * SIZE), SIZE)
    sequences = [([3], 7), ([7, 2, 5], 41), ([1, 4], 32)]
    for number, (table, length) in enumerate(sequences):
        tokens = [1 + (number + i) % 98 for i in range(length)]
        runner.prefill([BatchRow(tokens, 0, table)])
        written = runner.history[table].flatten()
        assert written[:length].tolist() == tokens and not written[length:].any()
    assert int((runner.history != 0).sum()) == 7 + 41 + 32


def test_graphs_take_tokens_for_which_their_pages_have_room(llama: ExLlamaV2, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs pad their tokens to a power of two, and every padded token has a position in the pages."""
    runner = ModelRunner(llama, ExLlamaV2Cache(llama, max_seq_len=8 * SIZE), SIZE)
    assert [runner.room(past, [0, 1]) for past in (0, 17, 31)] == [32, 15, 1]
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: True))
    for past, most in ((0, 32), (17, 8), (24, 8), (25, 4), (30, 2), (31, 1)):
        assert runner.room(past, [0, 1]) == most
        assert past + padded_width(most) <= 2 * SIZE
    assert [runner.width(tokens) for tokens in (1, 2, 3, 5, 8)] == [1, 2, 4, 8, 8]


@pytest.mark.parametrize("kind", [ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q8])
def test_graphs_over_quantised_caches(llama: ExLlamaV2, ids: torch.Tensor, kind: type[ExLlamaV2CacheBase]) -> None:
    eager, runner = (prefilled(llama, ids, kind) for _ in range(2))
    graphs = graphs_of(runner)
    for i in range(PROMPT, 21):
        batch = rows(ids, i, i + 1)
        # Rounding may change a quantised value by one level.
        torch.testing.assert_close(graph_logits(graphs, llama, batch), eager_logits(eager, batch), atol=0.02, rtol=0)


@pytest.mark.parametrize("graphs", [False, True])
def test_ids_outside_of_the_vocabulary(llama: ExLlamaV2, monkeypatch: pytest.MonkeyPatch, graphs: bool) -> None:
    monkeypatch.setattr(ModelRunner, "has_graphs", property(lambda _: graphs))
    runner = ModelRunner(llama, ExLlamaV2Cache(llama, max_seq_len=8 * SIZE), SIZE)
    for token in (-1, 99):
        for run in (runner.decode, runner.prefill):
            with pytest.raises(GenerationError, match=rf"token id {token} is outside the model's vocabulary of 99"):
                run([BatchRow([token], 0, [0])])


def test_a_model_with_hooks_is_never_recorded(llama: ExLlamaV2) -> None:
    assert llama.capturable
    llama.modules[3] = Intervention(llama.modules[3])
    assert not llama.capturable


def test_rotations_are_cached_for_positions_that_a_sequence_may_have(
    llama: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer
) -> None:
    cache = ExLlamaV2Cache(llama, max_seq_len=4096)
    assert len(graphs_of(ModelRunner(llama, cache, 256))._attention._rotations[torch.device("cpu")][0][0]) == 1024
    runtime = Runtime(llama, cache, tokenizer)
    longest = llama.config.max_seq_len
    assert runtime.max_seq_len == longest
    prompt = [torch.full((1, longest - 3), 5)]
    runtime.add(Request(prompt, SamplingParams(), max_new_tokens=3))
    with pytest.raises(GenerationError, match=f"add up to {longest + 1}"):
        runtime.add(Request(prompt, SamplingParams(), max_new_tokens=4))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mistral", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("graphs", [True, False])
def test_passes_on_a_gpu(checkpoint: Any, ids: torch.Tensor, name: str, graphs: bool) -> None:
    folder = checkpoint(name)
    expected = folder.logits(ids)
    model = folder.load(compute_dtype=torch.float16, no_graphs=not graphs)
    # Gemma takes bfloat16 in place of float16.
    bound = 0.02 if model.compute_dtype is torch.float16 else 0.1

    def check(logits: torch.Tensor, wanted: torch.Tensor) -> None:
        error = (logits.cpu()[:, :99] - wanted).norm(dim=-1) / wanted.norm(dim=-1)
        assert float(error.max()) < bound

    runner = prefilled(model, ids)
    assert runner.has_graphs
    for i in range(PROMPT, 21):
        out = runner.decode(rows(ids, i, i + 1))
        assert out.static is not None
        check(model.head(out.states, out.context)[:3].float(), expected[:, i])
    out = prefilled(model, ids).decode(rows(ids[:1], PROMPT, 19))
    check(model.head(out.states, out.context)[:6].float(), expected[0, PROMPT:19])
