"""Encodings from before Unicode are told apart, also where texts are short."""

from __future__ import annotations

import pytest

from constrain.documents import read_bytes
from constrain.errors import ArgumentError, DocumentError

TEXTS = {
    "cp1252": [
        "Müller",
        "Señor Muñoz pagó 3 €",
        "ÜBERSICHT",
        "L’été à Orléans",
        "Straße 5, 1½ m²",
        "ich sagte „ja“ dazu",
    ],
    "iso8859_15": ["Der Betrag von 30 € ist fällig"],
    "cp1250": ["Dvořák z Plzně", "Łódź", "Árvíztűrő tükörfúrógép", "Đurđica Šimić"],
    "iso8859_2": ["Łódź, Śląsk", "Tomáš Žďár", "Zażółć gęślą jaźń"],
    "cp1251": ["Иван Петров", "Це Україна, її мова", "Счёт № 5 на 300 рублей"],
    "koi8_r": ["Москва", "Иван Петров", "Счёт на 300 рублей"],
    "iso8859_5": ["Иван Петров живёт в Москве"],
    "cp866": ["Иван Петров живёт в Москве", "ПРИВЕТ МИР"],
    "mac_cyrillic": ["Иван Петров живёт в Москве и платит"],
    "cp437": ["Café Müller", "╔═══════╗\n║ Total ║\n╚═══════╝"],
    "cp850": ["Café Müller à Genève", "São Paulo, João"],
    "mac_roman": ["Zoë Müller in Genève", "São Paulo, João", "It’s “quoted” – yes…"],
    "cp1253": ["Καλημέρα σας, κυρία"],
    "cp1254": ["Işık Öztürk", "İstanbul’da yaşıyorum"],
    "cp1255": ["שלום עולם"],
    "cp1256": ["السلام عليكم"],
    "cp1257": ["Rīga, Latvija: ķēniņš"],
    "cp874": ["ราคา 300 บาท กรุงเทพ"],
    "gb18030": ["北京", "你好，世界", "发票号码：A-1042"],
    "big5": ["我住在台北", "發票號碼：A-1042"],
    "cp932": ["カタカナ", "東京に住んでいます"],
    "euc_jp": ["こんにちは", "東京に住んでいます。"],
    "iso2022_jp": ["東京に住んでいます。"],
    "cp949": ["서울", "안녕하세요", "청구서 번호: A-1042"],
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in TEXTS.items() for text in texts])
def test_texts_are_read_in_their_encoding(encoding: str, text: str) -> None:
    document = read_bytes(text.encode(encoding), "letter.txt")
    assert document.text == text
    assert text.encode(encoding).decode(document.metadata["encoding"]) == text


def test_unicode_is_certain_and_no_metadata() -> None:
    assert read_bytes("Müller".encode(), "letter.txt").metadata == {}


def test_an_encoding_that_is_given_is_used() -> None:
    assert read_bytes("Größe".encode("cp437"), "a.txt", encoding="cp437").text == "Größe"
    assert read_bytes("<p>Größe".encode("cp437"), "a.html", encoding="cp437").text == "Größe"
    with pytest.raises(DocumentError, match=r"a\.txt: it is not in the encoding ascii"):
        read_bytes("Größe".encode(), "a.txt", encoding="ascii")
    for wrong in ("latin-99", "rot13", "hex"):
        with pytest.raises(ArgumentError, match="there is no encoding of texts"):
            read_bytes(b"x", "a.txt", encoding=wrong)


@pytest.mark.parametrize("content", [bytes(range(1, 256)), bytes(range(253, 0, -1)) * 9])
def test_bytes_that_are_no_text_are_refused(content: bytes) -> None:
    with pytest.raises(DocumentError, match="it is not a text"):
        read_bytes(content, "letter.txt")


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (b"PK\x03\x04" + bytes(26) + b"xl/workbook.xml", "a spreadsheet"),
        (b"PK\x03\x04" + bytes(26) + b"ppt/slides", "a presentation"),
        (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.text", "OpenDocument"),
        (b"PK\x03\x04" + bytes(26) + b"a.txt", "an archive"),
        (b"\xd0\xcf\x11\xe0" + bytes(30), "in an old format of Office"),
        (b"{\\rtf1 Hello}", "RTF"),
    ],
)
def test_formats_that_are_not_read_are_named(content: bytes, format: str) -> None:
    with pytest.raises(DocumentError, match=f"it is {format}.*, which is not supported: "):
        read_bytes(content, "file")
