from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import constrain
from constrain import LLM
from constrain.chat import Chat
from constrain.cli import cli
from constrain.errors import ArgumentError, BudgetError, GenerationError
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2Sampler
from constrain.llm import make_filters
from constrain.model import ExLlamaV2Cache
from constrain.runtime import Handle, Request

GREEDY = ExLlamaV2Sampler.Settings.greedy()
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% else %}{{ m.role[0] }}={{ m.content }};"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}a={% endif %}"
)


@pytest.fixture
def llm(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


@pytest.fixture
def with_template(tiny_dir: Path, tmp_path: Path) -> LLM:
    folder = shutil.copytree(tiny_dir, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return constrain.load(folder)


def test_what_is_said_is_kept(llm: LLM) -> None:
    chat = Chat(llm, "Be brief.", GREEDY, max_new_tokens=6)
    pieces = list(chat.answer("hello"))
    assert len(pieces) > 1 and chat.finish_reason == "max_new_tokens"
    list(chat.answer("and then?"))
    said = [(message["role"], message["content"]) for message in chat.messages]
    assert [role for role, _ in said] == ["system", "user", "assistant", "user", "assistant"]
    assert said[2][1] == "".join(pieces).strip() and said[3][1] == "and then?"
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "Be brief."}]
    assert list(chat.answer("hello")) == pieces


def test_answers_may_be_constrained(llm: LLM) -> None:
    chat = Chat(llm, max_new_tokens=40, seed=1)
    for _ in range(2):
        filters = make_filters(llm.model, llm.tokenizer, regex="(yes|no), [a-z]{3}")
        assert re.fullmatch("(yes|no), [a-z]{3}", "".join(chat.answer("is it?", filters)))
        assert chat.finish_reason == "stop_token"


def test_answers_are_complete(llm: LLM) -> None:
    chat = Chat(llm, max_new_tokens=12, settings=GREEDY)
    filters = make_filters(llm.model, llm.tokenizer, json_schema={"type": "array", "minItems": 1})
    assert json.loads("".join(chat.answer("a list", filters)))
    long = make_filters(llm.model, llm.tokenizer, regex="a{50}")
    with pytest.raises(BudgetError):
        list(chat.answer("a list", long))
    assert len(chat.messages) == 2


def test_two_conversations_at_a_time(llm: LLM) -> None:
    alone = list(Chat(llm, settings=GREEDY, max_new_tokens=8).answer("hello"))
    answers = [Chat(llm, settings=GREEDY, max_new_tokens=8).answer("hello") for _ in range(2)]
    assert list(zip(*answers, strict=True)) == [(piece, piece) for piece in alone]


def test_on_a_dynamic_generator(llm: LLM) -> None:
    generator = ExLlamaV2DynamicGenerator(llm.model, ExLlamaV2Cache(llm.model), llm.tokenizer)
    expected = list(Chat(llm, settings=GREEDY, max_new_tokens=8).answer("hello"))
    assert list(Chat(generator, settings=GREEDY, max_new_tokens=8).answer("hello")) == expected
    with pytest.raises(ArgumentError, match="runtime must be a Runtime, or something that has one"):
        Chat(llm.model)


@pytest.mark.parametrize("template", [True, False])
def test_prompts(template: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    llm: LLM = request.getfixturevalue("with_template" if template else "llm")
    prompts = []
    submit = llm.runtime.submit

    def observed(request: Request) -> Handle:
        prompts.append(llm.tokenizer.decode(request.prompt[0])[0])
        return submit(request)

    monkeypatch.setattr(llm.runtime, "submit", observed)
    chat = Chat(llm, "Hi.", GREEDY, max_new_tokens=3)
    first = "".join(chat.answer("one")).strip()
    list(chat.answer("two"))
    if template:
        assert prompts == ["Hi.u=one;a=", f"Hi.u=one;a={first};u=two;a="]
    else:
        assert prompts == ["Hi.\nUser: one\nAssistant:", f"Hi.\nUser: one\nAssistant: {first}\nUser: two\nAssistant:"]


def test_the_oldest_is_left_out(llm: LLM) -> None:
    chat = Chat(llm, settings=GREEDY, max_new_tokens=8)
    for number in range(12):
        list(chat.answer(f"the quick brown fox number {number} jumps over the lazy dog"))
    assert len(chat.messages) == 24
    said = list(chat.messages)
    with pytest.raises(GenerationError, match=r"the message has .* and the context 256, of which 8 are"):
        next(chat.answer("fox " * 300))
    assert chat.messages == said


def test_an_answer_may_be_broken_off(llm: LLM) -> None:
    chat = Chat(llm, settings=GREEDY, max_new_tokens=50)
    answer = chat.answer("hello")
    begun = next(answer)
    assert isinstance(answer, Iterator)
    answer.close()  # type: ignore[attr-defined]
    assert not llm.runtime.has_work and chat.finish_reason is None
    assert chat.messages[-1] == {"role": "assistant", "content": begun.strip()}
    assert list(chat.answer("go on"))


def test_lines_are_messages(tiny_dir: Path) -> None:
    arguments = ["chat", "--model", str(tiny_dir), "--regex", "[ab]{3}", "--temperature", "0"]
    result = CliRunner().invoke(cli, arguments, input="hello\n\n/reset\nhello\n/quit\nunread\n")
    assert result.exit_code == 0, result.output
    assert len(re.findall("[ab]{3}\n", result.stdout)) == 2
    result = CliRunner().invoke(
        cli, ["chat", "--model", str(tiny_dir), "--max-new-tokens", "2"], input="fox " * 300 + "\nhi\n"
    )
    assert result.exit_code == 0 and "Error: the message has" in result.stderr and "(stopped" in result.stderr


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self.master, slave = pty.openpty()
        # A terminal that can do little, so that no control sequences stand between the words.
        environment = {**os.environ, "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.output = ""

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not re.search(pattern, self.output):
            assert select.select([self.master], [], [], max(0, end - time.monotonic()))[0], self.output
            self.output += os.read(self.master, 4096).decode(errors="replace")


def test_in_a_terminal(tiny_dir: Path) -> None:
    terminal = Terminal(sys.executable, "-m", "constrain", "chat", "--model", str(tiny_dir), "--regex", "[ab]{3}")
    terminal.wait_for(r"> $")
    terminal.send("hello\r")
    terminal.wait_for(r"hello\r\n[ab]{3}\r\n(.*)> $")
    terminal.send("\x04")
    assert terminal.process.wait(30) == 0
