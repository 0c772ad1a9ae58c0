"""Long documents: whatever the context, the record is that of the whole document."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from gold import FILLER, Gold, Partial
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import constrain
from constrain.completion import PendingResult, PendingRounds
from constrain.documents import Document, Page, Part, part_of, parts
from constrain.errors import ExtractionError
from constrain.extract import Confidence, Extraction, Quote, Span, Target, Usage
from constrain.extract.long import LongExtraction
from constrain.extract.options import ExtractionOptions
from constrain.filters import ExLlamaV2RegexFilter


class Row(BaseModel):
    name: Quote
    amount: int


class Table(BaseModel):
    items: list[Row]


TABLE = Target.of(Table)


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


@dataclass
class Answered:
    """A request that was answered at once."""

    extraction: Extraction[Any]
    done: bool = True

    def cancel(self) -> None:
        pass

    def result(self) -> Extraction[Any]:
        return self.extraction

    async def aresult(self) -> Extraction[Any]:
        return self.extraction


@dataclass
class PerfectExtractor:
    """Answers from gold, as far as an answer fits in the context and in ``max_new_tokens``.

    A token is a word or a punctuation mark.
    """

    gold: Gold
    context: int
    partial: Partial = "left out"
    quoted: bool = True
    prompt: int = 60
    asked: list[tuple[int, int]] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return words(text)

    def encode_prompt(self, text: str, options: ExtractionOptions) -> torch.Tensor:
        return torch.zeros(1, self.prompt + words(text))

    def count_min_tokens(self, target: Target[Any], document: Document) -> int:
        return 10

    def submit_whole(
        self,
        target: Target[Any],
        document: Document,
        options: ExtractionOptions,
        index: int = 0,
        *,
        prompt: torch.Tensor | None = None,
    ) -> PendingResult[Extraction[Any]]:
        part = document if isinstance(document, Part) else part_of(document, 0, len(document.text))
        found = self.gold.found_in(part, self.partial, self.quoted)
        length = self.encode_prompt(part.text, options).shape[-1]
        limit = min(options.max_new_tokens, self.context - length)
        assert limit > 0
        self.asked.append((part.start, part.end))
        items, reason = found.json["items"], found.finish_reason
        while words(json.dumps(found.json)) > limit:
            items.pop()
            reason = "length"
        target.value_of(found.json)
        size = words(json.dumps(found.json))
        usage = Usage(length, 0, size)
        return Answered(replace(found, finish_reason=reason, usage=usage, tokens=[0] * size, document=document))


def extract(
    requests: PerfectExtractor, document: Document | None = None, max_new_tokens: int = 1024
) -> Extraction[Table]:
    options = ExtractionOptions.of(TABLE, {"max_new_tokens": max_new_tokens})
    document = requests.gold.document if document is None else document
    return PendingRounds(LongExtraction(requests, TABLE, document, options).rounds()).result()


def spread(num_items: int, num_pages: int, seed: int = 0) -> tuple[Gold, Document]:
    """A document with items at random places, many of which are equal."""
    draw = random.Random(seed)
    gold, pages = Gold(), []
    per_page = [draw.randrange(num_pages) for _ in range(num_items)]
    for number in range(num_pages):
        start = len(gold.text)
        pieces = [False] * 45 + [True] * per_page.count(number)
        draw.shuffle(pieces)
        for is_item in pieces:
            if is_item:
                amount = draw.randint(1, 30)
                gold.add_item(
                    "Sold ", ("name", draw.choice(["apples", "plums", "苹果"])), ", ", ("amount", amount), ".\n"
                )
            else:
                gold.text += draw.choice(FILLER)
        pages.append(Page(number + 1, start, len(gold.text)))
        gold.text += "\n\n"
    return gold, Document(gold.text, "a.pdf", pages=tuple(pages))


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("context", [1024, 4096, 32768])
def test_500_items_of_100_pages_are_found_completely_and_once(context: int, quoted: bool) -> None:
    gold, document = spread(500, 100)
    assert words(document.text) > 32768
    result = extract(PerfectExtractor(gold, context, quoted=quoted), document)
    assert result.json == {"items": gold.records}
    assert isinstance(result.value.items[499], Row)
    assert result.spans == (gold.spans if quoted else {})
    assert result.document is document and not result.conflicts
    assert result.finish_reason == "stop" and json.loads(result.text) == result.json
    assert result.usage.output_tokens >= len(result.tokens) > 500


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    num_items=st.integers(0, 60),
    context=st.integers(250, 1500),
    max_new_tokens=st.sampled_from([150, 300, 1024]),
    partial=st.sampled_from(["left out", "values", "cut"]),
    quoted=st.booleans(),
)
def test_items_are_found_at_any_place_and_context(
    seed: int, num_items: int, context: int, max_new_tokens: int, partial: Partial, quoted: bool
) -> None:
    gold, document = spread(num_items, 4, seed)
    requests = PerfectExtractor(gold, context, partial, quoted)
    assert extract(requests, document, max_new_tokens).json == {"items": gold.records}


# Values that are not in lists


class Letter(BaseModel):
    kind: Literal["letter"]
    title: Quote
    total: int
    paid: bool | None
    tags: list[str] = Field(min_length=1, max_length=2, json_schema_extra={"uniqueItems": True})


LETTER = Target.of(Letter)
ASIDES = "Nothing of note happened on that day either. " * 20


@dataclass
class Scripted(PerfectExtractor):
    """Answers with what a function makes of a text."""

    answer: Callable[[str], dict[str, Any]] = dict
    sure: Callable[[str], dict[str, Confidence]] = lambda text: {}

    def submit_whole(
        self,
        target: Target[Any],
        document: Document,
        options: ExtractionOptions,
        index: int = 0,
        *,
        prompt: torch.Tensor | None = None,
    ) -> PendingResult[Extraction[Any]]:
        assert options.task.schema == target.schema
        record = self.answer(document.text)
        if target.violations(record):  # the constraint would make it up
            record = {"kind": "letter", "title": "made up", "total": -1, "paid": None, "tags": ["made up"]} | {
                name: value for name, value in record.items() if value not in (None, [])
            }
        start = document.text.find(str(record["title"]))
        spans = {"/title": Span(start, start + len(record["title"]))} if start >= 0 else {}
        value = target.value_of(record)
        sure = self.sure(document.text)
        usage = Usage(10, 5, 2)
        return Answered(Extraction(value, record, "", [1, 2], "stop", index, document, spans, {}, sure, usage))


def letter(answer: Callable[[str], dict[str, Any]], text: str | Document, **known: Any) -> Extraction[Letter]:
    requests = Scripted(Gold(), 300, answer=answer, **known)
    options = ExtractionOptions.of(LETTER, {})
    long = LongExtraction(requests, LETTER, Document.of(text), options, index=3)
    return asyncio.run(PendingRounds(long.rounds()).aresult())


def found_words(text: str) -> dict[str, Any]:
    """A record of the words in a text that look like its values."""

    def first(pattern: str) -> Any:
        return match[1] if (match := re.search(pattern, text)) else None

    total = first(r"Total (\d+)")
    tags = list(dict.fromkeys(re.findall(r"#(\w+)", text)))[:2]
    return {
        "kind": "letter",
        "title": first(r"Title (\w+)"),
        "total": total and int(total),
        "paid": True if "Paid" in text else None,
        "tags": tags,
    }


def test_values_come_from_the_chunks_that_have_them() -> None:
    text = f"{ASIDES}Title Hello. #a #b {ASIDES}#b {ASIDES}Total 12. Paid. {ASIDES}"
    result = letter(found_words, text)
    assert result.value == Letter(kind="letter", title="Hello", total=12, paid=True, tags=["a", "b"])
    assert result.json == json.loads(result.text) and not result.conflicts
    assert text[slice(*result.spans["/title"])] == "Hello"
    num_chunks = len(result.tokens) // 2
    assert num_chunks > 3
    assert result.usage == Usage(10 * num_chunks, 5 * num_chunks, 2 * num_chunks)
    assert (result.index, result.finish_reason) == (3, "stop")


def test_values_that_differ_are_conflicts_and_the_surest_is_taken() -> None:
    text = f"Title One. Total 1. #a {ASIDES}Title Two. Total 2. {ASIDES}Title Two. Total 3."
    first = letter(found_words, text)
    assert (first.value.title, first.value.total) == ("One", 1)
    assert first.conflicts == {"/title": ["Two"], "/total": [2, 3]}
    surest = letter(found_words, text, sure=lambda text: {"/total": Confidence(0.9 if "Total 3" in text else 0.5)})
    assert (surest.value.title, surest.value.total) == ("One", 3)
    assert surest.conflicts == {"/title": ["Two"], "/total": [1, 2]}
    assert surest.confidence["/total"] == Confidence(0.9)


def test_a_list_keeps_what_its_schema_allows_and_the_rest_is_a_conflict() -> None:
    text = f"Title A. Total 1. #a #b {ASIDES}#b #c {ASIDES}#d"
    result = letter(found_words, text)
    assert result.value.tags == ["a", "b"]
    assert result.conflicts == {"/tags": ["c", "d"]}


def test_required_values_that_no_chunk_has_are_asked_of_the_beginning() -> None:
    result = letter(found_words, f"{ASIDES}Total 7. #x {ASIDES}")
    assert result.value == Letter(kind="letter", title="made up", total=7, paid=None, tags=["x"])
    num_requests = len(result.tokens) // 2 + 1
    assert result.usage == Usage(10 * num_requests, 5 * num_requests, 2 * num_requests)


def test_a_part_of_a_document_has_spans_of_its_own_text() -> None:
    first, text = "First page. ", f"{ASIDES}Title Hello. Total 1. #a {ASIDES}"
    whole = Document(first + text, pages=(Page(1, 0, len(first)), Page(2, len(first), len(first + text))))
    second = list(parts(whole, "page"))[1]
    result = letter(found_words, second)
    assert result.document is second
    assert second.text[slice(*result.spans["/title"])] == "Hello"


def test_a_short_document_is_asked_for_as_it_is() -> None:
    document = Document("Title Hello. Total 12. #a")
    result = letter(found_words, document)
    assert result.tokens == [1, 2] and result.document is document


def test_a_context_without_room_is_an_error() -> None:
    requests = PerfectExtractor(Gold(ASIDES), 80)
    with pytest.raises(ExtractionError, match=r"context of 80 tokens .* prompt takes 60 .* a record 10 or more"):
        extract(requests)


# On a model


def test_a_model_reads_long_documents_at_every_door(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, prompt=lambda schema, text: f"{text}\n")
    long, schema = "hello world\n" * 100, {"type": "array", "items": {"type": "integer"}, "maxItems": 3}
    documents = ["hello", long, "world", long]
    one_by_one = [llm.extract(schema, text, max_new_tokens=30) for text in documents]
    assert [len(each.json) <= 3 for each in one_by_one] == [True] * 4
    assert one_by_one[1].usage.prompt_tokens > llm.model.config.max_seq_len
    for ordered in (True, False):
        many = list(llm.extract_many(schema, documents, ordered=ordered, max_new_tokens=30))
        assert sorted(each.index for each in many) == [0, 1, 2, 3]
        assert {each.index: each.json for each in many} == {n: each.json for n, each in enumerate(one_by_one)}

    async def asynchronously() -> list[Any]:
        alone = (await llm.aextract(schema, long, max_new_tokens=30)).json
        assert [each.json async for each in llm.extract_stream(schema, long, max_new_tokens=30)] == [alone]
        return [alone, *[each.json async for each in llm.aextract_many(schema, documents, max_new_tokens=30)]]

    stream = llm.extract_stream(schema, long, max_new_tokens=30)
    assert [partial.json for partial in stream] == [one_by_one[1].json]
    assert stream.extraction == one_by_one[1]
    assert asyncio.run(asynchronously()) == [one_by_one[1].json, *[each.json for each in one_by_one]]
    assert not llm.runtime.has_work


def test_filters_of_ones_own_apply_to_every_chunk(tiny_dir: Path) -> None:
    llm = constrain.load(tiny_dir, prompt=lambda schema, text: f"{text}\n")
    filters = [ExLlamaV2RegexFilter(llm.model, llm.tokenizer, r"\[7\]")]
    result = llm.extract(list[int], "hello world\n" * 100, filters=filters, max_new_tokens=30)
    assert set(result.value) == {7}
