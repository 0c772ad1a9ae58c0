"""The confidence of values, against sums and products of probabilities over every way to write them.

The model has random weights, and spreads its probability over all tokenizations, so that whatever a sum lacks shows.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import constrain
from constrain import LLM
from constrain.engine.alternatives import Alternatives
from constrain.engine.bitmask import packed
from constrain.errors import ArgumentError
from constrain.extract import Calibration, Extraction, Target
from constrain.extract.curves import Logistic
from constrain.extract.distribution import Distribution
from constrain.extract.extraction import PRESENT
from constrain.extract.leaves import Leaf, find_leaves
from constrain.extract.options import ExtractionOptions
from constrain.filters import ExLlamaV2RegexFilter
from constrain.filters.masks import RowMask, flags
from constrain.filters.vocabularies import vocabulary_of
from constrain.generator import ExLlamaV2Sampler
from constrain.kernels import MAX_CHOICES
from constrain.runtime.confidence import TokenConfidence

SCHEMA = {
    "type": "object",
    "properties": {
        "open": {"type": "boolean"},
        "state": {"enum": ["on", "one", "off", None]},
        "count": {"enum": [1, 10, 12]},
        "age": {"type": ["integer", "null"], "maximum": 99999},
        "name": {"type": ["string", "null"], "maxLength": 4},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2, "maxItems": 2},
    },
    "required": ["open", "state", "count", "age", "name", "tags"],
    "additionalProperties": False,
}
TARGET = Target.of(SCHEMA)
TEXTS = ["hello there", "yes, please; no, thanks"]
NUMBER = b"0123456789.eE+-"
#: Probability of a beginning below which the brute force does not go on.
SMALL = 1e-11


@pytest.fixture(scope="module")
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


class BruteForce:
    """Probabilities of continuations of a record, by a whole forward pass for each token."""

    def __init__(self, llm: LLM, extraction: Extraction[Any]) -> None:
        self.llm, self.vocabulary = llm, vocabulary_of(llm.tokenizer)
        self.tokens = extraction.tokens
        self.spelled = [self.vocabulary.token_bytes(token) for token in extraction.tokens]
        self.record = b"".join(self.spelled)
        self.starts = [sum(map(len, self.spelled[:number])) for number in range(len(self.spelled) + 1)]
        options = ExtractionOptions.of(TARGET, {})
        self.prompt = llm.extractor.encode_prompt(extraction.document.text, options)[0].tolist()
        self.grammar = llm.extractor.grammar(TARGET, extraction.document)
        self.shares = cache(self._shares)

    def _shares(self, tokens: tuple[int, ...]) -> tuple[torch.Tensor, float]:
        """Return the probabilities of the next tokens under the constraint, and the share that it removes."""
        matcher = self.grammar.matcher()
        assert all(matcher.accept(token) for token in tokens)
        width = self.vocabulary.size
        logits = self.llm.model.forward(torch.tensor([[*self.prompt, *tokens]]))[0, -1, :width].double()
        mask = torch.from_numpy(flags(matcher.mask(), width).copy())
        removed = float(logits.softmax(0)[~mask].sum())
        return logits.masked_fill(~mask, -torch.inf).softmax(0), removed

    def span(self, leaf: Leaf) -> range:
        """Return the numbers of the tokens of a leaf, from that of its separator on."""
        return range(
            max(number for number, start in enumerate(self.starts) if start <= leaf.separator),
            max(number for number, start in enumerate(self.starts) if start < leaf.end) + 1,
        )

    def alternative(self, leaf: Leaf, text: bytes) -> float:
        """Return the probability that a text is written in the place of a leaf, given the tokens before."""
        first = self.span(leaf)[0]
        whole = self.record[self.starts[first] : leaf.start] + text
        return self._continued((*self.tokens[:first],), b"", whole, text[:1] in NUMBER, 1.0)

    def value(self, leaf: Leaf, text: bytes) -> float:
        """Return the probability of a value in the place of a leaf: an integer may be written with a fraction."""
        fraction = self.alternative(leaf, text + b".0") if text[:1] in NUMBER else 0.0
        return self.alternative(leaf, text) + fraction

    def _continued(
        self, tokens: tuple[int, ...], written: bytes, whole: bytes, is_number: bool, probability: float
    ) -> float:
        total = 0.0
        for token, share in enumerate(self.shares(tokens)[0].tolist()):
            after, reached = written + self.vocabulary.token_bytes(token), probability * share
            if share == 0.0 or not (whole.startswith(after) or after.startswith(whole)):
                continue
            if len(after) > len(whole) or (after == whole and not is_number):
                total += 0.0 if is_number and after[len(whole)] in NUMBER else reached
            elif reached > SMALL:
                total += self._continued((*tokens, token), after, whole, is_number, reached)
        return total


def extracted(llm: LLM, text: str, **options: Any) -> tuple[Extraction[Any], BruteForce, list[Leaf]]:
    extraction = llm.extract(SCHEMA, text, **options)
    return extraction, BruteForce(llm, extraction), find_leaves(extraction.text.encode())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", [None, 1])
def test_exact_alternatives(llm: LLM, text: str, seed: int | None) -> None:
    """Greedy or sampled: the probabilities sum to one, and are those of constrained sampling at temperature 1."""
    options = {} if seed is None else {"seed": seed, "temperature": 2.0}
    extraction, force, leaves = extracted(llm, text, confidence="exact", **options)
    finite = {"/open": 2, "/state": 4, "/count": 3, "/age": 2, "/name": 2, "/tags/0": 2, "/tags/1": 2}
    assert extraction.confidence.keys() == finite.keys()
    for leaf, (where, confidence) in zip(leaves, extraction.confidence.items(), strict=True):
        alternatives = confidence.alternatives
        assert alternatives is not None and len(alternatives) == finite[where]
        assert sum(alternatives.values()) == pytest.approx(1, abs=1e-12)
        assert list(alternatives.values()) == sorted(alternatives.values(), reverse=True)
        assert confidence.runner_up == list(alternatives)[1]
        expected = {name: force.value(leaf, name.encode()) for name in alternatives if name != PRESENT}
        total = 1.0 if PRESENT in alternatives else sum(expected.values())
        assert {name: alternatives[name] for name in expected} == pytest.approx(
            {name: share / total for name, share in expected.items()}, abs=1e-6
        )


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", [None, 1])
def test_every_leaf_without_further_requests(
    llm: LLM, text: str, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities are products over the tokens of a value, removed shares the largest of its tokens."""
    submitted = []
    submit = llm.runtime.submit
    monkeypatch.setattr(llm.runtime, "submit", lambda request: submitted.append(request) or submit(request))
    options = {} if seed is None else {"seed": seed, "temperature": 2.0}  # an age that might have more digits
    extraction, force, leaves = extracted(llm, text, **options)
    assert len(submitted) == 1
    for leaf, confidence in zip(leaves, extraction.confidence.values(), strict=True):
        steps = [(force.shares((*force.tokens[:number],)), force.tokens[number]) for number in force.span(leaf)]
        assert confidence.removed == pytest.approx(max(removed for (_, removed), _ in steps), abs=1e-6)
        name = leaf.text.decode().removesuffix(".0")
        if confidence.alternatives is None or name not in confidence.alternatives:
            product = math.prod(float(shares[token]) for (shares, _), token in steps)
            if leaf.is_number:
                after = force.shares((*force.tokens[: force.span(leaf).stop],))[0]
                ends = [token for token in range(len(after)) if force.vocabulary.token_bytes(token)[:1] not in NUMBER]
                product *= float(after[ends].sum())
            assert confidence.probability == pytest.approx(product, rel=1e-4)
        else:
            assert confidence.probability == confidence.alternatives[name]
            assert sum(confidence.alternatives.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("written", "share"), [(2, 0.3), (1, 0.15)])
def test_where_many_tokens_are_allowed_all_that_may_not_begin_null_are_others(written: int, share: float) -> None:
    pieces = [b"n", b"null", b'"x']
    words = 2 * MAX_CHOICES // 32
    mask, watched = RowMask(packed(range(32 * words), words)), RowMask(packed([0, 1], words))
    logits = np.log(np.array([0.1, 0.15], np.float32))
    step = TokenConfidence(math.log(share), 0.0, mask, watched, 0.0, logits)
    distribution = Distribution(Alternatives(b"", (b"null",), True, True), pieces.__getitem__, 32 * words)
    assert distribution.follow([written], [step])
    assert distribution.probabilities() == pytest.approx({PRESENT: 0.75, "null": 0.25})


def test_many_and_asynchronous(llm: LLM) -> None:
    """Extractions that run together have the confidence that each has alone, but for the last digits."""
    alone = [llm.extract(SCHEMA, text, confidence="exact") for text in TEXTS]
    together = list(llm.extract_many(SCHEMA, TEXTS, confidence="exact"))

    async def gathered() -> Sequence[Extraction[Any]]:
        return await asyncio.gather(*(llm.aextract(SCHEMA, text, confidence="exact") for text in TEXTS))

    for others in (together, asyncio.run(gathered())):
        for one, other in zip(alone, others, strict=True):
            assert other.error is None and other.confidence.keys() == one.confidence.keys()
            for where, confidence in one.confidence.items():
                assert other.confidence[where].alternatives == pytest.approx(confidence.alternatives, abs=1e-6)


def test_values_of_a_type(llm: LLM) -> None:
    """A value with evidence has the confidence of the value, under its pointer in the record; quotes have theirs."""
    schema = {
        "type": "object",
        "properties": {
            "who": {"type": "string", "x-verbatim": {"source": "text"}, "minLength": 1, "maxLength": 2},
            "sure": {"type": "boolean", "x-evidence": True},
            "none": {"type": "array", "items": {"type": "string"}, "maxItems": 0},
        },
        "required": ["who", "sure", "none"],
        "additionalProperties": False,
    }
    extraction = llm.extract(schema, "yes")
    assert extraction.json["none"] == []
    confidence = extraction.confidence
    assert confidence.keys() == {"/who", "/sure", "/none"}
    assert confidence["/who"].alternatives is None, "a quote is no choice, however short the text"
    assert confidence["/sure"].alternatives is not None and set(confidence["/sure"].alternatives) == {"true", "false"}


def test_without_confidence(llm: LLM) -> None:
    assert llm.extract(SCHEMA, TEXTS[0], confidence=False).confidence == {}
    hooked = ExLlamaV2Sampler.Settings.greedy()
    hooked.post_sampling_hooks = [lambda _: None]
    assert llm.extract(SCHEMA, TEXTS[0], settings=hooked).confidence == {}


def test_what_cannot_be(llm: LLM) -> None:
    with pytest.raises(ArgumentError, match="confidence must be True, False or 'exact'"):
        llm.extract(SCHEMA, TEXTS[0], confidence="very")
    with pytest.raises(ArgumentError, match="confidence cannot be exact with filters"):
        own = ExLlamaV2RegexFilter(llm.model, llm.tokenizer, ".*")
        llm.extract(SCHEMA, TEXTS[0], confidence="exact", filters=[own])
    with pytest.raises(ArgumentError, match="a stream has no exact confidence"):
        llm.extractor.extract_stream(TARGET, TEXTS[0], confidence="exact")


def test_calibrated_confidence(tiny_dir: Path, tmp_path: Path) -> None:
    """Probabilities go through the curve of their kind; other alternatives share the rest."""
    curves = {"others": Logistic(0.0, 0.0), "boolean": Logistic(0.0, math.log(4))}
    Calibration(curves).save(tmp_path / "calibration.json")
    llm = constrain.load(tiny_dir, calibration=tmp_path / "calibration.json")
    found = llm.extract(SCHEMA, TEXTS[0])
    assert found.confidence["/open"].probability == pytest.approx(0.8)
    assert {round(share, 6) for share in found.confidence["/open"].alternatives.values()} == {0.8, 0.2}
    assert found.confidence["/count"].probability == pytest.approx(0.5)
    assert sum(found.confidence["/count"].alternatives.values()) == pytest.approx(1)
    raw = constrain.load(tiny_dir).extract(SCHEMA, TEXTS[0])
    assert found.confidence["/open"].removed == pytest.approx(raw.confidence["/open"].removed, abs=1e-6)
