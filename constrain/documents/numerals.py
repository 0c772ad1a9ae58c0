"""Forms of numbers in documents: letters and Roman numerals of lists, and digits above the line."""

from __future__ import annotations

import re
from collections.abc import Callable

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_RAISABLE = re.compile(r"[+−-]?[0-9]*")
#: The first number that has no Roman numeral.
_ROMAN_END = 4000
#: Most times that a letter is repeated: a file may begin a list at a billion.
_MAX_REPEATED = 30


def alphabetic(number: int) -> str:
    """Return a number as letters in the way of HTML: a to z, aa, ab; digits for numbers below 1."""
    letters = ""
    rest = number
    while rest > 0:
        rest, letter = divmod(rest - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters or str(number)


def repeated(number: int) -> str:
    """Return a number as letters in the way of Word: a to z, aa, bb; digits for numbers below 1, or of many letters."""
    times, letter = divmod(number - 1, 26)
    if not 0 <= times < _MAX_REPEATED:
        return str(number)
    return chr(ord("a") + letter) * (times + 1)


def roman(number: int) -> str:
    """Return a number as a Roman numeral in lower case; digits for numbers that have none."""
    if not 0 < number < _ROMAN_END:
        return str(number)
    numeral = ""
    for value, letters in _ROMAN:
        times, number = divmod(number, value)
        numeral += letters * times
    return numeral


def raised(text: str) -> str:
    """Return a text that stands above the line: digits as their own characters, so that 10⁹ does not read 109."""
    return text.translate(_RAISED) if _RAISABLE.fullmatch(text.strip()) else text


def zero_filled(number: int) -> str:
    """Return a number with at least two digits."""
    return f"{number:02d}"


def capital(form: Callable[[int], str]) -> Callable[[int], str]:
    """Return a form in capitals."""
    return lambda number: form(number).upper()
