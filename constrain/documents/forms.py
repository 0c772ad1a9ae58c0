"""The values of form fields in HTML pages, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

#: Inputs that show nothing, or nothing that was filled in.
_NOT_SHOWN = frozenset({"hidden", "password", "file", "image", "submit", "reset", "button"})
_BOXES = frozenset({"checkbox", "radio"})
_CHECKED, _UNCHECKED = "[x]", "[ ]"


def show_forms(tree: HtmlElement) -> None:
    """Replace the controls of forms in a page by elements with their values, which are read as other text is.

    The options of a choice are lines; where some are selected, these are marked, as ticked boxes are.
    """
    for element in tree.iter("input"):
        _show_input(element)
    for element in tree.iter("select"):
        options = list(element.iter("option"))
        is_marked = any("selected" in option.attrib for option in options)
        for option in options:
            if is_marked:
                mark = _CHECKED if "selected" in option.attrib else _UNCHECKED
                option.text = f"{mark} {option.text or ''}"
    for element in list(tree.iter("select", "option", "textarea")):
        element.tag = "div"


def _show_input(element: HtmlElement) -> None:
    kind = element.get("type", "text").lower()
    if kind in _BOXES:
        element.text = f"{_CHECKED if 'checked' in element.attrib else _UNCHECKED} "
    elif kind not in _NOT_SHOWN:
        element.text = element.get("value", "")
    element.tag = "span"
