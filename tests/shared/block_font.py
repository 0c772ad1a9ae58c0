"""A font whose glyphs are rectangles, for any characters: PDFs in every language need no font's file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._g_l_y_f import Glyph

UNITS = 1000


def write_block_font(path: Path, characters: Iterable[str]) -> None:
    """Write a TrueType font that has the given characters; their widths and heights differ."""
    codes = {ord(character): f"u{ord(character):X}" for character in dict.fromkeys(characters)}
    names = [".notdef", *codes.values()]
    font = FontBuilder(UNITS, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap(codes)
    font.setupGlyf({name: _rectangle(name, number) for number, name in enumerate(names)})
    font.setupHorizontalMetrics({name: (_width(number), 50) for number, name in enumerate(names)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Blocks", "styleName": "Regular", "psName": "Blocks-Regular"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.save(path)


def _width(number: int) -> int:
    return 400 + 50 * (number % 7)


def _rectangle(name: str, number: int) -> Glyph:
    pen = TTGlyphPen(None)
    if name not in (".notdef", f"u{ord(' '):X}"):
        left, bottom, right, top = 50, -100 * (number % 3), _width(number) - 50, 500 + 40 * (number % 6)
        corners = [(left, bottom), (left, top), (right, top), (right, bottom)]
        pen.moveTo(corners[0])
        for corner in corners[1:]:
            pen.lineTo(corner)
        pen.closePath()
    return pen.glyph()
