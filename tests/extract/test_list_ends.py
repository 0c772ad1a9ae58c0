"""Lists that go on where their end is not much likelier than another item."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import constrain
from constrain import LLM
from constrain.completion import Completion
from constrain.documents import Document
from constrain.engine import allocate_bitmask
from constrain.engine.bitmask import unpacked
from constrain.extract import Calibration, Confidence, Extraction, Target
from constrain.extract.leaves import find_leaves
from constrain.extract.list_ends import _is_better, _Place, doubtful_end
from constrain.filters.vocabularies import vocabulary_of

WORDS = ["ash", "bay", "cob", "dun", "elm", "fir", "gum", "hop", "ivy"]
SCHEMA = {
    "type": "object",
    "properties": {
        "words": {"type": "array", "items": {"enum": WORDS}, "minItems": 1, "maxItems": 6},
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"tags": {"type": "array", "items": {"enum": [1, 22, 3]}}, "text": {"type": "string"}},
                "required": ["tags", "text"],
                "additionalProperties": False,
            },
            "maxItems": 3,
        },
        "open": {"type": "boolean"},
    },
    "required": ["words", "rows", "open"],
    "additionalProperties": False,
}
TEXTS = ["hello there", "yes, please; no, thanks", "the door", "nobody knows", "1 2 3", "Ada"]


def loaded(tiny_dir: Path, margin: float) -> LLM:
    return constrain.load(tiny_dir, calibration=Calibration(end_margin=margin))


def extracted(llm: LLM, text: str, **options: Any) -> Extraction[Any]:
    return llm.extract(SCHEMA, text, max_new_tokens=options.pop("max_new_tokens", 200), **options)


def written(llm: LLM, text: str, monkeypatch: pytest.MonkeyPatch) -> Completion:
    """Return what the model writes, with the probabilities of its tokens."""
    seen: list[Completion] = []
    with monkeypatch.context() as patch:
        patch.setattr("constrain.extract.reader.RecordReader.leaves", lambda _, made: seen.append(made) or [])
        extracted(llm, text)
    return seen[-1]


@pytest.mark.parametrize(
    ("before", "after", "leads"),
    [
        ('{"a": [1', "]", "end"),
        ('{"a": [1', ", ", "item"),
        ('{"a": [1', "2", None),
        ('{"a": [', "]", None),
        ('{"a": [', '"x"], ', None),
        ('{"a": 1', ', "b": [', None),
        ('{"a": ["x, ]', ", ]", None),
        ('{"a": ["x', '"], "b', "end"),
        ('{"a": ["x', '", "', "item"),
        ('{"a": ["x\\', '"], "', None),
        ('{"a": [{"b": "x', '"}, {"', "item"),
        ('{"a": [{"b": "x', '"}], "', "end"),
        ('{"a": [{"b": {"c": 1', '}, "d', None),
        ('{"a": [{"b": {"c": 1', "}}, {", "item"),
        ('{"a": [[1], [2', "]", "end"),
        ('{"a": [[1], [2]', ", [", "item"),
        ('{"a": [[1], [2]', "]", "end"),
    ],
)
def test_texts_end_a_list_or_lead_to_its_next_item(before: str, after: str, leads: str | None) -> None:
    place = _Place()
    place.read(before.encode())
    assert place.leads_to(after.encode()) == leads
    assert place.leads_to(after.encode()) == leads  # the question has not changed the place


def test_ends_are_compared_with_all_ways_to_another_item(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = loaded(tiny_dir, 0)
    llm.extractor.calibration = Calibration(null_margin=1e-9)  # asks for confidence, and changes nothing
    compared = 0
    for text in TEXTS:
        made, vocabulary = written(llm, text, monkeypatch), vocabulary_of(llm.tokenizer)
        end = doubtful_end(vocabulary, made, math.inf)
        if end is None:  # the list is as long as it may be
            continue
        matcher = llm.extractor.grammar(Target.of(SCHEMA), Document.of(text)).matcher()
        for token in made.tokens[: end.number]:
            matcher.accept(token)
        ids = torch.tensor([[*made.context, *made.tokens[: end.number]]])
        with torch.inference_mode():
            logits = llm.model.forward(ids)[0, -1].float()
        place = _Place()
        place.read(b"".join(map(vocabulary.token_bytes, made.tokens[: end.number])))
        sums = {"end": 0.0, "item": 0.0}
        bits = allocate_bitmask(1, vocabulary.size)
        matcher.fill_bitmask(bits)
        for token in unpacked(bits[0]):
            if leads := place.leads_to(vocabulary.token_bytes(token)):
                sums[leads] += math.exp(logits[token])
        ratio = sums["end"] / sums["item"]
        found = doubtful_end(vocabulary, made, ratio * 1.01), doubtful_end(vocabulary, made, ratio * 0.99)
        assert found[0] is not None and found[0].number == end.number
        assert found[1] is None or found[1].number > end.number
        compared += 1
    assert compared > 2


def test_lists_go_on_where_their_ends_are_doubtful(tiny_dir: Path) -> None:
    raw, longer = loaded(tiny_dir, 0), loaded(tiny_dir, 1e12)
    grown = 0
    for text in TEXTS:
        before, after = extracted(raw, text), extracted(longer, text)
        assert after.json["words"][: len(before.json["words"])] == before.json["words"]
        assert json.loads(after.text) == after.json
        assert set(after.confidence) >= {f"/words/{at}" for at in range(len(after.json["words"]))}
        assert all(0 < each.probability <= 1 for each in after.confidence.values())
        words, known = after.json["words"], len(before.json["words"])
        assert words[known : known + 1] not in [[word] for word in words[:known]]
        grown += len(words) > known
    assert grown


def test_items_in_place_of_ends_repeat_none_before_them(tiny_dir: Path) -> None:
    schema = {"type": "array", "items": {"const": "ash"}, "minItems": 1, "maxItems": 9}
    raw, longer = loaded(tiny_dir, 0), loaded(tiny_dir, 1e12)
    assert [longer.extract(schema, text).json for text in TEXTS] == [raw.extract(schema, text).json for text in TEXTS]


@pytest.mark.parametrize(
    ("before", "comma", "after", "added"),
    [
        ('{"a": ["x", "y"', ", ", '"z"], "b": "x"}', ["z"]),
        ('{"a": [{"n": 1, "m": [2, 3]}', ", ", '{"n": 4, "m": [5]}], "b": 6}', ["4", "5"]),
        ('{"a": [{"n": 1, "m": [2', ", ", '3]}, {"n": 4, "m": []}]}', ["3"]),
        ("[[1, 2], [3", ", ", "4], [5]]", ["4"]),
        ("[[1, 2], [3]", ", ", "[4, 5]]", ["4", "5"]),
    ],
)
@pytest.mark.parametrize(("shares", "is_better"), [((0.9, 0.7), True), ((0.9, 0.5), False)])
def test_an_item_counts_by_the_share_of_its_values_that_are_likely_to_be_right(
    before: str, comma: str, after: str, added: list[str], shares: tuple[float, float], is_better: bool
) -> None:
    """An end that is 1.5 times as probable as the item stands by a margin of 2 where the share is at most 0.75."""
    record = (before + comma + after).encode()
    probable = dict(zip(added, shares if len(added) > 1 else [sum(shares) / 2], strict=True))
    leaves = [
        SimpleNamespace(start=each.start, confidence=Confidence(probable.get(each.text.decode().strip('"'), 0.01)))
        for each in find_leaves(record)
    ]
    texts = [before.encode(), comma.encode(), after.encode()]
    vocabulary = SimpleNamespace(token_bytes=texts.__getitem__)
    reader: Any = SimpleNamespace(
        grammar=SimpleNamespace(vocabulary=vocabulary), target=Target.of({}), leaves=lambda _: leaves
    )
    place = _Place()
    place.read(texts[0])
    end: Any = SimpleNamespace(number=1, depth=place.depth, odds=1.5)
    written: Any = SimpleNamespace(tokens=[0, 1, 2], text=record.decode())
    assert _is_better(reader, written, end, 2.0) == is_better


def test_records_are_complete_where_another_item_has_no_place(tiny_dir: Path) -> None:
    raw, longer = loaded(tiny_dir, 0), loaded(tiny_dir, 1e12)
    for text in TEXTS:
        needed = len(extracted(raw, text).tokens)
        assert len(extracted(longer, text, max_new_tokens=needed + 1).tokens) <= needed + 1


def test_records_are_the_same_by_all_methods(tiny_dir: Path) -> None:
    llm = loaded(tiny_dir, 1e12)
    wanted = [extracted(llm, text) for text in TEXTS]
    many = [*llm.extract_many(SCHEMA, TEXTS, max_new_tokens=200)]
    streams = [list(llm.extract_stream(SCHEMA, text, max_new_tokens=200)) for text in TEXTS]
    one = asyncio.run(llm.aextract(SCHEMA, TEXTS[0], max_new_tokens=200))
    assert [each.json for each in many] == [each[-1].json for each in streams] == [each.json for each in wanted]
    assert all(len(each) > 1 for each in streams)
    assert one.json == extracted(llm, TEXTS[0], confidence=False).json == wanted[0].json
    exact = extracted(llm, TEXTS[0], confidence="exact")
    assert exact.json == wanted[0].json
    assert sum((exact.confidence["/open"].alternatives or {}).values()) == pytest.approx(1)


def test_a_margin_is_kept_with_its_calibration(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    Calibration(end_margin=4).save(path)
    assert Calibration.load(path) == Calibration(end_margin=4)
    Calibration(null_margin=3, end_margin=5).save(tmp_path / "constrain_calibration.json")
    assert Calibration.of_model(tmp_path, Calibration(end_margin=0)) == Calibration(null_margin=3, end_margin=0)
