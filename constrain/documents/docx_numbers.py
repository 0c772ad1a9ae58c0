"""The automatic numbers and bullets of paragraphs in Word documents, which files do not contain as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from constrain.documents.numerals import capital, repeated, roman, zero_filled

if TYPE_CHECKING:
    from docx.document import Document as WordDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
#: What old programs show in place of a drawing: a copy, whose paragraphs have no numbers of their own.
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
#: Forms of numbers; the others, such as numbers in words, are digits.
_FORMS: dict[str, Callable[[int], str]] = {
    "decimalZero": zero_filled,
    "lowerLetter": repeated,
    "upperLetter": capital(repeated),
    "lowerRoman": roman,
    "upperRoman": capital(roman),
    "ordinal": lambda number: f"{number}{_ordinal(number)}",
    "none": lambda number: "",
}
_BULLET = "*"
#: Values of settings that are on.
ON = frozenset({"1", "true", "on"})
_INDENT = "  "
#: Levels of a list, and styles that a style is based on; more are a circle.
_LEVELS, _STYLES = 9, 20
_PLACE = re.compile("%([1-9])")


def number_paragraphs(word: WordDocument) -> None:
    """Write what stands before the paragraphs of lists into the texts of a document."""
    numbering = _Numbering.of(word)
    if numbering is None:
        return
    for paragraph in word.element.body.iter(f"{_W}p"):
        mark = numbering.mark(paragraph)
        if mark and any(each.text for each in paragraph.iter(f"{_W}t")):
            _begin_with(paragraph, mark)


def end_is_deleted(paragraph: Any) -> bool:
    """Whether the end of a paragraph was deleted under review, so that the next one goes on with it."""
    return is_deleted(paragraph.find(f"{_W}pPr/{_W}rPr"))


def is_deleted(properties: Any | None) -> bool:
    """Whether the properties of a row, or of the end of a paragraph, say that it was deleted under review."""
    return properties is not None and any(_child(properties, name) is not None for name in ("del", "moveFrom"))


def _begin_with(paragraph: Any, mark: str) -> None:
    run = paragraph.makeelement(f"{_W}r")
    text = run.makeelement(f"{_W}t")
    text.text = mark
    run.append(text)
    properties = _child(paragraph, "pPr")
    paragraph.insert(0 if properties is None else paragraph.index(properties) + 1, run)


@dataclass(frozen=True)
class _Level:
    """A level of a list.

    Attributes:
        form: form of its numbers, by the name that files have for it.
        text: what stands before a paragraph, with ``%1`` for the number of the first level.
        start: its first number.
        restart: the level after whose paragraphs it begins anew, from 1; 0: it never does.
        style: the style of its paragraphs.
        gap: what follows on the number.
        is_legal: whether the numbers of all levels are digits.
    """

    form: str
    text: str
    start: int
    restart: int
    style: str | None
    gap: str
    is_legal: bool

    @classmethod
    def of(cls, element: Any, number: int) -> _Level:
        """Read a level, of which 0 is the first."""
        form = next((each.get(f"{_W}val") for each in element.iter(f"{_W}numFmt")), "decimal")
        return cls(
            form=form,
            text=_value(element, "lvlText") or "",
            start=_integer(_value(element, "start"), 0),
            restart=min(number, _integer(_value(element, "lvlRestart"), number)),
            style=_value(element, "pStyle"),
            gap="" if _value(element, "suff") == "nothing" else " ",
            is_legal=_is_on(_child(element, "isLgl")),
        )


@dataclass
class _List:
    """A list: its levels, and the numbers that were written last."""

    levels: dict[int, _Level]
    numbers: dict[int, int] = field(default_factory=dict)

    def next_mark(self, at: int, levels: dict[int, _Level]) -> str:
        """Go on to the next paragraph of a level, and return what stands before it.

        Args:
            at: the level, from 0.
            levels: the levels as this paragraph has them.
        """
        level = levels.get(at)
        if level is None:
            return ""
        self.numbers[at] = self.numbers.get(at, level.start - 1) + 1
        for deeper in [each for each in self.numbers if each > at]:
            if deeper not in levels or levels[deeper].restart > at:
                del self.numbers[deeper]
        if level.form == "bullet":
            return f"{_INDENT * at}{_BULLET} "
        written = _PLACE.sub(lambda place: self._number(int(place[1]) - 1, levels, level.is_legal), level.text)
        return f"{written}{level.gap}" if written.strip() else ""

    def _number(self, at: int, levels: dict[int, _Level], is_legal: bool) -> str:
        level = levels.get(at)
        if level is None:
            return ""
        number = self.numbers.get(at, level.start)
        return str(number) if is_legal and level.form != "none" else _FORMS.get(level.form, str)(number)


@dataclass(frozen=True)
class _Numbering:
    """The lists of a document.

    Attributes:
        styles: elements of styles, by id.
        default: id of the style of paragraphs that name none.
        instances: elements of the numbered lists that paragraphs name, by id.
        kinds: elements of the kinds of lists that these are of, by id.
        lists: the lists so far, by the id of their kind.
        begun: ids of the instances that were met.
    """

    styles: dict[str, Any]
    default: str | None
    instances: dict[str, Any]
    kinds: dict[str, Any]
    lists: dict[str, _List] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, word: WordDocument) -> _Numbering | None:
        """Return the lists of a document; ``None`` if it has none."""
        from docx.opc.constants import RELATIONSHIP_TYPE
        from docx.oxml import parse_xml

        parts = [each.target_part for each in word.part.rels.values() if each.reltype == RELATIONSHIP_TYPE.NUMBERING]
        if not parts:
            return None
        numbering = parse_xml(parts[0].blob)
        styles = list(word.styles.element.iterchildren(f"{_W}style"))
        default = [style for style in styles if style.get(f"{_W}type") == "paragraph" and _is_default(style)]
        return cls(
            {style.get(f"{_W}styleId"): style for style in styles},
            default[0].get(f"{_W}styleId") if default else None,
            {each.get(f"{_W}numId"): each for each in numbering.iterchildren(f"{_W}num")},
            {each.get(f"{_W}abstractNumId"): each for each in numbering.iterchildren(f"{_W}abstractNum")},
        )

    def mark(self, paragraph: Any) -> str:
        """Return what stands before a paragraph, the next one of the document; empty if it is none of a list."""
        properties = _child(paragraph, "pPr")
        if next(paragraph.iterancestors(_FALLBACK), None) is not None or end_is_deleted(paragraph):
            return ""
        own = None if properties is None else _child(properties, "numPr")
        style = _value(properties, "pStyle") or self.default
        name, at, has_level = self._of_style(style)
        if own is not None:
            name = _value(own, "numId") or name
            level = _value(own, "ilvl")
            at, has_level = (_integer(level, 0), True) if level is not None else (at, has_level)
        instance = self.instances.get(name or "")
        kind = self._kind(instance)
        if instance is None or kind is None or name is None:
            return ""
        numbered = self.lists.setdefault(kind, _List(self._levels(self.kinds[kind])))
        levels = numbered.levels | self._overridden(instance, numbered, is_new=name not in self.begun)
        self.begun.add(name)
        if not has_level:
            at = next((number for number, each in levels.items() if each.style == style), at)
        return numbered.next_mark(at, levels)

    def _of_style(self, style: str | None) -> tuple[str | None, int, bool]:
        """Return the list that a style belongs to, its level, and whether that is named."""
        name = level = None
        for _ in range(_STYLES):
            element = self.styles.get(style or "")
            properties = None if element is None else _child(element, "pPr")
            found = None if properties is None else _child(properties, "numPr")
            if found is not None:
                name, level = name or _value(found, "numId"), level or _value(found, "ilvl")
            if element is None or (name and level):
                break
            style = _value(element, "basedOn")
        return name, _integer(level, 0), level is not None

    def _kind(self, instance: Any) -> str | None:
        """Return the id of the kind that a list is of, which may be that of the list of a style."""
        for _ in range(_STYLES):
            name = None if instance is None else _value(instance, "abstractNumId")
            element = self.kinds.get(name or "")
            link = None if element is None else _value(element, "numStyleLink")
            if link is None:
                return name if element is not None else None
            instance = self.instances.get(self._of_style(link)[0] or "")
        return None

    def _levels(self, kind: Any) -> dict[int, _Level]:
        return {number: _Level.of(each, number) for number, each in _numbered(kind, "lvl")}

    def _overridden(self, instance: Any, numbered: _List, is_new: bool) -> dict[int, _Level]:
        """Return the levels that a list has of its own; where it begins, its numbers may begin anew."""
        levels: dict[int, _Level] = {}
        for number, override in _numbered(instance, "lvlOverride"):
            own = _child(override, "lvl")
            if own is not None:
                levels[number] = _Level.of(own, number)
            start = _value(override, "startOverride")
            level = levels.get(number, numbered.levels.get(number))
            if start is None or level is None:
                continue
            levels[number] = replace(level, start=_integer(start, 0))
            if is_new:
                numbered.numbers.pop(number, None)
        return levels


def _numbered(parent: Any, name: str) -> list[tuple[int, Any]]:
    """Return the children of a name that stand for levels, with these."""
    children = ((_integer(each.get(f"{_W}ilvl"), -1), each) for each in parent.iterchildren(f"{_W}{name}"))
    return [(number, each) for number, each in children if 0 <= number < _LEVELS]


def _child(parent: Any, name: str) -> Any | None:
    return parent.find(f"{_W}{name}")


def _value(parent: Any | None, name: str) -> str | None:
    """Return the value of a child; ``None`` if there is none."""
    found = None if parent is None else _child(parent, name)
    value: str | None = None if found is None else found.get(f"{_W}val")
    return value


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else default


def _is_on(element: Any | None) -> bool:
    return element is not None and element.get(f"{_W}val", "1") in ON


def _is_default(style: Any) -> bool:
    return style.get(f"{_W}default") in ON


def _ordinal(number: int) -> str:
    """Return the ending of an ordinal number."""
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
