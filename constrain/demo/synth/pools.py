"""Names, words and codes from large compositional pools, so that a model must copy values and cannot guess them."""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import cache
from random import Random

from constrain.demo.synth import common
from constrain.demo.synth.habits import is_clean
from constrain.demo.synth.wordlists import words as words

_ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh sk st t th tr v w y z".split()
_VOWELS = "a a e e i i o o u ai ea ei ia ie io oo ou é ö ü å".split()
_CODAS = ["", "", "", "", "l", "n", "r", "s", "m", "x", "k", "nd", "rt", "ss", "th", "ck", "ng", "v"]
_PLAIN_ONSETS = "b c d f g h j k l l m m n n p r r s s t t v w x y z".split()
_ENDS = ["", "", "n", "r", "s", "l", "t", "ra", "lis", "mar", "x", "nd"]
_COMPANY_ENDS = (
    "Ltd|Inc.|GmbH|AG|LLC|S.A.|Group|Holdings|Partners|& Sons|& Co.|Logistics|Systems|Labs|Foods|Studio|Energy|"
    "Pharma|Industries|Trading|Solutions|Works|Media|Robotics|Textiles|Motors|Bank|Consulting|Software|Supplies|"
    "Networks|Services|Instruments|Ventures|Publishing|Design|Oy|AB|B.V.|SpA|SARL|S.r.l.|Pty Ltd|PLC|CC|K.K.|KG|"
    "OHG|e.V.|NV|AS|ApS|Lda|Ltda|S.L.|Sp. z o.o.|d.o.o.|a.s.|Corp.|Company|Brothers|Bros.|Association|Foundation|"
    "Trust|Institute|University|College|High School|Primary School|Hospital|Clinic|Medical Centre|Council|Agency|"
    "Cooperative|Club|Museum|Theatre|Airlines|Freight|Movers|Civils|Builders|Bakery|Kitchen|Farm|Garage|Pharmacy|"
    "Insurance|Analytical|Architects"
).split("|")
_SMALL_WORDS = "of the in for with and to from by on at a no is not".split()
_CASES: tuple[Callable[[str], str], ...] = (str, str.capitalize, str.title)
_SENTENCE_CASES: tuple[Callable[[str], str], ...] = (str, str, str.capitalize)
_STREET_ENDS = "Street|Road|Avenue|Lane|Way|Drive|Square|Court|Close|Hill|Boulevard|Row|Walk|Terrace|Quay".split("|")
_MAIL_DOMAINS = ("com", "org", "net", "io", "eu", "de", "co.uk", "fr", "example", "se", "it", "jp", "info")
_FOREIGN = ("абвгдеиклмнопрстуя", "αβγδεζηθικλμνοπρστ", "山川田中村小林木上本高石原森井大野", "אבגדהוזחטיכלמנ")


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Read the synonyms of common words, by word."""
    entries = [line.split(" | ") for line in words("synonyms")]
    return {word: tuple(others) for word, *others in entries}


@cache
def label_synonyms() -> dict[str, tuple[str, ...]]:
    """Read the words that mean the same as others in names of fields, by word."""
    entries = [line.split(" | ") for line in words("label_synonyms")]
    return {word: tuple(others) for word, *others in entries}


def noun(rng: Random) -> str:
    return rng.choice(words("nouns"))


def adjective(rng: Random) -> str:
    return rng.choice(words("adjectives"))


def verb(rng: Random) -> str:
    return rng.choice(words("verbs"))


def coined(rng: Random, low: int = 2, high: int = 3) -> str:
    """Generate a word in lower case: ``low`` to ``high`` plain or dense syllables, or halves of two known words."""
    if is_clean(rng):
        return noun(rng)
    form = rng.random()
    if form < 0.35:
        lists = rng.choice(
            [("last_names", "cities"), ("first_names", "last_names"), ("nouns", "nouns"), ("cities", "nouns")]
        )
        head, tail = (rng.choice(words(name)).split()[0].lower() for name in lists)
        return head[: rng.randint(2, 4)] + tail[-rng.randint(2, 5) :]
    if form < 0.7:
        return "".join(
            rng.choice(_PLAIN_ONSETS) + rng.choice("aeiou") for _ in range(rng.randint(low, high))
        ) + rng.choice(_ENDS)
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.randint(low, high))
    )


def foreign(rng: Random) -> str:
    """Generate a word in another script, since copying must work byte by byte too."""
    letters = rng.choice(_FOREIGN)
    return "".join(rng.choice(letters) for _ in range(rng.randint(2, 6)))


def name_word(rng: Random) -> str:
    """A capitalised proper name of one word."""
    if is_clean(rng):
        return common.firm_word(rng)
    return foreign(rng).capitalize() if rng.random() < 0.02 else coined(rng).capitalize()


def first_name(rng: Random) -> str:
    if is_clean(rng):
        return common.first_name(rng)
    return rng.choice(words("first_names")) if rng.random() < 0.55 else coined(rng, 1, 3).capitalize()


def last_name(rng: Random) -> str:
    if is_clean(rng):
        return common.last_name(rng)
    if rng.random() < 0.06:
        return f"{rng.choice(words('last_names'))}-{name_word(rng)}"
    if rng.random() < 0.05:
        return f"{rng.choice(['van', 'de', 'von', 'al', 'da', 'Mc', 'O’'])} {name_word(rng)}".replace("Mc ", "Mc")
    return rng.choice(words("last_names")) if rng.random() < 0.45 else name_word(rng)


def given_names(rng: Random) -> str:
    """Sample the first name of a person, sometimes with further names, or initials only."""
    form = rng.random()
    if form < 0.06:
        return " ".join(code("@.", rng) for _ in range(rng.choice([1, 1, 2])))
    name = first_name(rng)
    if form < 0.14:
        return f"{name} {code('@.', rng)}"
    if form < 0.24:
        return f"{name}{rng.choice([' ', ' ', '-'])}{first_name(rng)}"
    return name


def family_name(rng: Random) -> str:
    """Sample the last name of a person, sometimes of two words."""
    name = last_name(rng)
    return f"{name} {rng.choice(['', '', 'y ', 'e '])}{last_name(rng)}" if rng.random() < 0.08 else name


def any_word(rng: Random) -> str:
    """Sample a word in lower case, known or generated."""
    word = rng.choice([noun, noun, adjective, verb, coined])(rng)
    return word + rng.choice(["", "", "", "", "s", "ing", "ed", "er", "ly"])


def phrase(rng: Random, low: int = 1, high: int = 8) -> str:
    """Sample a phrase of arbitrary words, whose end shows only in the sentence or line around it."""
    count = rng.randint(low, high)
    return " ".join(
        rng.choice(_SMALL_WORDS) if rng.random() < 0.25 and 0 < i < count - 1 else any_word(rng) for i in range(count)
    )


def company(rng: Random) -> str:
    if is_clean(rng):
        return common.company(rng)
    name = _company(rng)
    return f"{name}{rng.choice([' ', ' ', ', '])}{rng.choice(_COMPANY_ENDS)}" if rng.random() < 0.15 else name


def _company(rng: Random) -> str:
    form = rng.random()
    if form < 0.35:
        return f"{name_word(rng)} {rng.choice(_COMPANY_ENDS)}"
    if form < 0.5:
        return f"{adjective(rng).capitalize()} {noun(rng).capitalize()} {rng.choice(_COMPANY_ENDS)}"
    if form < 0.65:
        return f"{phrase(rng, 1, 4).title()} {rng.choice(_COMPANY_ENDS)}"
    if form < 0.7:
        return f"{last_name(rng)} & {last_name(rng)} {rng.choice(_COMPANY_ENDS)}"
    if form < 0.75:
        return f"{rng.choice(['Hotel', 'The', 'Studio', 'Casa', 'Café', 'Bank', 'House'])} {any_word(rng).capitalize()}"
    if form < 0.8:
        return f"{last_name(rng)} & {last_name(rng)}"
    if form < 0.9:
        return f"{name_word(rng)} {noun(rng).capitalize()}"
    return name_word(rng) + rng.choice(["", "ly", "soft", "tech", "ware", "Net", "Hub"])


def product(rng: Random) -> str:
    if is_clean(rng):
        return common.product(rng)
    form = rng.random()
    if form < 0.2:
        return rng.choice(_CASES)(phrase(rng, 2, 4))
    if form < 0.4:
        return f"{adjective(rng)} {noun(rng)}"
    if form < 0.55:
        return f"{name_word(rng)} {noun(rng)}"
    if form < 0.7:
        return f"{noun(rng)} {noun(rng)}".capitalize()
    if form < 0.8:
        return f"{name_word(rng)} {code('@##', rng)}"
    if form < 0.9:
        return f"{adjective(rng)} {noun(rng)} ({adjective(rng)})"
    return noun(rng)


def city(rng: Random) -> str:
    if is_clean(rng):
        return common.city(rng)
    form = rng.random()
    if form < 0.5:
        return rng.choice(words("cities"))
    if form < 0.6:
        return (
            f"{rng.choice(['North', 'South', 'New', 'Port', 'Bad', 'San', 'Saint', 'Upper', 'Lake'])} {name_word(rng)}"
        )
    return name_word(rng) + rng.choice(["", "", "ville", "burg", "ton", "stad", "ford", "heim", "bridge"])


def street(rng: Random) -> str:
    """A street with a house number."""
    if is_clean(rng):
        return common.street(rng)
    number = f"{rng.randint(1, 240)}{rng.choice(['', '', '', 'a', 'b'])}"
    name = rng.choice([name_word, last_name])(rng) if rng.random() < 0.6 else noun(rng).capitalize()
    if rng.random() < 0.3:
        return f"{name}{rng.choice(['straße', 'weg', 'gatan', 'platz', 'laan'])} {number}"
    return f"{number} {name} {rng.choice(_STREET_ENDS)}"


def email(rng: Random) -> str:
    first, last, host = (ascii_word(word) for word in (first_name(rng), last_name(rng), name_word(rng)))
    box = rng.choice(
        [f"{first}.{last}", f"{first[0]}.{last}", f"{first}{rng.randint(1, 99)}", f"{first}_{last}", noun(rng)]
    )
    return f"{box}@{host}.{rng.choice(_MAIL_DOMAINS)}"


def phone(rng: Random) -> str:
    digits = rng.choice(
        ["+## ## ### ## ##", "+1 (###) ###-####", "0## ### ####", "+##-###-#######", "(0###) ######", "###-###-####"]
    )
    return code(digits, rng)


def url(rng: Random) -> str:
    host = f"{rng.choice(['', 'www.', 'docs.', 'shop.'])}{ascii_word(coined(rng))}.{rng.choice(_MAIL_DOMAINS)}"
    path = "".join(f"/{rng.choice([noun, coined, adjective])(rng)}" for _ in range(rng.randint(0, 2)))
    return f"https://{host}{ascii_word(path, keep='/')}"


def ascii_word(text: str, keep: str = "") -> str:
    """Convert a text to lower case, without characters that are not allowed in an address; never empty."""
    allowed = "".join(c for c in text.lower() if c in string.ascii_lowercase or c in keep)
    return allowed or "x"


def code(pattern: str, rng: Random) -> str:
    """Fill a pattern: ``#`` is a digit, ``@`` a capital, ``%`` a small letter, ``~`` a hexadecimal digit."""
    alphabets = {"#": string.digits, "@": string.ascii_uppercase, "%": string.ascii_lowercase, "~": "0123456789abcdef"}
    return "".join(rng.choice(alphabets[c]) if c in alphabets else c for c in pattern)


_LONG_CODES = (
    "DE## #### #### #### #### ##", "GB## @@@@ #### #### #### ##", "FR## #### #### #### #### #### ###", "ATU########",
    "NL## @@@@ #### #### ##", "#### #### #### ####", "##-##-##", "### ### ###", "##/###/#####", "@@@/####/##-#",
    "%%_#~~~#@@", "@@@-####-@@@@", "##.###.###-#", "#####-###", "@ #### ####", "@@-@@-###",
)  # fmt: skip


def code_pattern(rng: Random) -> str:
    """A random pattern for :func:`code`, such as ``KV-####`` or ``@@##/##``."""
    if rng.random() < 0.12:
        return rng.choice(_LONG_CODES)
    head = rng.choice(["", "", code("@@", rng), code("@@@", rng), "@", "@@", "#", "@#@"])
    body = "#" * rng.randint(2, 7)
    tail = rng.choice(["", "", "", "@", "-##", "/##", "-@", "-@@", ".#"])
    return head + rng.choice(["-", "", "", "/", "_"] if head else [""]) + body + tail


def topic(rng: Random) -> str:
    """A short title in lower case, such as ``late delivery of the printer``."""
    if is_clean(rng):
        return common.topic(rng)
    form = rng.randrange(10)
    if form > 6:
        return rng.choice(_SENTENCE_CASES)(phrase(rng))
    if form == 0:
        return f"{adjective(rng)} {noun(rng)} {noun(rng)}"
    if form == 1:
        return f"{noun(rng)} for the {adjective(rng)} {noun(rng)}"
    if form == 2:
        return f"{verb(rng)} the {adjective(rng)} {noun(rng)}"
    if form == 3:
        return f"{noun(rng)} and {noun(rng)}"
    if form == 4:
        return f"{adjective(rng)} {noun(rng)} of {name_word(rng)}"
    if form == 5:
        return f"{verb(rng)} {noun(rng)} before {noun(rng)} {verb(rng)}"
    return f"{noun(rng)} {noun(rng)} in {city(rng)}"


def filler(rng: Random) -> str:
    """Sample a sentence that is irrelevant to any schema."""
    form = rng.random()
    if form < 0.5 or is_clean(rng):
        return rng.choice(words("fillers"))
    if form < 0.65:
        return f"The {noun(rng)} will {verb(rng)} the {adjective(rng)} {noun(rng)}."
    if form < 0.8:
        return f"We {verb(rng)} every {noun(rng)} {rng.choice(['twice', 'by hand', 'with care', 'once more'])}."
    if form < 0.9:
        return (
            f"{adjective(rng).capitalize()} {noun(rng)}s {rng.choice(['are', 'were', 'remain'])} {adjective(rng)} here."
        )
    return f"Do you {verb(rng)} the {noun(rng)}, or should they {verb(rng)} it?"


def version(rng: Random) -> str:
    numbers = ".".join(str(rng.randint(0, 24)) for _ in range(rng.choice([2, 3, 3])))
    return rng.choice(["", "", "v"]) + numbers + rng.choice(["", "", "", "-rc1", "-beta.2", "a1", ".post1"])


def package(rng: Random) -> str:
    """The name of a software package, such as ``vel-index``."""
    form = rng.random()
    if form < 0.5:
        return f"{ascii_word(coined(rng, 1, 2))}{rng.choice('-_-')}{noun(rng)}"
    return ascii_word(coined(rng, 2, 3)) if form < 0.75 else f"{noun(rng)}-{noun(rng)}"


def path(rng: Random) -> str:
    """A file path."""
    folders = "/".join(rng.choice([noun, coined, adjective])(rng) for _ in range(rng.randint(1, 3)))
    ending = rng.choice(["py", "txt", "log", "conf", "json", "c", "rs", "tar.gz", "csv", "yaml", "md"])
    return f"{rng.choice(['/', '', './', '/var/', 'src/'])}{ascii_word(folders, keep='/')}/{noun(rng)}.{ending}"


def handle(rng: Random) -> str:
    """A user name."""
    return rng.choice([
        f"{ascii_word(coined(rng))}{rng.randint(1, 99)}", f"{ascii_word(first_name(rng))}_{noun(rng)}",
        f"@{ascii_word(coined(rng))}", ascii_word(first_name(rng))[0] + ascii_word(last_name(rng)),
    ])  # fmt: skip
