"""The automatic numbers of paragraphs in Word documents."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn

from constrain.documents import read_bytes

OUTLINE = ("decimal", "%1."), ("lowerLetter", "%2)"), ("lowerRoman", "%1.%3")


def levels(*forms: tuple[str, str], inside: str = "") -> str:
    return "".join(
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/>{inside}</w:lvl>'
        for at, (form, text) in enumerate(forms)
    )


def document(*paragraphs: tuple[str, str], kinds: str, instances: str = "", styles: str = "") -> str:
    """Return the text of a document whose paragraphs are texts with their properties."""
    word = docx.Document()
    numbering = word.part.numbering_part.element
    for child in list(numbering):
        numbering.remove(child)
    own = f'<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>{instances}'
    for child in parse_xml(f"<w:numbering {nsdecls('w')}>{kinds}{own}</w:numbering>"):
        numbering.append(child)
    for style in parse_xml(f"<w:styles {nsdecls('w')}>{styles}</w:styles>"):
        word.styles.element.append(style)
    for properties, text in paragraphs:
        run = f"<w:r><w:t>{text}</w:t></w:r>" if text else ""
        made = parse_xml(f"<w:p {nsdecls('w')}><w:pPr>{properties}</w:pPr>{run}</w:p>")
        word.element.body.insert_element_before(made, "w:sectPr")
    word.save(content := BytesIO())
    return read_bytes(content.getvalue(), "a.docx").text.replace("\n\n", "; ")


def of(level: int, instance: int = 1) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{instance}"/></w:numPr>'


def kind(content: str, number: int = 0) -> str:
    return f'<w:abstractNum w:abstractNumId="{number}">{content}</w:abstractNum>'


def test_paragraphs_begin_with_the_numbers_of_their_levels() -> None:
    places = [0, 1, 1, 2, 0, 1, 2, 2]
    text = document(*((of(at), f"p{n}") for n, at in enumerate(places)), kinds=kind(levels(*OUTLINE)))
    assert text == "1. p0; a) p1; b) p2; 1.i p3; 2. p4; a) p5; 2.i p6; 2.ii p7"


def test_paragraphs_outside_of_lists_have_no_numbers_and_those_without_text_count() -> None:
    given = [(of(0), "a"), ("", "b"), (of(0), ""), (of(0, 0), "c"), (of(0, 7), "d"), (of(0), "e")]
    assert document(*given, kinds=kind(levels(*OUTLINE))) == "1. a; b; c; d; 3. e"


def test_deleted_paragraphs_do_not_count() -> None:
    deleted = f"{of(0)}<w:rPr><w:del/></w:rPr>"
    assert document((of(0), "a"), (deleted, ""), (of(0), "b"), kinds=kind(levels(*OUTLINE))) == "1. a; 2. b"


@pytest.mark.parametrize(
    ("form", "text", "mark"),
    [
        ("upperRoman", "Article %1", "Article IV b"),
        ("upperLetter", "(%1)", "(D) b"),
        ("decimalZero", "%1", "04 b"),
        ("ordinal", "%1", "4th b"),
        ("cardinalText", "%1:", "4: b"),
        ("none", "%1", "b"),
        ("none", "Note:", "Note: b"),
        ("bullet", "\uf0b7", "* b"),
    ],
)
def test_numbers_have_the_form_of_their_list(form: str, text: str, mark: str) -> None:
    given = [(of(0), "a")] * 3 + [(of(0), "b")]
    assert document(*given, kinds=kind(levels((form, text)))).split("; ")[-1] == mark


def test_endings_of_ordinal_numbers() -> None:
    kinds = kind(levels(("ordinal", "%1")))
    marks = [each.split()[0] for each in document(*[(of(0), "a")] * 123, kinds=kinds).split("; ")]
    shown = {int(mark[:-2]): mark[-2:] for mark in marks}
    assert [number for number in shown if shown[number] == "st"] == [n for n in range(1, 124, 10) if n not in (11, 111)]
    assert [number for number in shown if shown[number] == "nd"] == [n for n in range(2, 124, 10) if n not in (12, 112)]
    assert [number for number in shown if shown[number] == "rd"] == [n for n in range(3, 124, 10) if n not in (13, 113)]
    assert set(shown.values()) == {"st", "nd", "rd", "th"}


def test_bullets_are_moved_in_by_their_level() -> None:
    bullets = kind(levels(("bullet", "o"), ("bullet", "-")))
    assert document((of(0), "a"), (of(1), "b"), (of(1), "c"), kinds=bullets) == "* a;   * b;   * c"


def test_lists_of_one_kind_go_on_unless_they_begin_anew() -> None:
    other = '<w:num w:numId="2"><w:abstractNumId w:val="0"/></w:num>'
    start = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    given = [(of(0), "a"), (of(0, 2), "b"), (of(0, 2), "c")]
    kinds = kind(levels(*OUTLINE))
    assert document(*given, kinds=kinds, instances=other) == "1. a; 2. b; 3. c"
    anew = other.replace("</w:num>", f"{start}</w:num>")
    assert document(*given, kinds=kinds, instances=anew) == "1. a; 5. b; 6. c"


def test_levels_may_be_those_of_one_list_only() -> None:
    own = f'<w:lvlOverride w:ilvl="0">{levels(("upperLetter", "%1/"))}</w:lvlOverride>'
    other = f'<w:num w:numId="2"><w:abstractNumId w:val="0"/>{own}</w:num>'
    assert document((of(0, 2), "a"), (of(0), "b"), kinds=kind(levels(*OUTLINE)), instances=other) == "A/ a; 2. b"


def test_levels_begin_anew_as_they_say() -> None:
    never = levels(("decimal", "%1."), ("decimal", "%2."), inside='<w:lvlRestart w:val="0"/>')
    assert document(*((of(at), "p") for at in (0, 1, 0, 1)), kinds=kind(never)) == "1. p; 1. p; 2. p; 2. p"


def test_legal_numbers_are_digits() -> None:
    legal = levels(("upperRoman", "%1"), ("upperLetter", "%1.%2"), inside="<w:isLgl/>")
    assert document((of(0), "a"), (of(1), "b"), kinds=kind(legal)) == "1 a; 1.1 b"


def test_styles_number_their_paragraphs() -> None:
    """Numbered headings: the list names the style of each level, and a style may be based on another."""
    two = levels(("decimal", "%1")) + levels(("decimal", "%1"), ("decimal", "%1.%2"), inside='<w:pStyle w:val="B"/>')
    kinds = kind(levels(("decimal", "%1")) + two[two.index('<w:lvl w:ilvl="1"') :])
    style = '<w:style w:type="paragraph" w:styleId="{}"><w:basedOn w:val="{}"/><w:pPr>{}</w:pPr></w:style>'
    numbered = "<w:numPr><w:numId w:val='1'/></w:numPr>"
    styles = style.format("A", "Normal", numbered) + style.format("B", "A", "") + style.format("C", "C", "")
    given = [(f'<w:pStyle w:val="{name}"/>', name) for name in "ABBAC"]
    assert document(*given, kinds=kinds, styles=styles) == "1 A; 1.1 B; 1.2 B; 2 A; C"


def test_lists_of_a_style_are_of_its_kind() -> None:
    linked = kind('<w:numStyleLink w:val="L"/>', 0) + kind(levels(("lowerRoman", "(%1)")), 1)
    style = f'<w:style w:type="numbering" w:styleId="L"><w:pPr>{of(0, 2)}</w:pPr></w:style>'
    instance = '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
    assert document((of(0), "a"), (of(0), "b"), kinds=linked, instances=instance, styles=style) == "(i) a; (ii) b"
    circle = style.replace('w:val="2"', 'w:val="1"')
    assert document((of(0), "a"), kinds=linked, instances=instance, styles=circle) == "a"


def test_damaged_lists_have_no_numbers() -> None:
    broken: list[Any] = [
        kind('<w:lvl w:ilvl="x"/><w:lvl/><w:lvl w:ilvl="0"><w:start w:val="-"/></w:lvl>'),
        "<w:abstractNum/>",
        "",
    ]
    for kinds in broken:
        assert document((of(0), "a"), (of(9), "b"), kinds=kinds) == "a; b"


def test_lists_of_programs_are_read() -> None:
    word = docx.Document()
    for style in ("List Number", "List Bullet", "List Number", "Normal"):
        word.add_paragraph(style, style=style)
    cell = word.add_table(1, 1).cell(0, 0)
    cell.paragraphs[0].style, cell.paragraphs[0].text = word.styles["List Number"], "in a cell"
    assert word.part.numbering_part.element.find(qn("w:num")) is not None
    word.save(content := BytesIO())
    lines = read_bytes(content.getvalue(), "a.docx").text.split("\n\n")
    assert lines == ["1. List Number", "* List Bullet", "2. List Number", "Normal", "3. in a cell"]


def test_a_list_that_begins_at_a_billion_is_not_numbered_with_millions_of_letters() -> None:
    other = '<w:num w:numId="2"><w:abstractNumId w:val="0"/></w:num>'
    start = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="999999999"/></w:lvlOverride>'
    anew = other.replace("</w:num>", f"{start}</w:num>")
    kinds = kind(levels(("lowerLetter", "%1)")))
    assert document((of(0), "a"), (of(0, 2), "b"), kinds=kinds, instances=anew) == "a) a; 999999999) b"
