from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from constrain.errors import TokenizerError
from constrain.tokenizer import ChatTemplate, ExLlamaV2Tokenizer, bounded_jinja
from constrain.tokenizer.chat import MAX_PROMPT_CHARS

Load = Callable[..., ExLlamaV2Tokenizer]
Save = Callable[..., Path]

TURNS = """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{ raise_exception('who is ' ~ message.role) }}{% endif %}
    {{- '[' + message['role'] + '] ' + message['content'] | trim + eos_token }}
{% endfor %}
{% if add_generation_prompt %}[assistant] {% endif %}"""

FEATURES = """{% set ns = namespace(count=0) %}
{% for message in messages if message.content %}
    {% if loop.first %}{% continue %}{% endif %}
    {% set ns.count = ns.count + 1 %}
    {{ message | tojson(indent=2) }}
    {% generation %}{{ message.content.split(' ')[0] }}{% endgeneration %}
    {% if ns.count > 2 %}{% break %}{% endif %}
{% endfor %}
{{ tools | tojson if tools is defined and tools else 'no tools' }}{{ '-' * 3 }}{{ unknown_name }}{{ pad_token }}
{{ strftime_now('%Y') | length }}{{ extra }}"""

MESSAGES = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": "What is <b>π</b>?\n"},
    {"role": "assistant", "content": "3.14"},
    {"role": "user", "content": "more 'digits'"},
]
TOOLS = [{"name": "add", "parameters": {"type": "object"}}]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def with_template(save: Save, template: Any) -> Path:
    return save({**SPECIALS, "chat_template": template})


@pytest.mark.parametrize("template", [TURNS, FEATURES], ids=["turns", "features"])
@pytest.mark.parametrize("prompt", [True, False])
def test_templates_read_as_in_transformers(save_byte_level: Save, load: Load, template: str, prompt: bool) -> None:
    folder = with_template(save_byte_level, template)
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = load(folder)
    for tools in (None, TOOLS):
        expected = reference.apply_chat_template(
            MESSAGES, tools=tools, tokenize=False, add_generation_prompt=prompt, extra="x"
        )
        made = tokenizer.apply_chat_template(MESSAGES, tools=tools, add_generation_prompt=prompt, extra="x")
        assert made == expected


def test_a_rendered_prompt_has_its_special_tokens(save_byte_level: Save, load: Load) -> None:
    tokenizer = load(with_template(save_byte_level, TURNS))
    ids = tokenizer.encode(tokenizer.apply_chat_template(MESSAGES), encode_special_tokens=True)[0].tolist()
    assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.eos_token_id) == len(MESSAGES)


def test_where_templates_are_found(save_byte_level: Save, load: Load) -> None:
    folder = with_template(
        save_byte_level, [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    )
    assert load(folder).apply_chat_template([]) == "plain"
    assert load(folder).apply_chat_template([], tools=TOOLS) == "tools"
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "own json"}))
    assert load(folder).apply_chat_template([]) == "own json"
    (folder / "chat_template.jinja").write_text("own file")
    assert load(folder).apply_chat_template([], tools=TOOLS) == "own file"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("own file of tools")
    assert load(folder).apply_chat_template([]) == "own file"
    assert load(folder).apply_chat_template([], tools=TOOLS) == "own file of tools"


def test_errors_of_templates(save_byte_level: Save, load: Load) -> None:
    for template, message in [
        (None, "the model has no chat template; give a prompt"),
        ([{"name": "rag", "template": ""}], "no chat template called default, only rag; give a prompt"),
        ({"default": ""}, "must be a text, or a list"),
        ([{"name": "default"}], "must be a text, or a list"),
        ("{% if %}", "tokenizer_config.json: not a Jinja template: .*, line 1"),
        ("{% generation %}", "not a Jinja template"),
        ("{{ (" + "(" * 5000 + "1", "nested too deeply|not a Jinja template"),
    ]:
        tokenizer = load(with_template(save_byte_level, template))
        with pytest.raises(TokenizerError, match=message):
            tokenizer.apply_chat_template(MESSAGES)
    tokenizer = load(with_template(save_byte_level, TURNS))
    with pytest.raises(TokenizerError, match="cannot render these messages: who is tool"):
        tokenizer.apply_chat_template([{"role": "tool", "content": ""}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 10 ** 9 * [messages] }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% for i in range(10 ** 8) %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 1 / 0 }}",
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=9) %}{% for i in range(999) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 'a' | center(10 ** 9) }}",
        "{{ 'a'.ljust(10 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ ('a' * 9999999).replace('a', 'b' * 999) }}",
        "{{ 'a' * 9999999 | replace('a', 'b' * 999) }}",
        "{{ ('b' * 999).join('a' * 9999999) }}",
        "{{ ('a' * 9999999) | join('b' * 999) }}",
        "{{ ('\n' * 9999999) | indent(999) }}",
        "{{ ('\t' * 9999999).expandtabs(999) }}",
        "{{ [[[1]]] | tojson(indent=999) }}",
        *(
            "{% set n = namespace(x=['a']) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}" + written
            for written in (
                "{{ n.x }}",
                "{{ n.x ~ 1 }}",
                "{{ n.x | string }}",
                "{{ n.x | tojson }}",
                "{{ n.x | join }}",
                "{{ '%s' % n.x }}",
                "{{ '%s' % [n.x] }}",
                "{{ '{}'.format(n.x) }}",
                "{{ {'a': n.x} | upper }}",
            )
        ),
        "{{ [1] | slice(10 ** 9) | list }}",
        "{{ 'a'.translate({97: 'b' * 999}) }}",
        "{{ (1).to_bytes(10 ** 9) }}",
        "{{ 'a'.encode() * 10 ** 9 }}",
    ],
)
def test_hostile_templates_do_no_harm(source: str) -> None:
    messages: list[Any] = [{"role": "user"}]
    with pytest.raises(TokenizerError, match="cannot render these messages"):
        ChatTemplate(source).render(messages, {})
    assert messages == [{"role": "user"}]


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "".join(f"{{% for a{i} in [1, 2, 3, 4, 5, 6, 7, 8, 9] %}}" for i in range(18)) + "{% endfor %}" * 18,
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for x in range(9) recursive %}{{ loop(range(9)) if loop.depth < 60 }}{% endfor %}",
    ],
)
def test_templates_that_do_not_end_are_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_jinja, "MAX_SECONDS", 0.05)
    with pytest.raises(TokenizerError, match=r"runs longer than 0\.05 seconds"):
        ChatTemplate(source).render([], {})


def test_loops_and_sums_are_as_usual() -> None:
    for source, written in (
        (
            "{% for a in x %}{{ loop.index }}/{{ loop.length }}{{ a }}{{ ',' if not loop.last }}{% endfor %}",
            "1/2p,2/2q",
        ),
        ("{% for k, v in y.items() %}{{ k ~ v ~ none ~ z }}{% endfor %}{% for k in y %}{{ k }}{% endfor %}", "k1Nonek"),
        ("{% for a in z %}{% else %}empty{% endfor %}{% for a in x if a > 'p' %}{{ a }}{% endfor %}", "emptyq"),
        ("{% for a in x | map('upper') %}{{ loop.revindex }}{{ a }}{% endfor %}", "2P1Q"),
        ("{% for a in [[1, [2]]] recursive %}{{ a if a is integer else loop(a) }}{% endfor %}", "12"),
        (
            "{{ 1 + 2 }}{{ 'a' + 'b' }}{{ [1] + [2] }}{{ 7 % 4 }}{{ '%s-%03d' % ('c', 5) }}{{ 2 * 3 }}",
            "3ab[1, 2]3c-0056",
        ),
        (
            "{{ 'a b'.replace('a', 'c').split(' ') | join('+') }}{{ '{} {}'.format(1, 'x') }}{{ ','.join(x) }}",
            "c+b1 xp,q",
        ),
        ("{{ y | tojson(indent=2) }}{{ 'a\nb' | indent(2) }}{{ 'a' | center(3) }}", '{\n  "k": 1\n}a\n  b a '),
    ):
        assert ChatTemplate(source).render([], {"x": ["p", "q"], "y": {"k": 1}}) == written


def test_bounds_leave_room(tmp_path: Path) -> None:
    assert ChatTemplate("{{ 'ab' * 1000 }}{{ 2 ** 100 }}").render([], {}) == "ab" * 1000 + str(2**100)
    assert len(ChatTemplate("{{ x }}").render([], {"x": "a" * MAX_PROMPT_CHARS})) == MAX_PROMPT_CHARS
