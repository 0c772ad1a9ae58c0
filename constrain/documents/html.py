"""HTML documents."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from constrain.documents.document import Document
from constrain.documents.encodings import decoded, encoding_note
from constrain.documents.forms import show_forms
from constrain.documents.html_lists import number_lists, with_marks
from constrain.documents.html_spans import separate_spans
from constrain.documents.html_tables import lay_out_tables
from constrain.documents.numerals import raised
from constrain.documents.optional import optional

if TYPE_CHECKING:
    from inscriptis.model.config import ParserConfig
    from lxml.html import HtmlElement

#: The encoding that a page or its XML declaration names, which stands near the beginning.
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_DECLARED_WITHIN = 2048
#: Elements that begin and end lines of their own (https://html.spec.whatwg.org/#flow-content-3), without those that
#: inscriptis knows.
_BLOCKS = "caption center details dialog dir dl dt fieldset form hr legend menu optgroup search section summary".split()
#: Columns by which what explains a term is moved in.
_INDENT = 4
#: Stands for ``&``; no text has this character, which is kept for programs (a noncharacter of Unicode).
_AMPERSAND = "\ufdd0"
#: Characters of the layout, and those that only say where a word may be broken, so that searches would miss it.
_CHARACTERS = {ord(_AMPERSAND): "&", 0xAD: None, 0x200B: None, 0x2060: None, 0xFEFF: None}
#: Elements that show their content only in programs without the element that they are, and what a script opens.
_NOT_SHOWN = "//audio | //video | //canvas | //iframe | //datalist | //dialog[not(@open)]"
#: Most texts that a number above the line consists of, such as those of links and styles in it.
_MAX_TEXTS = 8
_IMPORTANT = re.compile(r"!\s*important", re.IGNORECASE)


def read_html(content: bytes, source: str, encoding: str | None = None) -> Document:
    """Read a page: its text as it is laid out, with lists, tables and forms, and its title as metadata."""
    declared = declared_encoding(content)
    markup, used = decoded(content, source, declared, encoding)
    title = _title(markup, source)
    metadata = {"title": title} if title else {}
    return Document(html_to_text(markup, source), source, metadata | ({} if declared else encoding_note(used)))


def declared_encoding(content: bytes) -> str | None:
    """Return the encoding that a page names itself; ``None`` if it names none."""
    found = _DECLARED.search(content[:_DECLARED_WITHIN])
    return found[1].decode() if found else None


def html_to_text(markup: str, source: str) -> str:
    """Return the text of a page, with ``\\n`` at the ends of its lines.

    Raises:
        DocumentError: lxml or inscriptis is not installed.
    """
    with optional(source):
        from inscriptis.html_engine import Inscriptis
    tree = _tree(markup, source)
    if tree is None:
        return ""
    drop_hidden(tree)
    show_inline(tree)
    lay_out_tables(tree)
    show_forms(tree)
    separate_spans(tree)
    number_lists(tree)
    replace_ampersands(tree)
    lines = Inscriptis(tree, _layout()).get_text().translate(_CHARACTERS).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def drop_hidden(tree: HtmlElement) -> None:
    """Remove what no page shows: comments, instructions for programs, templates and hidden elements."""
    from lxml.etree import Comment, ProcessingInstruction, strip_elements

    strip_elements(tree, Comment, ProcessingInstruction, "template", with_tail=False)
    # A whole page is hidden only until it is loaded.
    for element in tree.xpath(f"//body//*[@hidden] | {_NOT_SHOWN}"):
        element.drop_tree()
    for element in tree.xpath("//*[contains(@style, '!')]"):  # inscriptis knows no such style
        element.set("style", _IMPORTANT.sub("", element.get("style")))


def show_inline(tree: HtmlElement) -> None:
    """Tell digits above the line, readings beside characters, and fractions from the text that they stand at."""
    for power in tree.xpath("//sup | //msup/*[2]"):
        texts = [*islice(power.itertext(), _MAX_TEXTS + 1)]  # not all: tags that nobody closes contain one another
        text = "".join(texts)
        if len(texts) <= _MAX_TEXTS and text != raised(text):
            power.text, power[:] = raised(text), []
    for reading in tree.xpath("//rt[not(*)]"):
        before = reading.getprevious()
        if before is None or before.tag != "rp":
            reading.text = f"({reading.text or ''})"
    for below in tree.xpath("//mfrac/*[2]"):
        below.addprevious(slash := below.makeelement("mo"))
        slash.text = "/"


def replace_ampersands(tree: HtmlElement) -> None:
    """Replace ``&``, so that inscriptis finds no character references: ``?a=1&region=2`` would have a ``®``."""
    for element in tree.iter():
        if element.text:
            element.text = element.text.replace("&", _AMPERSAND)
        if element.tail:
            element.tail = element.tail.replace("&", _AMPERSAND)


def _layout() -> ParserConfig:
    from inscriptis.css_profiles import RELAXED_CSS_PROFILE
    from inscriptis.html_properties import Display, VerticalAlignment
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_element import HtmlElement as Style

    blocks = {name: Style(display=Display.block) for name in _BLOCKS}
    term = Style(display=Display.block, padding_inline=_INDENT)
    cell = Style(valign=VerticalAlignment.top)  # so that a row begins in one line
    return with_marks(
        ParserConfig(css=RELAXED_CSS_PROFILE | blocks | {"dd": term, "span": Style(), "td": cell, "th": cell})
    )


def _title(markup: str, source: str) -> str:
    """Return the title of a page, or an empty string."""
    tree = _tree(markup, source)
    titles = [] if tree is None else tree.xpath("//title[not(ancestor::svg)]")
    return " ".join(titles[0].text_content().split()) if titles else ""


def _tree(markup: str, source: str) -> HtmlElement | None:
    """Parse a page; ``None`` if there is nothing in it."""
    with optional(source):
        from lxml.etree import ParserError
        from lxml.html import HTMLParser, document_fromstring
    try:
        # Without huge_tree, what is nested more than 256 deep would be missing.
        return document_fromstring(markup.encode(), parser=HTMLParser(encoding="utf-8", huge_tree=True))
    except ParserError:
        return None
