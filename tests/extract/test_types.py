"""Types as targets: a type reads all texts that its schema allows."""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field, StringConstraints

from constrain import Evidence
from constrain.engine import CompiledGrammar, compile_json_schema
from constrain.extract.bounds import bounded
from constrain.extract.target import Target
from constrain.testing import byte_vocabulary, sample


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    size: Literal["small"] = "small"


class Fish(pydantic.BaseModel):
    kind: Literal["fish"] = "fish"
    size: Literal["tiny", "large"] = "tiny"


class Dog(pydantic.BaseModel):
    kind: Literal["dog", "wolf"] = "wolf"
    name: Annotated[str, Field(max_length=5)] = ""


TYPES: dict[str, Any] = {
    "int": int,
    "strict int": pydantic.StrictInt,
    "strict float": pydantic.StrictFloat,
    "Decimal": Annotated[Decimal, Field(max_digits=6, decimal_places=2)],
    "Fraction": Fraction,
    "complex": complex,
    "bytes": Annotated[bytes, Field(max_length=3)],
    "stripped": Annotated[str, StringConstraints(strip_whitespace=True, min_length=3)],
    "lower": Annotated[str, StringConstraints(to_lower=True, pattern="^[a-z]+$")],
    "base64": pydantic.Base64Bytes,
    "base64url": pydantic.Base64UrlBytes,
    "date": date,
    "date after": Annotated[date, Field(gt=date(2019, 9, 30))],
    "date from": Annotated[date, Field(ge=date(2020, 10, 9))],
    "date before": Annotated[date, Field(lt=date(1000, 1, 1))],
    "dates between": Annotated[date, Field(ge=date(1999, 12, 31), le=date(2001, 1, 2))],
    "time": time,
    "datetime": datetime,
    "naive datetime": pydantic.NaiveDatetime,
    "aware datetime": pydantic.AwareDatetime,
    "timedelta": timedelta,
    "UUID": uuid.UUID,
    "UUID 1": pydantic.UUID1,
    "UUID 4": pydantic.UUID4,
    "UUID 7": pydantic.UUID7,
    "IPv4 address": ipaddress.IPv4Address,
    "IPv6 address": ipaddress.IPv6Address,
    "IP address": pydantic.IPvAnyAddress,
    "IPv4 interface": ipaddress.IPv4Interface,
    "IPv6 interface": ipaddress.IPv6Interface,
    "IP interface": pydantic.IPvAnyInterface,
    "IPv4 network": ipaddress.IPv4Network,
    "IPv6 network": ipaddress.IPv6Network,
    "IP network": pydantic.IPvAnyNetwork,
    "URL": pydantic.AnyUrl,
    "web URL": pydantic.HttpUrl,
    "file URL": pydantic.FileUrl,
    "database URL": pydantic.PostgresDsn,
    "cache URL": pydantic.RedisDsn,
    "e-mail": pydantic.EmailStr,
    "dict by int": dict[int, str],
    "dict by float": dict[float, bool],
    "dict by bool": dict[bool, None],
    "dict by date": dict[date, int],
    "Counter": Counter[str],
    "size": pydantic.ByteSize,
    "discriminated union": list[
        Annotated[Annotated[Cat | Fish, Field(discriminator="size")] | Dog, Field(discriminator="kind")]
    ],
}


def grammar_of(target: Target[Any]) -> CompiledGrammar:
    schema = bounded(target.output_schema, 256)
    return compile_json_schema(schema, byte_vocabulary(), property_order="schema", integers="plain")


@pytest.mark.parametrize("name", TYPES)
def test_all_texts_of_the_schema_are_read(name: str) -> None:
    target: Target[Any] = Target.of(TYPES[name])
    grammar = grammar_of(target)
    with_evidence: Target[Any] = Target.of(Evidence[TYPES[name]])
    for seed in range(25):
        text = sample(grammar, seed, max_tokens=60)
        value = target.read(text).value
        assert with_evidence.read(f'{{"quote": "a", "value": {text}}}').value == value


@pytest.mark.parametrize("name", TYPES)
def test_what_is_written_is_read(name: str) -> None:
    target: Target[Any] = Target.of(TYPES[name])
    grammar = grammar_of(target)
    for seed in range(25):
        value = target.read(sample(grammar, seed, max_tokens=60)).value
        assert target.read(target.write(value)).value == value


def test_common_texts_of_types_stay_possible() -> None:
    for name, texts in {
        "web URL": [
            "https://example.com",
            "http://user:pass@www.EXAMPLE.com:8080/a/b;c?d=e&f#g",
            "https://my--site.example.co.uk?x",
            "http://192.168.0.1:65535/",
            "https://a_b.example/%C3%A9",
        ],
        "URL": ["mailto:ada@example.org", "ftp://ftp.example.org/x", "urn:isbn:0451450523", "file:///etc/hosts"],
        "e-mail": ["ada@example.org", "o'neil+x@Mail.my-host.co.uk"],
        "database URL": ["postgres://user:pass@localhost:5432/app", "postgresql+asyncpg://db.example.org/app?ssl=1"],
        "IPv4 network": ["10.0.0.0/8", "192.168.4.0/22", "0.0.0.0/0", "1.2.3.4", "1.2.3.4/32", "8.8.8.8/31"],
        "IPv6 network": [
            *["2001:db8::/32", "2001:db8:0:ff00::/56", "::/0", "::1", "fe80::/10", "1:2:3:4:5:6:7:8/128"],
            *["2001:db8::/48", "2001:db8:0:0::/48", "::/64", "::ffff:0:0/96", "2001:db8::1:0:0:0/80", "64:ff9b:1::/48"],
            *["2001:DB8:F000::/36", "0::/0", "1::2/127", "::ffff:10.1.0.0/112"],
        ],
        "IP interface": ["192.168.4.7/22", "fe80::1/64", "::ffff:0:1", "::ffff:1.2.3.4/96"],
        "naive datetime": ["2024-02-29T23:59:59", "1999-12-31T00:00:00.123456"],
        "dates between": ["1999-12-31", "2000-02-29", "2001-01-02"],
        "stripped": ["a b", "é 🙂 ü", "two\nlines"],
        "UUID 4": ["123e4567-e89b-42d3-a456-426614174000"],
        "base64": ["", "YWJj", "YWI=", "YQ=="],
        "size": ["16 GB", "1.5 MiB", "300kb", "64"],
        "complex": ["1.5", "2j", "-1+0.5j"],
        "Fraction": ["-3/4", "7"],
    }.items():
        target: Target[Any] = Target.of(TYPES[name])
        grammar = grammar_of(target)
        for text in texts:
            written = json.dumps(text, ensure_ascii=False)
            assert grammar.accepts(written), (name, text)
            target.read(written)


def test_networks_have_no_bits_after_their_prefix() -> None:
    grammar = grammar_of(Target.of(ipaddress.IPv6Network))
    for text in ("2001:db8::/28", "::1/127", "1::/15", "2001:db8::1/64", "::2:0:0/94", "::ffff:1.2.3.5/127", "::/129"):
        assert not grammar.accepts(f'"{text}"'), text


def test_the_bounds_of_dates_are_exact() -> None:
    for name, first, last in (
        ("date after", date(2019, 10, 1), date(9999, 12, 31)),
        ("date from", date(2020, 10, 9), date(9999, 12, 31)),
        ("date before", date(1, 1, 1), date(999, 12, 31)),
        ("dates between", date(1999, 12, 31), date(2001, 1, 2)),
    ):
        grammar = grammar_of(Target.of(TYPES[name]))
        for bound, step in ((first, -1), (last, 1)):
            assert grammar.accepts(json.dumps(bound.isoformat()))
            if date.min < bound < date.max:
                assert not grammar.accepts(json.dumps((bound + timedelta(days=step)).isoformat()))


def test_the_prompt_shows_the_schema_without_patterns() -> None:
    target: Target[Any] = Target.of(pydantic.HttpUrl)
    assert target.schema == {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}
    assert target.output_schema["allOf"]
