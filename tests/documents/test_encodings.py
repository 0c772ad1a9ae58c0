"""Encodings from before Unicode are told apart."""

from __future__ import annotations

import pytest

from constrain.documents import read_bytes
from constrain.documents.encodings import decoded
from constrain.errors import ArgumentError, DocumentError

TEXTS = {
    "cp1252": "Señor Muñoz pagó 3 €; L’été à Orléans fut très chaud – dit-il.",
    "cp1250": "Zażółć gęślą jaźń. Nazywam się Jan Ślązak i mieszkam w Łodzi. Wczoraj zapłaciłem trzysta złotych.",
    "iso8859_2": "Zażółć gęślą jaźń. Nazywam się Jan Ślązak i mieszkam w Łodzi. Wczoraj zapłaciłem trzysta złotych.",
    "cp1251": "Привет, меня зовут Иван Петров, и я живу в Москве.",
    "koi8_r": "Привет, меня зовут Иван Петров, и я живу в Москве.",
    "iso8859_5": "Привет, меня зовут Иван Петров, и я живу в Москве.",
    "cp866": "Привет, меня зовут Иван Петров, и я живу в Москве.",
    "mac_roman": "It’s “quoted” – yes, Zoë Müller from Genève said…",
    "cp1253": "Καλημέρα σας, κυρία Παπαδοπούλου. Το τιμολόγιο είναι έτοιμο.",
    "cp1255": "שלום עולם, שמי דוד ואני גר בירושלים. אתמול קניתי ספר חדש.",
    "cp1256": "السلام عليكم، اسمي أحمد وأسكن في القاهرة.",
    "gb18030": "你好，我的名字是王小明，我住在北京。昨天我花了三百元买了一本新书，这本书是我的朋友推荐给我的。",
    "big5": "我住在台北，昨天買了一本新書，這本書是我的朋友推薦給我的。",
    "cp932": "こんにちは、私の名前は田中です。東京に住んでいます。昨日、新しい本を三百円で買いました。",
    "euc_jp": "こんにちは、私の名前は田中です。東京に住んでいます。昨日、新しい本を三百円で買いました。",
    "iso2022_jp": "東京に住んでいます。",
    "cp949": "안녕하세요, 제 이름은 김철수이고 서울에 살고 있습니다. 어제 새 책을 샀습니다.",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_texts_are_read_in_their_encoding(encoding: str) -> None:
    text = TEXTS[encoding]
    document = read_bytes(text.encode(encoding), "letter.txt")
    assert document.text == text
    assert text.encode(encoding).decode(document.metadata["encoding"]) == text


@pytest.mark.parametrize(
    ("declared", "used", "text"),
    [
        ("gb2312", "gb18030", "世界 请求"),
        ("Shift_JIS", "cp932", "①髙橋"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("iso-8859-9", "cp1254", "İşçi – “ğ”"),
        ("iso-8859-8-i", "iso8859-8", "שלום"),
        ("x-unknown", "utf-8", "für"),
        ("a\0b", "utf-8", "für"),
    ],
)
def test_what_programs_declare_is_read_in_its_extension(declared: str, used: str, text: str) -> None:
    assert decoded(text.encode(used), "a", declared) == (text, used)


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
        (b"\xd0\xcf\x11\xe0" + bytes(30) + "__substg1.0_0037".encode("utf-16-le"), "an e-mail of Outlook"),
        (b"{\\rtf1 Hello}", "RTF"),
    ],
)
def test_formats_that_are_not_read_are_named(content: bytes, format: str) -> None:
    with pytest.raises(DocumentError, match=f"it is {format}.*, which is not supported: "):
        read_bytes(content, "file")
