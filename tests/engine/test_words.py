"""Borders of words, on which quotes of whole words begin and end."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from constrain.engine.words import word_borders


def words(text: str) -> list[str]:
    borders = [i for i, is_border in enumerate(word_borders(text)) if is_border]
    return [text[start:end] for start, end in pairwise(borders)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("one two_3", ["one", " ", "two_3"]),
        ("Größe: 3,5 m²", ["Größe", ":", " ", "3", ",", "5", " ", "m²"]),
        ("τι κάνεις;", ["τι", " ", "κάνεις", ";"]),
        ("كتابٌ جديد", ["كتابٌ", " ", "جديد"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("हिन्दी में", ["हिन्दी", " ", "में"]),
        ("서울에서 왔다", ["서울에서", " ", "왔다"]),
        ("我在2024年", ["我", "在", "2024", "年"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("e\u0301te\u0301 a\r\nb", ["e\u0301te\u0301", " ", "a", "\r", "\n", "b"]),
        ("a👩🏽\u200d🚀b", ["a", "👩🏽\u200d🚀", "b"]),
        ("❤\ufe0fx", ["❤\ufe0f", "x"]),
        ("🇩🇪🇫🇷Oslo", ["🇩🇪", "🇫🇷", "Oslo"]),
        ("\u0301a", ["\u0301", "a"]),
    ],
)
def test_words(text: str, parts: list[str]) -> None:
    assert words(text) == parts


def test_of_latin_text_they_are_the_boundaries_of_re() -> None:
    text = "A café's \"open_hours\": 9-17 o'clock (x²=4)."
    assert [i for i, is_border in enumerate(word_borders(text)) if not is_border] == [
        match.start() + 1 for match in re.finditer(r"\w(?=\w)", text)
    ]
