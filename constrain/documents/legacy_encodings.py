"""Detection of encodings from before Unicode: the one in which a text looks most like writing.

Statistics of long texts do not help where an invoice has five accents. So each encoding in which the bytes are valid is
judged by what its characters are, and by what stands beside them: letters of the alphabet of one language, with
capitals at the beginnings of words, cost least; signs within words, and letters of two scripts in one word, cost most.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

#: Encodings with what speaks against each, the more usual first.
_ENCODINGS: dict[str, float] = {
    **{"cp1252": 0.0, "iso8859_15": 0.3, "cp1250": 0.3, "iso8859_2": 0.3, "cp1251": 0.2, "koi8_r": 0.3, "koi8_u": 0.4},
    **{"iso8859_5": 0.4, "cp1253": 0.3, "iso8859_7": 0.3, "cp1254": 0.4, "cp1255": 0.3, "cp1256": 0.3, "cp1257": 0.4},
    **{"cp1258": 0.8, "gb18030": 0.2, "big5": 0.3, "cp932": 0.2, "euc_jp": 0.3, "cp949": 0.3, "cp874": 0.5},
    **{"cp850": 0.6, "cp437": 0.6, "cp852": 0.7, "cp866": 0.5, "mac_roman": 0.6, "mac_cyrillic": 0.8},
}
#: Bytes of the lines that are judged.
_SAMPLE = 4096
#: Cost of a character, on average, from which on the bytes are no text; and how many there have to be to tell.
_MAX_COST, _MIN_CHARACTERS = 2.2, 6

#: Letters beyond ASCII of languages in Latin script, and of all western ones together.
_ALPHABETS = """
äöüß àâæçéèêëîïôœùûü áéíñóúü àáâãçéêíóôõú àèéìòù éëïóöüè äöåé æøåé áðéíóúýþæö ąćęłńóśźż áčďéěíňóřšťúůýž
áäčďéíĺľňóôŕšťúýž áéíóöőúüű ăâîșțşţ čćđšž çğıöşüâîi̇ āčēģīķļņšūž ąčęėįšųūž äöõüšž àçèéíïòóúü
""".split()
_WESTERN = frozenset("àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœ")
_CYRILLIC = frozenset("абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґўђјљњћџѓќѕ")
_RARE_CYRILLIC = frozenset("ґўђјљњћџѓќѕъ")
#: Letters that are frequent in languages in Cyrillic and Greek script.
_FREQUENT_LETTERS = frozenset("оеаинтсрвлкмдпуяію" + "αοιετσνηυρπκμλςωάέήίόύ")
#: Letters that are rare in Latin script, and syllables that are frequent in Korean.
_RARE_LATIN = frozenset("ïîûÿìõďťľĺŕő"), frozenset("þðý")
_SYLLABLES = frozenset(
    "이다는의에을가고하지한사기아로자리인대시어은그도라나를서해정일수보부울들만안상전게면요습니세십원금총청구호번김박최"
)
#: Letters that end words, in Greek and in Hebrew.
_FINAL = {"GREEK": "ς", "HEBREW": "ךםןףץ"}
_GREEK_ENCODINGS = frozenset({"cp1253", "iso8859_7"})
#: Signs that texts have, those that open quotations, and those that may stand within words.
_SIGNS = frozenset("\xa0«»“”‘’‚„–—…€£§°©®·•™²³½¼¾№×±µ¿¡ªº、。，：；！？「」『』（）《》・ー％〜～")
_OPENING, _ALSO_CLOSING, _JOINING = frozenset("„‚¿¡"), frozenset("“‘«"), frozenset("’‘-–—ーºª")
_CURRENCIES = frozenset("€£¥")
_BOXES = ("\u2500", "\u259f")

_OTHERS = re.compile("[^\x00-\x7f]")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def detected_encoding(content: bytes) -> str | None:
    """Return the encoding of a text that is not in UTF-8; ``None`` if the bytes are no text."""
    sample = _sample(content)
    if b"\0" in content or 20 * len(_CONTROLS.findall(sample)) > len(sample):
        return None
    costs = {name: cost for name in _ENCODINGS if (cost := _cost(content, sample, name)) is not None}
    return min(costs, key=lambda name: costs[name]) if costs else None


def _sample(content: bytes) -> bytes:
    """Return the first lines that are not in ASCII."""
    lines, size = [], 0
    for line in content.splitlines():
        if not line.isascii():
            lines.append(line)
            size += len(line)
            if size >= _SAMPLE:
                break
    return b"\n".join(lines)


def _cost(content: bytes, sample: bytes, encoding: str) -> float | None:
    """Return what speaks against an encoding; ``None`` if the bytes are not valid in it, or no text."""
    try:
        content.decode(encoding)
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return None
    others = list(_OTHERS.finditer(text))
    total = _latin_cost(text) + sum(_cost_at(text, each.start(), encoding) for each in others)
    if len(others) >= _MIN_CHARACTERS and total > _MAX_COST * len(others):
        return None
    return total + _ENCODINGS[encoding]


def _latin_cost(text: str) -> float:
    """Return the cost of letters that are not in the alphabet of the language that has most of them."""
    letters = Counter(each.lower() for each in _OTHERS.findall(text) if _script(each) == "LATIN")
    in_one = [sum(count for letter, count in letters.items() if letter not in alphabet) for alphabet in _ALPHABETS]
    western = sum(count * (0.3 if letter in _WESTERN else 2.0) for letter, count in letters.items())
    return min(western, *(2.0 * count for count in in_one))


def _cost_at(text: str, place: int, encoding: str) -> float:
    """Return what speaks against a character that is not ASCII, where it stands."""
    character = text[place]
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if character.isalpha() or unicodedata.category(character) in ("Mn", "Mc"):
        return _letter_cost(character, encoding) + _neighbour_cost(character, before, after)
    if _BOXES[0] <= character <= _BOXES[1]:
        return 0.2 if character in (before, after) or not (before + after).strip() else 2.0
    if unicodedata.category(character) in ("Cc", "Co", "Cn"):
        return 6.0
    is_inside = before.isalpha() and after.isalpha() and _script(before) != "CJK"
    if is_inside and character not in _JOINING:
        return 3.0
    if character in _CURRENCIES and after.isalpha():
        return 2.0
    if character in _OPENING | _ALSO_CLOSING and before.isalnum() and _script(before) != "CJK":
        return 0.8 if character in _ALSO_CLOSING else 2.0
    is_in_place = character in _OPENING and after.isalnum()
    return 0.3 if is_in_place else 0.5 if character in _SIGNS else 2.0


def _letter_cost(letter: str, encoding: str) -> float:
    script = _script(letter)
    if script == "LATIN":
        return next((cost for rare, cost in zip(_RARE_LATIN, (0.45, 0.6), strict=True) if letter.lower() in rare), 0.3)
    if script == "GREEK" and encoding not in _GREEK_ENCODINGS:
        return 2.0
    if script in ("CYRILLIC", "GREEK"):
        is_usual = script == "GREEK" or letter.lower() in _CYRILLIC - _RARE_CYRILLIC
        return 0.2 if letter.lower() in _FREQUENT_LETTERS else 0.6 if is_usual else 1.2
    if script in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL"):
        return _east_asian_cost(letter, script, encoding)
    return 0.2 if script in ("HEBREW", "THAI") else 0.35 if script == "ARABIC" else 2.0


def _east_asian_cost(letter: str, script: str, encoding: str) -> float:
    """Return the cost of a letter of two bytes: little if it is among the frequent ones of the character set."""
    if script in ("HIRAGANA", "KATAKANA"):
        is_japanese = encoding in ("cp932", "euc_jp")
        return (2.0 if letter >= "\uff00" else 0.2) if is_japanese else 1.0
    if (script == "HANGUL") != (encoding == "cp949"):
        return 2.0
    code = int.from_bytes(letter.encode(encoding), "big")
    first, last = _FREQUENT[encoding]
    if not (first <= code <= last and (encoding in ("big5", "cp932") or code & 0x80)):
        return 1.5
    return 0.4 if script == "CJK" else 0.2 if letter in _SYLLABLES else 0.5


#: The codes of the characters that each character set has first, since they are frequent.
_FREQUENT = {
    "gb18030": (0xB0A1, 0xD7F9),
    "big5": (0xA440, 0xC67E),
    "cp932": (0x889F, 0x9872),
    "euc_jp": (0xB0A1, 0xCFD3),
    "cp949": (0xB0A1, 0xC8FE),
}


def _neighbour_cost(letter: str, before: str, after: str) -> float:
    """Return what speaks against a letter beside its neighbours."""
    cost, script = 0.0, _script(letter)
    if letter.isupper() and before.isalpha() and (before.islower() or after.islower()):
        cost += 2.5
    for other in (before, after):
        if other.isalpha() and _script(other) != script and not _is_pair(script, _script(other)):
            cost += 1.5
        elif script == "LATIN" and other > "\x7f" and other.isalpha():
            cost += 0.5
        elif (other == " ") if script == "CJK" else other.isdigit():
            cost += 1.0
    if letter == before == after or (after.isalpha() and letter in _FINAL.get(script, "")):
        cost += 1.5
    if unicodedata.category(letter) == "Mn" and not _takes_mark(before, script):
        cost += 2.0
    return cost


def _takes_mark(before: str, script: str) -> bool:
    """Whether a letter, with the marks on it, may have another one."""
    if script == "THAI":  # a consonant, or a vowel under a tone
        return "\u0e01" <= before <= "\u0e2e" or before in ("\u0e31", *map(chr, range(0x0E34, 0x0E3B)))
    return before.isalpha() or bool(before and unicodedata.combining(before))


def _is_pair(one: str, other: str) -> bool:
    """Whether letters of two scripts may stand side by side."""
    return {one, other} <= {"CJK", "HIRAGANA", "KATAKANA", "HANGUL"}


@lru_cache(1 << 14)
def _script(character: str) -> str:
    """Return the first word of the name of a letter, which is its script."""
    return unicodedata.name(character, "").partition(" ")[0].replace("COMBINING", "LATIN")
