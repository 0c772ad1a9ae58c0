"""Sampling with settings that need the candidates in descending order.

On the CPU against a statement of every step for one row at a time, on a GPU against the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from constrain.errors import BitmaskError
from constrain.kernels import ChosenRows, SamplingTensors, TopTokens, philox_uniform, sample
from constrain.kernels.graphs import Graph
from constrain.kernels.sampling import sample_torch

Floats = Any

OFF: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 0.0,
    "min_p": 0.0,
    "smoothing_factor": 0.0,
    "top_a": 0.0,
    "tfs": 0.0,
    "typical": 0.0,
    "skew": 0.0,
    "min_temp": 0.0,
    "max_temp": 0.0,
    "temp_exponent": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "mirostat_mu": math.inf,
    "temperature_last": 0,
}
INTEGERS = {"top_k", "temperature_last"}

EACH: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 0.004},
    {"smoothing_factor": 0.4},
    {"smoothing_factor": 0.3, "temperature": 0.6},
    {"top_k": 1, "xtc_probability": 0.5},
    {"top_k": 7},
    {"top_k": 40, "top_p": 0.9},
    {"top_p": 0.5},
    {"top_a": 0.2},
    {"min_p": 0.1},
    {"tfs": 0.9},
    {"tfs": 0.3},
    {"typical": 0.9},
    {"typical": 0.2},
    {"skew": 0.7},
    {"skew": -1.5},
    {"min_temp": 0.5, "max_temp": 1.5},
    {"min_temp": 0.5, "max_temp": 1.5, "temp_exponent": 0.5},
    {"min_temp": 0.0, "max_temp": 0.005},
    {"temperature": 0.6, "temperature_last": 1, "min_p": 0.1},
    {"temperature": 0.0, "temperature_last": 1, "typical": 0.5},
    {"temperature": 1.0, "temperature_last": 1},
    {"xtc_probability": 0.5, "xtc_threshold": 0.03},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01, "skew": 0.4},
    {"mirostat_mu": 3.0},
    {"mirostat_mu": 0.5},
    {"mirostat_mu": 2.0, "typical": 0.6},
    {"top_p": 1.5, "min_p": 1.0, "tfs": 1.0, "typical": 2.0},
    {"top_k": 30, "top_p": 0.95, "top_a": 0.3, "min_p": 0.05, "tfs": 0.97, "typical": 0.9},
]


def random_settings(random: np.random.Generator) -> dict[str, Any]:
    """Any of the settings together, each off half of the time."""
    values = {
        "temperature": random.choice([0.0, 0.4, 1.0, 1.7]),
        "top_k": int(random.choice([1, 2, 5, 30, 200])),
        "top_p": random.uniform(0.5, 1),
        "min_p": random.uniform(0, 0.2),
        "smoothing_factor": random.uniform(0, 0.5),
        "top_a": random.uniform(0, 0.5),
        "tfs": random.uniform(0.5, 1),
        "typical": random.uniform(0.3, 1),
        "skew": random.normal(),
        "min_temp": random.uniform(0, 1),
        "max_temp": random.uniform(0, 2),
        "temp_exponent": random.uniform(0.5, 2),
        "xtc_probability": random.uniform(),
        "xtc_threshold": random.uniform(0, 0.2),
        "mirostat_mu": random.uniform(0, 8),
        "temperature_last": 1,
    }
    return OFF | {name: value for name, value in values.items() if random.uniform() < 0.5}


def tensors_of(rows: Sequence[dict[str, Any]], seed: int = 0) -> SamplingTensors:
    columns = {
        name: torch.tensor([(OFF | row)[name] for row in rows], dtype=torch.int if name in INTEGERS else torch.float)
        for name in OFF
    }
    seeds = torch.arange(len(rows)) * 104_729 + seed
    return SamplingTensors(**columns, seeds=seeds, positions=torch.arange(len(rows)).int())


def moved(values: Any, device: torch.device) -> Any:
    return replace(values, **{name: x.to(device) for name, x in vars(values).items() if x is not None})


def row_of(tensors: SamplingTensors, row: int) -> SamplingTensors:
    return replace(tensors, **{name: x[row, None] for name, x in vars(tensors).items() if x is not None})


def empty_top(rows: int, count: int) -> TopTokens:
    return TopTokens(
        torch.full((rows, count), -7), torch.full((rows, count), torch.nan), torch.ones(rows, dtype=torch.int)
    )


def normalised(p: Floats) -> Floats:
    return p / p.sum()


def distribution(logits: Floats, settings: dict[str, Any], protected: Floats) -> tuple[Floats, Floats]:
    """Compute the candidates of a row literally: ids by descending probability, and their final probabilities."""
    s = OFF | {name: float(np.float32(value)) for name, value in settings.items()}
    late, temperature = s["temperature_last"], s["temperature"]
    x = np.asarray(logits, dtype=np.float64)
    ids = np.array([i for i in np.argsort(-x, kind="stable") if np.isfinite(x[i])])
    if s["top_k"] > 0:
        ids = ids[: int(s["top_k"])]
    if temperature < 0.01 and not late:
        ids = ids[:1]
    scores = x[ids] - x[ids[0]]
    if s["smoothing_factor"]:
        scores = -s["smoothing_factor"] * scores**2
    p = normalised(np.exp(scores if late or temperature < 0.01 else scores / temperature))

    def keep(kept: Floats, first: bool = True) -> None:
        nonlocal p, ids
        kept[0] |= first
        p, ids = normalised(p[kept]), ids[kept]

    if 0 < s["top_p"] < 1:
        keep(np.cumsum(p) - p < s["top_p"])
    if s["top_a"] > 0:
        keep(p >= s["top_a"] * p[0] ** 2)
    if 0 < s["min_p"] < 1:
        keep(p >= s["min_p"] * p[0])
    if 0 < s["tfs"] < 1 and len(p) > 2:
        curve = np.abs(np.diff(p, n=2))
        if curve.sum() > 0:
            keep(np.arange(len(p)) < 1 + (np.cumsum(curve) / curve.sum() <= s["tfs"]).sum())
    if 0 < s["typical"] < 1:
        surprise = -np.log(np.maximum(p, np.finfo(float).tiny))
        order = np.argsort(np.abs(surprise - (p * surprise).sum()), kind="stable")
        kept = np.zeros(len(p), dtype=bool)
        kept[order] = np.cumsum(p[order]) - p[order] < s["typical"]
        keep(kept, first=False)
    if s["mirostat_mu"] < math.inf:
        keep(p >= 2 ** -s["mirostat_mu"])
    if len(p) > 1 and (s["max_temp"] > s["min_temp"] or late):
        if s["max_temp"] > s["min_temp"]:
            share = -(p[p > 0] * np.log(p[p > 0])).sum() / np.log(len(p))
            temperature = s["min_temp"] + (s["max_temp"] - s["min_temp"]) * share ** s["temp_exponent"]
        if temperature < 0.01:
            keep(np.arange(len(p)) == 0)
        else:
            p = normalised((p / p.max()) ** (1 / temperature))
    likely = [i for i in range(len(p)) if p[i] >= s["xtc_threshold"] and not protected[ids[i]]]
    removed = likely[:-1]
    share = p[removed].sum()
    if s["xtc_probability"] > 0 and share < 1:
        after = p * (1 + s["xtc_probability"] * share / (1 - share))
        after[removed] = p[removed] * (1 - s["xtc_probability"])
        order = np.argsort(-after, kind="stable")
        p, ids = after[order], ids[order]
    return ids, p


def choice(ids: Floats, p: Floats, uniform: float, skew: float) -> int:
    order = np.arange(len(ids)) if skew else np.argsort(ids)
    target = uniform ** math.exp(-skew) * p.sum()
    return int(ids[order][np.searchsorted(np.cumsum(p[order]), target, side="right")])


def bits_of(tokens: torch.Tensor) -> torch.Tensor:
    packed = np.packbits(tokens.numpy(), axis=1, bitorder="little")
    return torch.from_numpy(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4))).view(np.int32))


def check(logits: torch.Tensor, rows: Sequence[dict[str, Any]], count: int = 12) -> None:
    """Tokens, probabilities and top tokens are those of the definition."""
    generator = torch.Generator().manual_seed(9)
    protected = torch.rand(3, logits.shape[1], generator=generator) < 0.2
    chosen = torch.randint(-1, 3, (len(rows),), generator=generator).int()
    tensors, top = tensors_of(rows), empty_top(len(rows), count)
    tokens, probs = sample(logits, tensors, None, None, ChosenRows(bits_of(protected), chosen), top)
    uniform = philox_uniform(tensors.seeds, tensors.positions)  # type: ignore[arg-type]
    for i, settings in enumerate(rows):
        spared = protected[chosen[i]] if chosen[i] >= 0 else torch.zeros(logits.shape[1], dtype=torch.bool)
        ids, p = distribution(logits[i], settings, spared.numpy())
        missing = [j for j in range(count + len(ids)) if j not in set(ids)][: max(0, count - len(ids))]
        np.testing.assert_allclose(top.probabilities[i], [*p[:count], *[0.0] * len(missing)], atol=1e-7)
        assert top.ids[i].tolist() == [*ids[:count], *missing], settings
        token = choice(ids, p, float(uniform[i]), float(np.float32({**OFF, **settings}["skew"])))
        assert int(tokens[i]) == token, settings
        assert float(probs[i]) == pytest.approx(p[list(ids).index(token)], abs=1e-7)


def random_logits(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    logits = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 2
    logits[:, ::9] = -torch.inf
    return logits


def test_every_step_alone() -> None:
    check(random_logits(len(EACH), 60), EACH)


def test_equal_logits_count_in_the_order_of_ids() -> None:
    check(random_logits(len(EACH), 60).round(), EACH)


@pytest.mark.parametrize("seed", range(4))
def test_steps_together(seed: int) -> None:
    random = np.random.default_rng(seed)
    check(random_logits(60, 300, seed), [random_settings(random) for _ in range(60)])


def test_rows_do_not_depend_on_each_other() -> None:
    logits, tensors = random_logits(len(EACH), 60), tensors_of(EACH)
    tokens, probs = sample(logits, tensors, shaped=True)
    for i in range(len(EACH)):
        token, prob = sample(logits[i, None], row_of(tensors, i), shaped=True)
        assert int(token) == int(tokens[i])
        torch.testing.assert_close(prob, probs[i, None], atol=1e-6, rtol=1e-4)


def test_settings_that_are_off_for_all_may_be_left_out() -> None:
    settings = [{"typical": 0.5, "top_k": 20}, {"top_k": 20}, {"typical": 0.9}]
    logits, all_given = random_logits(3, 60), tensors_of(settings)
    given = {"temperature", "top_k", "top_p", "min_p", "seeds", "positions", "typical"}
    few = replace(all_given, **{f.name: None for f in fields(all_given) if f.name not in given})
    for actual, expected in zip(sample(logits, few, shaped=True), sample(logits, all_given, shaped=True), strict=True):
        torch.testing.assert_close(actual, expected)


def test_plain_rows_are_the_same_by_either_path() -> None:
    settings = [s for s in EACH if set(s) <= {"temperature", "top_k", "top_p", "min_p"}] * 20
    logits, tensors = random_logits(len(settings), 200), tensors_of(settings)
    assert not tensors.is_shaped().any()
    for shaped, plain in zip(sample(logits, tensors, shaped=True), sample(logits, tensors), strict=True):
        torch.testing.assert_close(shaped, plain)


def test_which_rows_are_shaped() -> None:
    plain = [{}, {"temperature": 0.5}, {"top_k": 7}, {"top_p": 0.5}, {"min_p": 0.1}, {"tfs": 1.0, "typical": 1.5}]
    plain += [{"temperature_last": 1}, {"min_temp": 1.0, "max_temp": 1.0}, {"xtc_threshold": 0.5}]
    shaped = [{"skew": -1.0}, {"temperature_last": 1, "temperature": 0.5}, {"max_temp": 0.1}, {"mirostat_mu": 9.0}]
    shaped += [{"tfs": 0.5}, {"typical": 0.5}, {"top_a": 0.1}, {"smoothing_factor": 0.1}, {"xtc_probability": 0.1}]
    found = tensors_of([*plain, *shaped]).is_shaped()
    assert found.tolist() == [False] * len(plain) + [True] * len(shaped)


def test_a_given_uniform_number_decides() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(5, -1)
    uniform = torch.tensor([0.0, 0.0999, 0.1001, 0.5999, 0.6001], dtype=torch.double)
    tensors = replace(tensors_of([{}] * 5), seeds=None, positions=None, uniform=uniform)
    assert sample(logits, tensors)[0].tolist() == [0, 0, 1, 2, 3]
    skewed = replace(tensors, skew=torch.full((5,), math.log(2.0)))  # the square root of it, in descending order
    assert sample(logits, skewed, shaped=True)[0].tolist() == [3, 3, 3, 1, 1]
    with pytest.raises(ValueError, match="seeds and positions, or uniform numbers"):
        sample(logits, replace(tensors, uniform=None))


def test_a_row_without_a_logit() -> None:
    top = empty_top(2, 3)
    logits = torch.stack((torch.full((6,), -torch.inf), torch.arange(6.0)))
    tokens, probs = sample(logits, tensors_of([{"typical": 0.5}, {"top_k": 1}]), top=top)
    assert tokens.tolist() == [-1, 5] and probs.tolist() == [0.0, 1.0]
    assert top.ids.tolist() == [[0, 1, 2], [5, 0, 1]] and top.probabilities.tolist() == [[0, 0, 0], [1, 0, 0]]


def test_rows_that_want_no_top_tokens_are_not_written() -> None:
    top = empty_top(2, 3)._replace(counts=torch.tensor([0, 2], dtype=torch.int))
    sample(torch.arange(8.0).expand(2, -1), tensors_of([{}, {}]), top=top)
    assert top.ids.tolist() == [[-7] * 3, [7, 6, 5]] and top.probabilities[0].isnan().all()


def test_tokens_that_are_not_allowed_are_no_candidates() -> None:
    logits, tensors = random_logits(len(EACH), 60), tensors_of(EACH)
    allowed = torch.rand(len(EACH), 60, generator=torch.Generator().manual_seed(1)) < 0.5
    tops = [empty_top(len(EACH), 9) for _ in range(2)]
    masked = sample(logits.masked_fill(~allowed, -torch.inf), tensors, top=tops[0])
    actual = sample(logits, tensors, allowed=ChosenRows(bits_of(allowed)), top=tops[1])
    assert all(map(torch.equal, (*actual, *tops[1]), (*masked, *tops[0])))


def test_protected_tokens_have_to_fit() -> None:
    with pytest.raises(BitmaskError, match=r"bits must be int32 \[2, 4\]"):
        sample(torch.zeros(2, 100), tensors_of([{}, {}]), protected=ChosenRows(torch.zeros(2, 3, dtype=torch.int)))


def bounded(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """No row keeps more than ``most`` tokens."""
    return [row | {"top_k": min(row.get("top_k") or most, most)} for row in rows]


@pytest.mark.gpu
@pytest.mark.parametrize("most", [1, 3, 64, 700, 1024, None])
@pytest.mark.parametrize("width", [50, 1003, 32_003, 128_256])
def test_on_a_gpu(width: int, most: int | None, cuda: torch.device) -> None:
    random = np.random.default_rng(width)
    rows = [*EACH, *(random_settings(random) for _ in range(60))]
    rows = rows if most is None else bounded(rows, most)
    logits, tensors = random_logits(len(rows), width, 3), tensors_of(rows)
    logits[5], logits[6, 1:] = -torch.inf, -torch.inf
    protected = torch.rand(3, width, generator=torch.Generator().manual_seed(2)) < 0.2
    masks = ChosenRows(bits_of(protected), (torch.arange(len(rows)) % 4 - 1).int())
    count = min(20, width)
    expected_top, top = empty_top(len(rows), count), TopTokens(*(x.to(cuda) for x in empty_top(len(rows), count)))
    expected, probs = sample_torch(logits, tensors, None, masks, expected_top, shaped=True)
    tokens, actual = sample(
        logits.to(cuda),
        moved(tensors, cuda),
        None,
        None,
        ChosenRows(*(x.to(cuda) for x in masks if x is not None)),
        top,
        shaped=True,
        max_candidates=most,
    )
    # Torch computes in float32, so that rounding may put a candidate on either side of a threshold.
    same = tokens.cpu() == expected
    assert int((~same).sum()) <= (1 if most is not None else 4)
    tolerance = {"atol": 1e-6, "rtol": 2e-5} if most is not None else {"atol": 1e-4, "rtol": 1e-2}
    close = torch.isclose(actual.cpu(), probs, **tolerance)
    assert int((same & ~close).sum()) <= (1 if most is not None else 6)
    agree = (top.ids.cpu() == expected_top.ids).all(1)
    assert int((~agree).sum()) <= (1 if most is not None else 6)
    near = torch.isclose(top.probabilities.cpu(), expected_top.probabilities, **tolerance).all(1)
    assert int((~near).sum()) <= (1 if most is not None else 6)


@pytest.mark.gpu
@pytest.mark.parametrize("most", [64, None])
def test_rows_alone_on_a_gpu(most: int | None, cuda: torch.device) -> None:
    rows = EACH if most is None else bounded(EACH, most)
    logits, tensors = random_logits(len(rows), 5000).to(cuda), moved(tensors_of(rows), cuda)
    tokens, probs = sample(logits, tensors, shaped=True, max_candidates=most)
    plain, plain_probs = sample(logits, tensors)
    is_plain = ~tensors.is_shaped()
    assert torch.equal(tokens[is_plain], plain[is_plain]) and torch.equal(probs[is_plain], plain_probs[is_plain])
    for i in range(len(rows)):
        token, prob = sample(logits[i, None], row_of(tensors, i), shaped=True, max_candidates=most)
        assert int(token) == int(tokens[i])
        torch.testing.assert_close(prob, probs[i, None], atol=1e-6, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("most", [64, None])
def test_sampling_is_captured(most: int | None, cuda: torch.device) -> None:
    rows = EACH if most is None else bounded(EACH, most)
    logits, tensors = random_logits(len(rows), 5000).to(cuda), moved(tensors_of(rows), cuda)
    top = TopTokens(*(x.to(cuda) for x in empty_top(len(rows), 5)))
    graph = Graph(lambda: sample(logits, tensors, top=top, shaped=True, max_candidates=most))
    logits.copy_(random_logits(len(rows), 5000, 8))
    expected = sample(logits, tensors, top=top, shaped=True, max_candidates=most)
    expected_top = [x.clone() for x in top]
    top.ids.zero_()
    actual = graph()
    assert all(map(torch.equal, (*actual, *top), (*expected, *expected_top)))
