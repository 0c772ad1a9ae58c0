"""Borders of words in texts."""

from __future__ import annotations

from constrain import _core


def word_borders(text: str) -> bytes:
    """Return a byte for each position of a text, from 0 to its length: 1 if a word may begin or end there, else 0.

    A simplification of the word boundaries of Unicode (UAX #29): there is a border at both ends of the text, and
    wherever not both neighbours are letters, digits or underscores (``\\w`` of Python's ``re``) of scripts with spaces
    between words. So there is one between any two Chinese characters. There is none within a character that is composed
    of several: before marks, variation selectors and modifiers of emoji, around joiners, and within flags.
    """
    return _core.word_borders(text)
