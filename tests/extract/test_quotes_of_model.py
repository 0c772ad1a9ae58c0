"""Quotes and evidence of the built-in model, in many scripts."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel

import constrain
from constrain import LLM, Evidence, Quote
from constrain.documents import Document
from constrain.engine.words import word_borders


class Payment(BaseModel):
    payer: Quote
    place: Annotated[str, Quote(whole_words=True)]
    due: Evidence[date] | None = None
    status: Evidence[Literal["open", "paid"]]
    goods: list[Quote]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return constrain.load()


@pytest.mark.parametrize(
    "text",
    [
        'Ada\\Bob from "Oslo"\nbought pears, figs and pears: paid on 3 May 2026.',
        "Jürgen Größe aus München\r\nkaufte Äpfel; fällig am 3. Mai 2026.",
        "Ο Γιώργος από την Αθήνα\tπλήρωσε στις 3 Μαΐου 2026.",
        "王小明在北京买了苹果，2026年5月3日付款。",
        "دفعَ عليٌّ من القاهرة في ٣ مايو ٢٠٢٦.",
        "Zoe\u0308 👩🏽\u200d🚀 🇫🇷 pays 𝔘𝔫𝔦 e\u0301clairs ❤\ufe0f\u2028soon",
    ],
)
def test_spans_are_the_quotes(llm: LLM, text: str) -> None:
    document = Document(text, source="x")
    result = llm.extract(Payment, document, max_new_tokens=400)
    start, end = result.spans["/payer"]
    assert text[start:end] == result.value.payer
    start, end = result.spans["/place"]
    assert text[start:end] == result.value.place
    assert word_borders(text)[start] and word_borders(text)[end]
    for index, goods in enumerate(result.value.goods):
        assert text[slice(*result.spans[f"/goods/{index}"])] == goods
    assert ("/due" in result.spans) == (result.value.due is not None)
    assert "/status" in result.spans
    assert result.document is document
