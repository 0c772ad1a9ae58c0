"""Patterns of the strings that Python types are read from, in the dialect of JSON Schema's ``pattern``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

_DIGITS = "0123456789"

#: No white space at either end, as :meth:`str.strip` counts it.
STRIPPED = r"^(?:[^\s\u0085\u001c-\u001f](?:[\s\S]*[^\s\u0085\u001c-\u001f])?)?$"
ASCII = r"^[\u0000-\u007f]*$"

_DECIMAL = r"(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?"
COMPLEX = rf"^-?{_DECIMAL}(?:j|[+-]{_DECIMAL}j)?$"

#: Keys of dicts, by the type of their schema in pydantic's core.
KEYS = {"int": r"^(?:0|-?[1-9]\d{0,17})$", "float": rf"^-?{_DECIMAL}$", "bool": "^(?:true|false)$"}

# The Gregorian calendar.
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
_DATE = rf"(?:(?!0000)\d{{4}}-{_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
NAIVE_DATETIME = rf"^{_DATE}T{_TIME}$"

# Hosts as in the URL Standard (https://url.spec.whatwg.org/#host-parsing): the last label of a name has a letter, and
# labels in Punycode would have to be decoded.
# Not ``\d``, which has the digits of all scripts where records are checked: patterns of networks have hundreds of them.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_LABEL_END = r"(?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_NAME = rf"(?:(?![Xx][Nn]--)[A-Za-z0-9_]{_LABEL_END}\.)*(?![Xx][Nn]--)[A-Za-z]{_LABEL_END}"
_PORT = r"(?:[1-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_AUTHORITY = rf"(?:[^/?#@,]*@)?(?:{_NAME}|{_IPV4})(?::{_PORT})?"
_PATH = r"(?:[/?#].*)?"
_SPECIAL = "ftp|https?|wss?"

# Addresses that mail can be sent to: names under top-level domains that are not reserved (RFC 6761), without labels
# that would have to be decoded (RFC 5891, section 4.2.3.1).
_RESERVED = ("arpa", "invalid", "local", "localhost", "onion", "test")
_NOT_RESERVED = f"(?!(?:{'|'.join(''.join(f'[{letter.upper()}{letter}]' for letter in name) for name in _RESERVED)})$)"
_MAIL_LABEL = "(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_EMAIL = rf"^[^@\"]{{1,64}}@(?:{_MAIL_LABEL}\.)+{_NOT_RESERVED}[A-Za-z]{{2,63}}$"

# RFC 4291, section 2.2.
_HEX = "0123456789abcdef"
_GROUP, _ZEROS = f"[{_HEX}A-F]{{1,4}}", "0{1,4}"
#: The beginning of IPv6 addresses that stand for IPv4 addresses (section 2.5.5.2).
_MAPPED = "::[Ff]{4}:"


def url(schemes: Sequence[str] | None) -> str:
    """Return a pattern for those URLs of RFC 3986 that the URL Standard reads, with one of the given schemes."""
    if schemes is None:
        others = rf"(?!(?:{_SPECIAL}|file):)[a-z][a-z0-9+.-]*:(?://{_AUTHORITY}{_PATH}|[^/].*)"
        return rf"^(?:(?:{_SPECIAL})://{_AUTHORITY}{_PATH}|file:///.*|{others})$"
    named = "|".join(scheme.replace("+", r"\+").replace(".", r"\.") for scheme in schemes if scheme != "file")
    forms = [rf"(?:{named})://{_AUTHORITY}{_PATH}"] * bool(named) + ["file:///.*"] * ("file" in schemes)
    return f"^(?:{'|'.join(forms)})$"


def date_bounds(limits: Mapping[str, Any]) -> list[str]:
    """Return patterns for dates within the bounds ``gt``, ``ge``, ``lt`` and ``le``."""
    return [_compared(limits[name], name) for name in ("gt", "ge", "lt", "le") if name in limits]


def _compared(bound: date, how: str) -> str:
    """Return a pattern for dates on one side of a bound: the first digit that differs from the bound decides."""
    text = bound.isoformat()
    found = [text] if how.endswith("e") else []
    for index, digit in enumerate(text):
        if digit != "-":
            others = _DIGITS[int(digit) + 1 :] if how.startswith("g") else _DIGITS[: int(digit)]
            found += [text[:index] + f"[{others}]" + re.sub(r"\d", r"\\d", text[index + 1 :])] * bool(others)
    return f"^(?:{'|'.join(found)})$"


def _ipv4_network(prefix: int) -> str:
    """Return a pattern for IPv4 addresses of which the bits after the first ``prefix`` are zero."""
    whole, bits = divmod(prefix, 8)
    part = ["|".join(str(octet) for octet in range(0, 256, 1 << (8 - bits)))] * bool(bits)
    octets = [_OCTET] * whole + [f"(?:{each})" for each in part] + ["0"] * (4 - whole - len(part))
    return r"\.".join(octets)


def _ipv6_networks(whole: int) -> str:
    """Return a pattern for IPv6 networks whose prefix has ``whole`` groups and 1 to 16 bits of the next.

    The bits after it are zero. ``::`` stands before the last group with bits of the prefix, after it, or for it.
    """
    after = 7 - whole
    zeros = f"(?::{_ZEROS}){{{after}}}"
    cut = [f"(?::{_ZEROS}){{{number}}}::{_zeros(after - 1 - number)}" for number in range(after)]
    forms = [f"(?:{_GROUP}:){{{whole}}}" + _ends(f"(?:{'|'.join([zeros, *cut])})", whole)]
    lefts = [f"(?:{_GROUP}:){{{left}}}" if left else ":" for left in range(whole)]
    if starts := [f"{left}:(?:{_GROUP}:){{0,{whole - 1 - number}}}" for number, left in enumerate(lefts)]:
        forms.append(f"(?:{'|'.join(starts)})" + _ends(zeros, whole))
    before = f"(?:(?:{_GROUP}:){{1,{whole}}}|:)" if whole else ":"
    lengths = "|".join(str(16 * whole + bits) for bits in range(1, 17))
    return "|".join([*forms, f"{before}:{_zeros(after)}/(?:{lengths})"])


def _ends(end: str, whole: int) -> str:
    """Return a pattern for the rest of IPv6 networks from the group on in which the prefix ends."""
    return f"(?:{'|'.join(f'{_group_of_prefix(bits)}{end}/{16 * whole + bits}' for bits in range(1, 17))})"


def _group_of_prefix(bits: int) -> str:
    """Return a pattern for a group of which all bits but the first ``bits`` are zero."""
    zeros, cut = divmod(16 - bits, 4)
    if not (zeros or cut):
        return _GROUP
    digits = _HEX[:: 1 << cut]
    digit = f"[{digits}{digits.upper()}]" if cut else ""
    return f"(?:{_ZEROS}|[{_HEX}A-F]{{0,{4 - zeros - bool(cut)}}}{digit}{'0' * zeros})"


def _zeros(most: int) -> str:
    """Return a pattern for at most ``most`` groups that are zero."""
    return f"(?:{_ZEROS}(?::{_ZEROS}){{0,{most - 1}}})?" if most else ""


_IPV6 = "|".join(
    [_MAPPED + _IPV4, rf"(?:{_GROUP}:){{7}}{_GROUP}", rf"(?:{_GROUP}:){{1,7}}:", rf":(?::{_GROUP}){{1,7}}"]
    + [rf"(?:{_GROUP}:){{1,{left}}}(?::{_GROUP}){{1,{7 - left}}}" for left in range(1, 7)]
)
_IPV4_NETWORKS = "|".join([_IPV4, *(f"{_ipv4_network(prefix)}/{prefix}" for prefix in range(33))])
_IPV6_NETWORKS = "|".join(
    [f"(?:{_IPV6})", *(f"{_MAPPED}{_ipv4_network(prefix)}/{96 + prefix}" for prefix in range(33))]
    + [f"(?:{_ZEROS}(?::{_ZEROS}){{7}}|::{_zeros(7)})/0"]
    + [f"{_ZEROS}(?::{_ZEROS}){{{number - 1}}}::{_zeros(7 - number)}/0" for number in range(1, 8)]
    + [_ipv6_networks(whole) for whole in range(8)]
)
_IPV4_INTERFACE = rf"{_IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
_IPV6_INTERFACE = rf"(?:{_IPV6})(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
_BASE64 = "(?:{0}{{4}})*(?:{0}{{2}}==|{0}{{3}}=)?"


_SIZE_UNIT = "(?:[KMGTPEkmgtpe]?(?:[Bb](?:[Ii][Tt])?)?|[KMGTPEkmgtpe][Ii][Bb](?:[Ii][Tt])?)"
#: Patterns by those of pydantic that only begin like what its types read: sizes in bytes.
PATTERNS = {r"^\s*(\d*\.?\d+)\s*(\w+)?": rf"^\d{{1,15}}(?:\.\d{{1,9}})? ?{_SIZE_UNIT}$"}


def _matching(*alternatives: str) -> dict[str, Any]:
    return {"pattern": f"^(?:{'|'.join(alternatives)})$"}


#: Keywords for formats of pydantic that JSON Schema does not have, or has in a wider sense.
FORMATS: dict[str, dict[str, Any]] = {
    "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "ipvanynetwork": _matching(_IPV4_NETWORKS, _IPV6_NETWORKS),
    "ipvanyinterface": _matching(_IPV4_INTERFACE, _IPV6_INTERFACE),
    "ipv4network": _matching(_IPV4_NETWORKS),
    "ipv6network": _matching(_IPV6_NETWORKS),
    "ipv4interface": _matching(_IPV4_INTERFACE),
    "ipv6interface": _matching(_IPV6_INTERFACE),
    "base64": _matching(_BASE64.format("[A-Za-z0-9+/]")),
    "base64url": _matching(_BASE64.format("[A-Za-z0-9_-]")),
    "email": {"format": "email", "maxLength": 254, "allOf": [{"pattern": _EMAIL}]},
    "fraction": _matching(r"-?\d{1,18}(?:/[1-9]\d{0,17})?"),
} | {
    f"uuid{version}": {"format": "uuid", "pattern": f"^[^-]*-[^-]*-{version}[^-]*-[89abAB]"} for version in range(1, 9)
}
