"""The numbers of lists in HTML pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from constrain.documents.numerals import alphabetic, capital, roman, zero_filled

if TYPE_CHECKING:
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_document_state import HtmlDocumentState
    from lxml.html import HtmlElement

#: Writes a number.
_Form: TypeAlias = Callable[[int], str]

#: Forms by the attribute ``type``, which tells small letters from capitals.
_TYPES: dict[str, _Form] = {"1": str, "a": alphabetic, "A": capital(alphabetic), "i": roman, "I": capital(roman)}
#: Forms by the property ``list-style-type``.
_STYLES: dict[str, _Form] = {
    "decimal": str,
    "decimal-leading-zero": zero_filled,
    "lower-alpha": alphabetic,
    "lower-latin": alphabetic,
    "upper-alpha": capital(alphabetic),
    "upper-latin": capital(alphabetic),
    "lower-roman": roman,
    "upper-roman": capital(roman),
}
_STYLE = re.compile(r"list-style(?:-type)?\s*:([^;]*)", re.IGNORECASE)
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,9})(?![0-9])", re.ASCII)
#: Attribute of an item that has what stands before it.
_MARK = "constrain-mark"


def number_lists(tree: HtmlElement) -> None:
    """Note at the items of ordered lists what stands before them, in the form of their list."""
    for ordered in tree.iter("ol"):
        items = ordered.findall("li")
        form = _form(ordered, str)
        for item, number in zip(items, _numbers(ordered, items), strict=True):
            item.set(_MARK, f"{_form(item, form)(number)}. ")


def with_marks(config: ParserConfig) -> ParserConfig:
    """Make inscriptis begin items with what :func:`number_lists` noted."""
    from inscriptis.model.tag import CustomHtmlTagHandlerMapping

    config.custom_html_tag_handler_mapping = CustomHtmlTagHandlerMapping({"li": _begin_item}, {})
    return config


def _begin_item(state: HtmlDocumentState, attributes: dict[str, str]) -> None:
    from inscriptis.model.tag.list_tag import li_start_handler

    if _MARK not in attributes:
        li_start_handler(state, attributes)
        return
    state.tags[-1].list_bullet = attributes[_MARK]
    state.tags[-1].write("")


def _numbers(ordered: HtmlElement, items: list[HtmlElement]) -> Iterator[int]:
    """Yield the numbers of the items of a list (https://html.spec.whatwg.org/#ordinal-value)."""
    is_reversed = "reversed" in ordered.attrib
    number = _integer(ordered.get("start"), len(items) if is_reversed else 1)
    for item in items:
        number = _integer(item.get("value"), number)
        yield number
        number += -1 if is_reversed else 1


def _integer(text: str | None, default: int) -> int:
    found = _INTEGER.match(text or "")
    return int(found[1]) if found else default


def _form(element: HtmlElement, default: _Form) -> _Form:
    """Return the form of numbers that a list or an item asks for."""
    if style := _STYLE.search(element.get("style", "")):
        for word in style[1].lower().split():
            if word in _STYLES:
                return _STYLES[word]
    return _TYPES.get(element.get("type", "").strip(), default)
