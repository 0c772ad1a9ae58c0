"""PDFs: text in reading order, and boxes that cover the ink of their characters."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from block_font import write_block_font
from fpdf import FPDF
from PIL import Image

from constrain.documents import Box, Document, read_bytes
from constrain.documents.page_images import page_images
from constrain.errors import DocumentError

WORDS = "Apples quilted by Jörg (fjord), yes; 12,50 £ for Ångström's gypsy WAVE fijiq".split()
SENTENCES = {
    "Greek": "Αγαπητή κυρία Παπαδοπούλου",
    "Chinese": "尊敬的王先生，您的发票金额为1200元。",
    "Arabic": "السيد أحمد المحترم",
    "emoji": "Thanks 😀 Zoë 𝔘 e\u0301",
}
#: Pixels a point of rendered pages.
SCALE = 3


@pytest.fixture(scope="module")
def font(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fonts") / "blocks.ttf"
    write_block_font(path, "".join(SENTENCES.values()) + " ".join(WORDS) + "Here")
    return path


def new_pdf(font: Path | None = None) -> FPDF:
    pdf = FPDF(unit="pt")
    if font is not None:
        pdf.add_font("blocks", "", font)
    pdf.add_page()
    pdf.set_font("helvetica", size=12)
    return pdf


def read_pdf(pdf: FPDF) -> Document:
    return read_bytes(bytes(pdf.output()), "a.pdf")


# Boxes


def page_with_a_red_passage(number: int, font: Path) -> tuple[bytes, str]:
    """A page of running text, a passage of which is red, and that passage."""
    draw = random.Random(number)
    words = [draw.choice(WORDS) for _ in range(150)]
    first = draw.randrange(100)
    last = first + draw.randint(1, 40)
    words[first] = "Here"  # so that the passage is there once
    pdf = new_pdf(font)
    pdf.set_margin(draw.randint(20, 120))
    size, leading = draw.choice([8, 10, 12, 18]), draw.choice([1.2, 1.5])
    pdf.set_font(draw.choice(["helvetica", "times", "courier", "blocks"]), size=size)
    for part, color in ((words[:first], 0), (words[first:last], 255), (words[last:], 0)):
        pdf.set_text_color(color, 0, 0)
        pdf.write(size * leading, " ".join(part))
        pdf.write(size * leading, " ")
    return turned_and_cropped(bytes(pdf.output()), number), " ".join(words[first:last])


def turned_and_cropped(content: bytes, number: int) -> bytes:
    """Turn the content of three of four pages, and the page so that it is upright again; crop every third."""
    pdf = pypdfium2.PdfDocument(content)
    page, angle = pdf[0], 90 * (number % 4)
    width, height = page.get_size()
    shift = {0: (0, 0), 90: (height, 0), 180: (width, height), 270: (0, width)}[angle]
    for text in page.get_objects():
        text.transform(pypdfium2.PdfMatrix().rotate(angle, ccw=True).translate(*shift))
    page.gen_content()
    page.set_mediabox(0, 0, *((width, height) if angle % 180 == 0 else (height, width)))
    page.set_rotation(angle)
    if number % 3 == 0:
        left, bottom, right, top = page.get_mediabox()
        page.set_cropbox(left + 10, bottom + 5, right - 8, top - 12)
    pdf.save(changed := BytesIO())
    return changed.getvalue()


def rendered(content: bytes, page: int = 0) -> np.ndarray:
    image: Image.Image = pypdfium2.PdfDocument(content)[page].render(scale=SCALE).to_pil().convert("RGB")
    return np.asarray(image).astype(int)


def covered(boxes: list[Box], height: int, width: int) -> np.ndarray:
    """The pixels inside of boxes; at their edges a pixel more, which glyphs are blended with."""
    inside = np.zeros((height, width), bool)
    for box in boxes:
        top, bottom = int(box.top * SCALE) - 1, int(box.bottom * SCALE) + 2
        inside[max(top, 0) : bottom, max(int(box.left * SCALE) - 1, 0) : int(box.right * SCALE) + 2] = True
    return inside


@pytest.mark.parametrize("number", range(20))
def test_boxes_cover_the_ink_of_a_passage_and_little_else(number: int, font: Path) -> None:
    content, passage = page_with_a_red_passage(number, font)
    document = read_bytes(content, "a.pdf")
    start = unbroken(document.text).index(unbroken(passage))
    image = rendered(content)
    red, green = image[:, :, 0], image[:, :, 1]
    is_red, is_black = red - green > 100, red < 100
    inside = covered(document.boxes(start, start + len(passage)), *is_red.shape)
    assert is_red.sum() > 100
    assert (is_red & inside).sum() == is_red.sum()
    assert (is_black & inside).sum() < 0.05 * is_red.sum()


def unbroken(text: str) -> str:
    return text.replace("\n", " ")


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES.keys())
def test_every_character_has_its_box(sentence: str, font: Path) -> None:
    pdf = new_pdf(font)
    pdf.set_font("blocks", size=20)
    pdf.write(30, sentence if sentence != SENTENCES["Arabic"] else sentence[::-1])  # right to left on the page
    content = bytes(pdf.output())
    document = read_bytes(content, "a.pdf")
    assert document.text == sentence
    ink = rendered(content)[:, :, 0] < 100
    for index, character in enumerate(sentence):
        inside = covered(document.boxes(index, index + 1), *ink.shape)
        assert (ink & inside).any() == (character != " ")
    boxes = document.boxes(0, len(sentence))
    assert len(boxes) == 1 and not (ink & ~covered(boxes, *ink.shape)).any()


# Text


def test_pages_paragraphs_and_lines_are_kept_apart() -> None:
    pdf = new_pdf()
    pdf.set_title("A title")
    pdf.set_author("Ada Müller")
    pdf.multi_cell(200, 14, "One two three four five six seven eight nine ten eleven twelve.", new_x="LMARGIN")
    pdf.ln(20)
    pdf.multi_cell(200, 14, "A second paragraph\nof two lines.", new_x="LMARGIN")
    pdf.add_page()
    pdf.cell(80, 14, "Item")
    pdf.cell(80, 14, "Price")
    pdf.ln(14)
    pdf.cell(80, 14, "Apples")
    pdf.cell(80, 14, "12.50")
    pdf.add_page()
    document = read_pdf(pdf)
    assert document.text == (
        "One two three four five six seven\neight nine ten eleven twelve.\n\nA second paragraph\nof two lines."
        "\n\nItem        Price\nApples      12.50\n\n"
    )
    assert document.metadata == {"title": "A title", "author": "Ada Müller"}
    assert [document.text[page.start : page.end] for page in document.pages][1:] == [
        "Item        Price\nApples      12.50",
        "",
    ]
    assert [(page.number, page.width, page.height) for page in document.pages[1:]] == [
        (number, pytest.approx(595.28), pytest.approx(841.89)) for number in (2, 3)
    ]
    assert all(len(page.boxes) == page.end - page.start for page in document.pages)


def table(*rows: tuple[str, ...], widths: tuple[int, ...] = (120, 60, 60)) -> FPDF:
    pdf = new_pdf()
    for row in rows:
        for width, cell in zip(widths, row, strict=True):
            pdf.cell(width, 14, cell)
        pdf.ln(14)
    return pdf


def test_cells_of_tables_stand_in_columns() -> None:
    document = read_pdf(table(("Item", "Each", "Note"), ("Red plum", "", "sold out"), ("", "1.20", "new")))
    header, *rows = document.text.split("\n")
    columns = {name: header.index(name) for name in header.split()}
    assert [row.split() for row in rows] == [["Red", "plum", "sold", "out"], ["1.20", "new"]]
    assert rows[0].index("Red plum") == columns["Item"] and rows[1].index("1.20") == columns["Each"]
    assert [row.index(word) for row, word in zip(rows, ("sold", "new"), strict=True)] == [columns["Note"]] * 2
    start = document.text.index("sold")
    assert len(document.boxes(start, start + 8)) == 1


def test_columns_that_nearly_touch_have_a_gap() -> None:
    line = "An item with a name"
    text = read_pdf(table((line, "5", ""), widths=(int(new_pdf().get_string_width(line)) + 16, 9, 9))).text
    assert text == f"{line}  5"


def placed(*texts: tuple[int, int, str]) -> Document:
    pdf = new_pdf()
    for left, top, text in texts:
        pdf.text(left, top, text)
    return read_pdf(pdf)


def test_values_that_were_written_after_all_labels_stand_beside_them() -> None:
    labels = ((50, 60, "Name:"), (300, 60, "Born:"), (50, 80, "Town:"), (50, 100, "Signed:"))
    document = placed(*labels, (120, 60, "Ada Byron"), (360, 60, "1815"), (120, 80, "London"))
    lines = [" ".join(line.split()) for line in document.text.split("\n")]
    assert lines == ["Name: Ada Byron Born: 1815", "Town: London", "Signed:"]
    start = document.text.index("1815")
    (box,) = document.boxes(start, start + 4)
    assert box.left == pytest.approx(360, abs=3)


@pytest.mark.parametrize(
    "texts",
    [
        (
            (50, 60, "Things that"),
            (50, 80, "grow:"),
            (50, 100, "trees"),
            (300, 60, "In the"),
            (300, 80, "second column"),
        ),
        ((50, 60, "Address:"), (50, 80, "Town:"), (120, 60, "Mill Lane"), (120, 74, "near the mill")),
        ((50, 60, "Name:"), (50, 80, "bread"), (300, 60, "Town:"), (30, 90, "cake")),
        ((50, 60, "At 10:30 he"), (50, 80, "bread"), (300, 60, "cake")),
    ],
)
def test_other_texts_beside_a_colon_stay_where_they_are(texts: tuple[tuple[int, int, str], ...]) -> None:
    assert placed(*texts).text.replace("\n\n", "\n").split("\n") == [text for _, _, text in texts]


def test_justified_lines_have_no_wide_gaps() -> None:
    pdf = new_pdf()
    pdf.multi_cell(230, 14, "It was a long and winding road to the old station of the town of Ely.", align="J")
    assert "  " not in read_pdf(pdf).text


def test_lines_far_apart_throughout_are_one_paragraph() -> None:
    pdf = new_pdf()
    pdf.multi_cell(0, 26, "one\ntwo\nthree")
    assert read_pdf(pdf).text == "one\ntwo\nthree"


def test_a_word_broken_at_a_line_keeps_its_hyphen() -> None:
    pdf = new_pdf()
    pdf.multi_cell(0, 14, "an exam-\nple of a well-known thing")
    document = read_pdf(pdf)
    assert document.text == "an exam-\nple of a well-known thing"
    assert len(document.boxes(3, 12)) == 2


# Files that cannot be read


def test_a_scan_is_an_error_that_says_so() -> None:
    pdf = new_pdf()
    pdf.image(Image.new("RGB", (40, 40), "white"))
    with pytest.raises(DocumentError, match=r"^a\.pdf: it has no text, only images, as a scan: run OCR over it first"):
        read_pdf(pdf)


def test_pages_without_text_among_others_are_named() -> None:
    pdf = new_pdf()
    pdf.cell(text="Page one")
    for _ in range(2):
        pdf.add_page()
        pdf.image(Image.new("RGB", (8, 8)), 10, 10)
    pdf.add_page()  # blank
    document = read_pdf(pdf)
    assert (document.text.strip(), document.metadata) == ("Page one", {"pages_without_text": [2, 3]})


def test_blank_pages_are_an_empty_document() -> None:
    document = read_pdf(new_pdf())
    assert (document.text, len(document.pages)) == ("", 1)


def test_an_encrypted_file_is_an_error_that_says_so() -> None:
    pdf = new_pdf()
    pdf.set_encryption("owner", user_password="secret")
    with pytest.raises(DocumentError, match="it is encrypted: save a copy without a password"):
        read_pdf(pdf)


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7 and no more", b"not a PDF"])
def test_a_broken_file_is_an_error(content: bytes) -> None:
    with pytest.raises(DocumentError, match="it is broken"):
        read_bytes(content, "a.pdf")


# Forms


def form(page: str, *fields: str, texts: tuple[str, ...] = ()) -> bytes:
    """A PDF of one page with texts and form fields, as they are written in the file."""
    content = " ".join(f"BT /F 12 Tf {text} ET" for text in texts)
    numbers = " ".join(f"{number} 0 R" for number in range(6, 6 + len(fields)))
    objects = [
        f"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[{numbers}]/DA(/F 12 Tf)/DR<</Font<</F 5 0 R>>>>>>>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>/Annots[{numbers}]{page}>>",
        f"<</Length {len(content)}>>stream\n{content}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        *(f"<</Type/Annot/Subtype/Widget{field}>>" for field in fields),
    ]
    written = b"%PDF-1.7\n"
    offsets = []
    for number, one in enumerate(objects, 1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R>>"
    return written + f"{end}\nstartxref\n{len(written)}\n%%EOF".encode()


PAGE = "/MediaBox[0 0 600 800]"
BOX = "/FT/Btn/AP<</N<</Yes 4 0 R/Off 4 0 R>>>>"
FIELDS = (
    "/FT/Tx/T(name)/V<FEFF005A006F00EB>/Rect[120 695 320 715]",
    "/FT/Ch/Ff 131072/T(kind)/V(g)/Opt[[(g)(gold)][(s)(silver)]]/Rect[120 600 320 615]",
    "/FT/Ch/Ff 2097152/T(many)/V[(one)(three)]/Opt[(one)(two)(three)]/Rect[120 500 320 530]",
    f"{BOX}/T(yes)/AS/Yes/V/Yes/Rect[60 400 70 410]",
    f"{BOX}/T(no)/AS/Off/Rect[160 400 170 410]",
    "/FT/Tx/Ff 4096/T(notes)/V(First line\\rSecond)/Rect[72 300 320 340]",
    "/FT/Tx/Ff 8192/T(password)/V(secret)/Rect[72 200 320 215]",
    "/FT/Tx/F 2/T(hidden)/V(hidden)/Rect[72 200 320 215]",
    "/FT/Tx/T(empty)/Rect[72 200 320 215]",
    "/FT/Btn/Ff 65536/T(send)/MK<</CA(Send)>>/Rect[72 100 320 115]",
)
TEXTS = (
    "72 700 Td (Name:) Tj",
    "330 700 Td (\\(maiden name\\)) Tj",
    "72 604 Td (Kind:) Tj",
    "72 402 Td (Yes) Tj",
    "172 402 Td (No) Tj",
    "72 250 Td (Bye) Tj",
)


def test_values_of_forms_stand_beside_their_labels() -> None:
    text = read_bytes(form(PAGE, *FIELDS, texts=TEXTS), "a.pdf").text
    lines = [" ".join(line.split()) for line in text.split("\n") if line]
    assert lines == [
        "Name: Zoë (maiden name)",
        "Kind: gold",
        "one",
        "three",
        "[x] Yes [ ] No",
        "First line",
        "Second",
        "Bye",
    ]


@pytest.mark.parametrize(
    ("page", "edges"),
    [
        (PAGE, (120, 85, 320, 105)),
        ("/MediaBox[0 0 600 800]/CropBox[100 100 500 780]", (20, 65, 220, 85)),
        ("/MediaBox[0 0 600 800]/Rotate 90", (695, 120, 715, 320)),
        ("/MediaBox[0 0 600 800]/Rotate 180", (280, 695, 480, 715)),
        ("/MediaBox[0 0 600 800]/Rotate 270", (85, 280, 105, 480)),
    ],
)
def test_the_value_of_a_field_has_its_place(page: str, edges: tuple[float, ...]) -> None:
    document = read_bytes(form(page, FIELDS[0]), "a.pdf")
    assert document.text == "Zoë"
    assert document.boxes(0, 3) == [Box(1, *edges)]


def test_images_of_pages_show_the_values_of_forms(tmp_path: Path) -> None:
    path = tmp_path / "form.pdf"
    path.write_bytes(form(PAGE, FIELDS[0]))
    (image,) = page_images(str(path), [1])
    pixels = np.asarray(Image.open(BytesIO(image)).convert("L"))
    rows, columns = np.nonzero(pixels < 128)
    scale = len(pixels) / 800
    assert 85 * scale <= rows.min() <= rows.max() <= 105 * scale
    assert 120 * scale <= columns.min() <= columns.max() <= 320 * scale


def test_texts_that_were_added_to_a_page_are_read() -> None:
    pdf = new_pdf()
    pdf.text(20, 50, "Below is a remark.")
    pdf.free_text_annotation("Seen by Ada", x=20, y=100, w=60, h=10)
    pdf.text_annotation(x=100, y=20, text="a note that is closed")
    assert read_pdf(pdf).text.split("\n\n") == ["Below is a remark.", "Seen by Ada"]
