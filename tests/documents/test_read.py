"""Documents of each format are read as their text, whatever language it is in."""

from __future__ import annotations

import contextlib
import random
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from fpdf import FPDF

from constrain.documents import Document, read, read_bytes
from constrain.errors import ArgumentError, DocumentError

TEXTS = {
    "English": "Dear Ada, the invoice of 3 May is due.",
    "German": "Sehr geehrte Frau Müller, die Rechnung über 1.200 € ist fällig. Grüße aus Köln",
    "Greek": "Αγαπητή κυρία Παπαδοπούλου, το τιμολόγιο είναι ανεξόφλητο.",
    "Chinese": "尊敬的王先生，您的发票金额为1200元。",
    "Arabic": "السيد أحمد المحترم، فاتورتكم مستحقة الدفع.",
    "emoji": "Thank you 😀 — see you 👩‍👩‍👧 in Zürich! e\u0301",
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


# Text


@every_text
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_texts_are_read_with_and_without_marks(text: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(f"{text}\r\nBye\r\n".encode(encoding))
    assert read(path) == Document(f"{text}\nBye\n", str(path))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_mark_or_by_its_zeros(mark: str, encoding: str) -> None:
    assert read_bytes((mark + TEXTS["German"]).encode(encoding), "letter").text == TEXTS["German"]


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("German", "cp1252"), ("Greek", "cp1253"), ("Chinese", "gb18030"), ("Arabic", "cp1256")],
)
def test_other_encodings_are_detected(language: str, encoding: str) -> None:
    assert read_bytes(TEXTS[language].encode(encoding), "letter.txt").text == TEXTS[language]


@pytest.mark.parametrize("text", ["Müller", "Café", "Señor Muñoz pagó 3 €", "naïve façade “quoted”", "été"])
def test_short_western_texts_are_taken_for_such(text: str) -> None:
    assert read_bytes(text.encode("cp1252"), "letter.txt").text == text


def test_a_wrong_byte_does_not_change_the_encoding() -> None:
    content = "Grüße aus Köln – Müller".encode() + b"\xff!"
    assert read_bytes(content, "letter.txt").text == "Grüße aus Köln – Müller\ufffd!"


def test_an_empty_file_is_a_document_without_text() -> None:
    for name in ("a.txt", "a.html", "a.eml", "a"):
        assert read_bytes(b"", name) == Document("", name)


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(DocumentError, match=r"^sound\.ogg: it is not a text: convert it"):
        read_bytes(b"OggS\0\x02\0\0\0\0" + bytes(range(256)), "sound.ogg")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"none\.txt: no such file or directory"):
        read(tmp_path / "none.txt")
    with pytest.raises(DocumentError, match="is a directory"):
        read(tmp_path)


def test_what_is_no_path_and_no_bytes_is_refused() -> None:
    for path in (None, b"a.txt", 5):
        with pytest.raises(ArgumentError, match="path must be a str or a Path"):
            read(path)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="content must be bytes, not 'text'"):
        read_bytes("text", "a.txt")  # type: ignore[arg-type]


# HTML

PAGE = """<!DOCTYPE html><html><head><title>Offer &amp;
 more</title><style>p {{}}</style></head><body><h1>{text}</h1><p>Hello <b>wor</b>ld</p><ul><li>one</li><li>two</li></ul>
<table><tr><th>Name</th><th>Amount</th></tr><tr><td>Apples</td><td>12</td></tr></table><script>x()</script></body></html>"""


@every_text
def test_html_is_read_without_its_tags(text: str) -> None:
    document = read_bytes(PAGE.format(text=text).encode(), "offer.html")
    assert document.metadata == {"title": "Offer & more"}
    assert document.text == f"{text}\n\nHello world\n\n  * one\n  * two\nName    Amount\nApples  12"


def test_the_title_is_that_of_the_page() -> None:
    picture = "<svg><title>Logo</title></svg>"
    assert read_bytes(f"<body>{picture}<p>Hello".encode(), "a.html").metadata == {}
    page = f"<head><title>Offer</title></head><body>{picture}<p>Hello"
    assert read_bytes(page.encode(), "a.html").metadata == {"title": "Offer"}


def test_html_is_read_in_the_encoding_that_it_names() -> None:
    page = '<html><head><meta charset="{}"></head><body>{}</body></html>'
    for language, encoding in (("German", "iso-8859-15"), ("Greek", "iso-8859-7"), ("Chinese", "big5")):
        text = TEXTS[language].replace("发", "發").replace("额", "額").replace("为", "為")
        assert read_bytes(page.format(encoding, text).encode(encoding), "a.html").text == text


@pytest.mark.parametrize("tag", ["sup", "rt", "span", "ol", "video"])
def test_tags_that_are_never_closed_take_no_long_time(tag: str) -> None:
    """The text of each is that of all later ones; a million texts of a megabyte would take minutes."""
    page = f"<{tag}>pears" * 20_000
    with contextlib.suppress(DocumentError):  # it is nested too deeply
        read_bytes(page.encode(), "a.html")


def test_html_that_is_nested_deeply_is_read_or_refused() -> None:
    """Old programs open tags that they never close."""
    page = "<p>Dear Bo</p>" + "<b>" * 500 + "36"
    assert read_bytes(page.encode(), "a.html").text == "Dear Bo\n\n36"
    with pytest.raises(DocumentError, match="recursion"):
        read_bytes(page.replace("<b>", "<table><tr><td>").encode(), "a.html")


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("<dl><dt>Name<dd>Ada<dt>City<dd>Rome</dl>", ["Name", "    Ada", "City", "    Rome"]),
        ("<section>a</section><section>b</section><hr>c<form>d</form>e", ["a", "b", "c", "d", "e"]),
        ("<details><summary>More</summary>text</details>", ["More", "text"]),
        ("Total<table><tr><td>Net<td>5</table>Bye", ["Total", "Net  5", "", "Bye"]),
        ("<table><tr><td>A<table><tr><td>b<td>c</table><td>d</table>", ["A     d", "b  c"]),
        ("<p>Sum <?xml:namespace prefix = o /> 12<!-- no --> EUR</p>", ["Sum 12 EUR"]),
        (
            "a<template>no</template>b<p hidden>no</p>c<p style='Display: none ! IMPORTANT; x:y'>no</p>d",
            ["abcd"],
        ),
        ("<html hidden><body hidden>yes</body>", ["yes"]),
        (
            "<p>?a=1&amp;region=2<pre>&amp;lt;</pre><table><tr><td>R&amp;reg</table>",
            ["?a=1&region=2", "", "&lt;", "R&reg"],
        ),
        ("<ol start=3><li>c<li>d</ol><ol reversed><li>b<li value=9>a</ol>", [" 3. c", " 4. d", " 2. b", " 9. a"]),
        (
            "<table><tr><td><p>A</p><p>B</p><td><p>C</p><tr><td>x<td>y</table><table><tr><td><p>D</p><p>E</p></table>",
            ["A  C", "B", "x  y", "", "D", "", "E"],
        ),
        ("<p>Rech&shy;nung Donau&#8203;dampf", ["Rechnung Donaudampf"]),
        (
            "10<sup>9</sup>/L m<sup>2</sup> s<sup><a href=x>12</a></sup> Na<sup>+</sup> 1<sup>st</sup> e<sup>-3</sup>",
            ["10⁹/L m² s¹² Na⁺ 1st e⁻³"],
        ),
        (f"<p>{'<sup>1' * 9}!", ["111111111!"]),
        ("<math><msup><mi>x</mi><mn>2</mn></msup><mo>=<mfrac><mn>1</mn><mn>2</mn></mfrac></math>", ["x²=1/2"]),
        (
            "<p>Total:<span>$</span><span>12<b><span>.</span></b></span><span>50</span><p>Net<span>(EUR)</span><span>3</span>",
            ["Total: $12.50", "", "Net (EUR) 3"],
        ),
        (
            "<p>Dear<span>Ada</span>! <span>Ring</span><b>Bo</b><span>,</span><br><span>a</span>@<span>b.de",
            ["Dear Ada! Ring Bo,", "a@b.de"],
        ),
        ("<p>中文<span>字</span>体 2<span>kg</span>", ["中文字体 2 kg"]),
        ("<pre><span>f</span><span>(x)</span>\n  <span>y</span></pre>", ["f(x)", "  y"]),
        ("<ruby>漢<rt>kan</rt></ruby>字 <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>", ["漢(kan)字 漢(kan)"]),
        (
            "a<video>no</video><iframe src=x>no</iframe>b<dialog>no</dialog><datalist id=l><option>no</datalist>c",
            ["abc"],
        ),
        ("<ol start=-1><li>c<li>d<li>e</ol>", ["-1. c", " 0. d", " 1. e"]),
        ("<ol type=a start=26><li>c<li type=I>d<li type=i value=4>e</ol>", [" z. c", "XXVII. d", "iv. e"]),
        (
            "<ol style='color:red; list-style: inside Upper-Alpha'><li>c<ol type=i><li>d<ul><li>e</ul></ol><li>f</ol>",
            [" A. c", "     i. d", "          o e", " B. f"],
        ),
    ],
)
def test_html_has_the_lines_that_are_shown(page: str, lines: list[str]) -> None:
    assert read_bytes(page.encode(), "a.html").text.split("\n") == lines


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (
            "<tr><th>Item<th>Price<tr><td rowspan=2>Pear<td>1<tr><td>2",
            ["Item Price", "Pear 1", "2"],
        ),
        ("<tr><th colspan=2>Name<th>Age<tr><td>Ada<td>B<td>36", ["Name Age", "Ada B 36"]),
        ("<tr><td rowspan=3 colspan=2>X<td>a<tr><td>b<tr><td>c<tr><td>d<td>e<td>f", ["X a", "b", "c", "d e f"]),
        (f"<tr><td colspan={'9' * 5000}>X<td>y", ["X y"]),
        ("<thead><tr><td colspan=99999999>X<tbody><tr><td rowspan=0>y<td colspan=x>z", ["X", "y z"]),
    ],
)
def test_cells_stand_in_their_columns(rows: str, shown: list[str]) -> None:
    text = read_bytes(f"<table>{rows}</table>".encode(), "a.html").text
    assert [" ".join(line.split()) for line in text.split("\n")] == shown
    cells = {word: line.index(word) for line in text.split("\n") for word in line.split()}
    for above, below in (("Price", "2"), ("Age", "36"), ("a", "c"), ("c", "f")):
        assert cells.get(above) == cells.get(below) or above not in cells or below not in cells


def test_cells_that_span_many_others_make_few() -> None:
    rows = "<tr><td colspan=99999 rowspan=99999>a<td>b" * 200
    assert len(read_bytes(f"<table>{rows}</table>".encode(), "a.html").text) < 100_000


def test_html_without_content_has_no_text() -> None:
    for page in (b"<!-- comment -->", b"<!doctype html>", b"<html></html>", b"<?xml version='1.0'?>", b"  "):
        assert read_bytes(page, "a.html").text == ""


# DOCX

CONTENT_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
CONTROL = "<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>"


def word_document(text: str = "Text") -> bytes:
    word = docx.Document()
    word.core_properties.title, word.core_properties.author = "Report", "Ada"
    word.sections[0].header.paragraphs[0].text = "Letterhead"
    word.sections[0].footer.paragraphs[0].text = "Page 1"
    word.add_heading("Results")
    word.add_paragraph(text)
    table = word.add_table(rows=2, cols=2)
    for cell, content in zip(table._cells, ("Name", "Amount", "Apples\nand pears", "12"), strict=True):
        cell.text = content
    paragraph = word.add_paragraph("Signed ")
    paragraph._p.append(parse_xml(f"<w:ins {nsdecls('w')}><w:r><w:t>by Ada</w:t></w:r></w:ins>"))
    paragraph._p.append(parse_xml(f"<w:del {nsdecls('w')}><w:r><w:delText>by Bob</w:delText></w:r></w:del>"))
    control = f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p><w:r><w:t>Chosen</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    word.element.body.insert(-1, parse_xml(control))
    return saved(word)


def saved(word: docx.document.Document) -> bytes:
    word.save(content := BytesIO())
    return content.getvalue()


@every_text
def test_docx_is_read_in_its_order(text: str) -> None:
    document = read_bytes(word_document(text), "report.docx")
    assert document.text.split("\n\n") == [
        "Letterhead",
        "Results",
        text,
        "Name | Amount\nApples and pears | 12",
        "Signed by Ada",
        "Chosen",
        "Page 1",
    ]
    assert document.metadata == {"title": "Report", "author": "Ada"}


def test_docx_is_read_within_content_controls_and_formulas() -> None:
    word = docx.Document()
    row = "<w:tr>{}</w:tr>".format("".join(CONTROL.format(f"<w:tc>{PARAGRAPH.format(n)}</w:tc>") for n in "ab"))
    table = f"<w:tbl {nsdecls('w')}><w:tblPr/><w:tblGrid/>{row}{CONTROL.format(row.replace('a', 'A'))}</w:tbl>"
    formula = f"<m:oMath {nsdecls('m')}><m:r><m:t>x=5</m:t></m:r></m:oMath>"
    word.element.body.insert(0, parse_xml(table))
    word.add_paragraph("where ")._p.append(parse_xml(formula))
    assert read_bytes(saved(word), "a.docx").text == "a | b\nA | b\n\nwhere x=5"


def test_choices_in_forms_of_docx_are_read() -> None:
    field = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{}</w:ffData></w:fldChar></w:r><w:r><w:t> {}; </w:t></w:r>'
    options = '<w:listEntry w:val="low"/><w:listEntry w:val="high"/>'
    fields = [
        ("<w:checkBox><w:default w:val='0'/><w:checked/></w:checkBox>", "paid"),
        ("<w:checkBox><w:default w:val='1'/><w:checked w:val='0'/></w:checkBox>", "sent"),
        ("<w:checkBox><w:default w:val='true'/></w:checkBox>", "new"),
        (f"<w:ddList><w:result w:val='1'/>{options}</w:ddList>", "priority"),
        (f"<w:ddList>{options}</w:ddList>", "risk"),
        (f"<w:ddList><w:result w:val='7'/>{options}</w:ddList>", "damaged"),
        ("<w:textInput/>", "text"),
    ]
    word = docx.Document()
    written = "".join(field.format(*each) for each in fields)
    word.element.body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{written}</w:p>"))
    shown = " ".join(read_bytes(saved(word), "a.docx").text.split())
    assert shown == "[x] paid; [ ] sent; [x] new; high priority; low risk; damaged; text;"


def test_symbols_of_forms_in_docx_are_read() -> None:
    boxes = [("Wingdings", "F0FE"), ("Wingdings", "f06f"), ("Wingdings 2", "F050"), ("Wingdings", "F04A")]
    symbols = "".join(f'<w:r><w:sym w:font="{font}" w:char="{code}"/><w:t>;</w:t></w:r>' for font, code in boxes)
    word = docx.Document()
    word.element.body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{symbols}</w:p>"))
    assert read_bytes(saved(word), "a.docx").text == "[x];[ ];✓;;"


def test_hidden_text_of_docx_is_left_out() -> None:
    runs = [("<w:vanish/>", "no"), ("<w:vanish w:val='0'/>", "yes"), ("<w:b/>", "!")]
    written = "".join(f"<w:r><w:rPr>{style}</w:rPr><w:t>{text}</w:t></w:r>" for style, text in runs)
    word = docx.Document()
    word.element.body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{written}</w:p>"))
    assert read_bytes(saved(word), "a.docx").text == "yes!"


def paragraphs(*contents: str) -> bytes:
    word = docx.Document()
    for content in contents:
        word.element.body.insert_element_before(parse_xml(f"<w:p {nsdecls('w', 'm')}>{content}</w:p>"), "w:sectPr")
    return saved(word)


def run(text: str, style: str = "") -> str:
    return f"<w:r><w:rPr>{style}</w:rPr>{text}</w:r>"


def test_text_of_docx_above_and_below_the_line_is_told_apart() -> None:
    raised = '<w:vertAlign w:val="superscript"/>'
    power = run("<w:t>10</w:t>") + run("<w:t>9</w:t>", raised) + run("<w:t>/L, 1</w:t>") + run("<w:t>st</w:t>", raised)
    ruby = run(f"<w:ruby><w:rt>{run('<w:t>kan</w:t>')}</w:rt><w:rubyBase>{run('<w:t>漢</w:t>')}</w:rubyBase></w:ruby>")
    number = "<m:r><m:t>{}</m:t></m:r>"
    square = f"<m:sSup><m:e>{number.format('x')}</m:e><m:sup>{number.format('2')}</m:sup></m:sSup>"
    half = f"<m:f><m:num>{number.format('a+1')}</m:num><m:den>{number.format('2')}</m:den></m:f>"
    text = read_bytes(paragraphs(power, ruby, f"<m:oMath>{square}{half}</m:oMath>"), "a.docx").text
    assert text.split("\n\n") == ["10⁹/L, 1st", "漢(kan)", "x²(a+1)/2"]


def test_controls_of_docx_that_are_not_filled_in_are_left_out() -> None:
    control = "<w:sdt><w:sdtPr><w:showingPlcHdr{}/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
    words = [run(f"<w:t>{word}</w:t>") for word in ("Enter a name", "Ada", " is here")]
    inline = control.format("", words[0]) + control.format(" w:val='0'", words[1]) + words[2]
    assert read_bytes(paragraphs(inline), "a.docx").text == "Ada is here"
    word = docx.Document()
    block = control.format("", PARAGRAPH.format("Choose an item"))
    word.element.body.insert(0, parse_xml(block.replace("<w:sdt>", f"<w:sdt {nsdecls('w')}>", 1)))
    assert read_bytes(saved(word), "a.docx").text == ""


def test_optional_hyphens_of_docx_are_left_out() -> None:
    content = paragraphs(run("<w:t>Rech\xadnung</w:t>") + run("<w:softHyphen/>") + run("<w:t>en</w:t>"))
    assert read_bytes(content, "a.docx").text == "Rechnungen"


def test_text_boxes_of_docx_are_lines_of_their_own() -> None:
    box = "<w:pict><w:txbxContent>{}</w:txbxContent></w:pict>".format(PARAGRAPH.format("one") + PARAGRAPH.format("two"))
    content = paragraphs(run("<w:t>before</w:t>") + run(box) + run("<w:t>after</w:t>"))
    assert read_bytes(content, "a.docx").text == "before\none\ntwo\nafter"
    content = paragraphs(run("<w:t>before</w:t>"), run(box), run("<w:t>after</w:t>"))
    assert read_bytes(content, "a.docx").text == "before\n\none\ntwo\n\nafter"


def test_what_was_deleted_under_review_is_left_out() -> None:
    joined = paragraphs("<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>" + run("<w:t>one </w:t>"), run("<w:t>paragraph</w:t>"))
    assert read_bytes(joined, "a.docx").text == "one paragraph"
    word = docx.Document()
    row = "<w:tr>{}<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc></w:tr>"
    rows = row.format("", "kept") + row.format("<w:trPr><w:del/></w:trPr>", "") + row.format("<w:trPr/>", "too")
    word.element.body.insert(0, parse_xml(f"<w:tbl {nsdecls('w')}><w:tblPr/><w:tblGrid/>{rows}</w:tbl>"))
    assert read_bytes(saved(word), "a.docx").text == "kept\ntoo"


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        (".docm", "application/vnd.ms-word.document.macroEnabled.main+xml"),
        (".dotx", "application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml"),
        (".dotm", "application/vnd.ms-word.template.macroEnabledTemplate.main+xml"),
    ],
)
def test_other_kinds_of_word_files_are_read(suffix: str, kind: str) -> None:
    with ZipFile(BytesIO(word_document("Hello"))) as archive, ZipFile(content := BytesIO(), "w") as other:
        for name in archive.namelist():
            main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
            other.writestr(name, archive.read(name).replace(main.encode(), kind.encode()))
    assert "Hello" in read_bytes(content.getvalue(), f"a{suffix}").text


def test_headers_that_are_shown_are_read() -> None:
    word = docx.Document()
    section = word.sections[0]
    for name in ("first_page_header", "header", "even_page_header"):
        getattr(section, name).paragraphs[0].text = name
    assert read_bytes(saved(word), "a.docx").text == "header"
    section.different_first_page_header_footer = word.settings.odd_and_even_pages_header_footer = True
    assert read_bytes(saved(word), "a.docx").text == "first_page_header\n\nheader\n\neven_page_header"


def test_notes_of_docx_are_read() -> None:
    word = docx.Document()
    word.add_paragraph("The price is net.")
    word.sections[0].footer.paragraphs[0].text = "Page 1"
    for kind, kinds in (("endnote", RELATIONSHIP_TYPE.ENDNOTES), ("footnote", RELATIONSHIP_TYPE.FOOTNOTES)):
        separator = f'<w:{kind} w:type="separator" w:id="0"><w:p><w:r><w:separator/></w:r></w:p></w:{kind}>'
        note = f'<w:{kind} w:id="1">{PARAGRAPH.format(f"Text of the {kind}")}{PARAGRAPH.format("Second")}</w:{kind}>'
        notes = f"<w:{kind}s {nsdecls('w')}>{separator}{note}</w:{kind}s>"
        part = Part(PackURI(f"/word/{kind}s.xml"), f"{CONTENT_TYPE}.{kind}s+xml", notes.encode(), word.part.package)
        word.part.relate_to(part, kinds)
    assert read_bytes(saved(word), "a.docx").text.split("\n\n") == [
        "The price is net.",
        "Text of the footnote\nSecond",
        "Text of the endnote\nSecond",
        "Page 1",
    ]


def test_an_empty_docx_has_no_text() -> None:
    assert read_bytes(saved(docx.Document()), "a.docx").text == ""


def test_broken_and_encrypted_docx_are_errors() -> None:
    for content in (b"", b"PK\x03\x04 but no archive", word_document()[:-400]):
        with pytest.raises(DocumentError, match=r"^a\.docx: it is broken"):
            read_bytes(content, "a.docx")
    with pytest.raises(DocumentError, match="encrypted, or in the old format DOC: save it as DOCX"):
        read_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a.docx")


def test_values_of_forms_are_read() -> None:
    page = """<form><label>Name <input name=n value="Zoë"></label> <input type=hidden value=secret>
    <input type=number value=3> pears <p>Size <select><option>small<option selected>large</select>
    <select><option>red<option>blue</select>
    <input type=checkbox checked>urgent <input type=radio>later <textarea>Please ring.
    Twice.</textarea>Bye <input type=submit value=Send>"""
    assert read_bytes(page.encode(), "a.html").text.split() == (
        "Name Zoë 3 pears Size [ ] small [x] large red blue [x] urgent [ ] later Please ring. Twice. Bye".split()
    )


# E-mail


def message(text: str, html: bool = False) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Ada Müller <ada@example.com>", "b@example.com, c@example.com"
    mail["Subject"], mail["Date"] = f"About {text[:9]}", "Fri, 03 May 2024 10:00:00 +0200"
    mail.set_content(f"<p>{text}</p>" if html else text, subtype="html" if html else "plain")
    mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Rechnung März.pdf")
    return mail


@every_text
@pytest.mark.parametrize("html", [False, True])
def test_an_e_mail_is_its_headers_and_its_text(text: str, html: bool) -> None:
    document = read_bytes(bytes(message(text, html)), "a.eml")
    assert document.text == (
        f"From: Ada Müller <ada@example.com>\nTo: b@example.com, c@example.com\nSubject: About {text[:9].strip()}\n"
        f"Date: Fri, 03 May 2024 10:00:00 +0200\nAttachments: Rechnung März.pdf\n\n{text}"
    )
    assert document.metadata == {
        "sender": "Ada Müller <ada@example.com>",
        "recipients": "b@example.com, c@example.com",
        "subject": f"About {text[:9].strip()}",
        "date": "2024-05-03T10:00:00+02:00",
        "attachments": ["Rechnung März.pdf"],
    }


def test_plain_text_of_an_e_mail_is_preferred_unless_it_is_empty() -> None:
    for plain, wanted in (("plain", "plain"), (" ", "html")):
        mail = EmailMessage()
        mail.set_content(plain)
        mail.add_alternative("<p>html</p>", subtype="html")
        assert read_bytes(bytes(mail), "a.eml").text == wanted


def test_attached_messages_are_read() -> None:
    innermost, inner, outer = message("from the supplier"), message("from the shop", html=True), EmailMessage()
    inner.add_attachment(innermost)
    outer["Subject"] = "Fwd"
    outer.set_content("please see below")
    outer.add_attachment(inner)
    document = read_bytes(bytes(outer), "a.eml")
    assert document.text.startswith("Subject: Fwd\n\nplease see below\n\n")
    places = [document.text.index(part) for part in ("below", "Ada", "from the shop", "from the supplier")]
    assert places == sorted(places)
    assert document.metadata == {"subject": "Fwd"}


def test_malformed_e_mails_are_read_as_far_as_possible() -> None:
    raw = "From: <<@\nDate: some day\nSubject: Grüße\nContent-Type: text/plain; charset=nonsense\n\nCafé"
    document = read_bytes(raw.encode("cp1252"), "a.eml")
    assert document.text.endswith("Café") and document.metadata["date"] == "some day"
    assert read_bytes(b"only a text", "a.eml").text


# The format


def pdf_of(text: str) -> bytes:
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("helvetica", size=12)
    pdf.multi_cell(0, 6, text)
    return bytes(pdf.output())


@pytest.mark.parametrize("name", ["letter", "letter.2024", "-"])
def test_without_a_known_suffix_the_content_tells_the_format(name: str) -> None:
    contents = {
        "pdf": pdf_of("Hello"),
        "docx": word_document("Hello"),
        "html": b"\n<!doctype html><p>Hello",
        "xhtml": b'<?xml version="1.0"?>\n<!-- made by hand -->\n<html><body>Hello</body></html>',
        "eml": b"Received: from x\r\n by y\r\nSubject: Hello\r\n\r\nHello\r\n",
        "txt": b"From: the beginning, Hello",
    }
    for suffix, content in contents.items():
        assert read_bytes(content, name).text == read_bytes(content, f"letter.{suffix}").text
        assert "Hello" in read_bytes(content, name).text


def test_suffixes_are_known_in_capitals_too() -> None:
    assert read_bytes(pdf_of("Hello"), "LETTER.PDF").text == "Hello"


def test_paths_are_not_taken_for_texts() -> None:
    with pytest.raises(ArgumentError, match=r"is a path, and no document; constrain\.documents\.read reads files"):
        Document.of(Path("a.txt"))


def test_a_missing_library_is_named_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    with pytest.raises(DocumentError, match=r"needs pypdfium2, .* pip install 'constrain-lm\[documents\]'"):
        read_bytes(b"%PDF-1.7", "a.pdf")


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.html", "a.eml", "a.txt"])
def test_damaged_files_are_read_or_refused(name: str) -> None:
    whole = {
        "a.pdf": pdf_of("Hello"),
        "a.docx": word_document(),
        "a.html": PAGE.format(text="Grüße").encode(),
        "a.eml": bytes(message("Grüße", html=True)),
        "a.txt": "Grüße".encode("cp1252"),
    }[name]
    draw = random.Random(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 5)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        with contextlib.suppress(DocumentError):
            read_bytes(bytes(damaged[: draw.randrange(len(whole), 2 * len(whole))]), name)
