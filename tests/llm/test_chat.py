"""Chat templates, and limits on what they may do."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from abele.llm.chat import ChatTemplate, ChatTemplateError

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": 'Größe & "Maß"? \ud83e'}]
TOOLS = [{"name": "add", "parameters": {"a": 1}}]
CHATML = (
    "{%- for message in messages -%}\n"
    "    {% if message['role'] == 'tool' %}{{ raise_exception('no tools ' + message.role) }}{% endif %}\n"
    "    {{- '<|' ~ message.role ~ '|>' + message['content'] | trim + eos_token }}\n"
    "{%- endfor %}\n"
    "{% if tools %}{% for tool in tools %}{% if loop.first %}{% continue %}{% endif %}{{ tool }}{% endfor %}\n"
    "{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|answer|>{% endif %}"
)
FIRST = '<|system|>Be kind.$<|user|>Größe & "Maß"? \ud83e$'


def test_render__messages_tools_and_generation__as_hugging_face_fills_them_in() -> None:
    template = ChatTemplate(CHATML, {"eos_token": "$"})
    assert template.render(MESSAGES) == FIRST + "<|answer|>"
    assert (
        template.render(MESSAGES, tools=TOOLS, generation=False) == FIRST + '[{"name": "add", "parameters": {"a": 1}}]'
    )
    assert ChatTemplate("{{ strftime_now('%Y') | int > 2000 }}").render(MESSAGES) == "True"


@pytest.mark.parametrize(
    ("source", "because"),
    [
        ("{% for", "line 1: unexpected"),
        ("{{ 1 | centre }}", "No filter named 'centre'"),
        ("{{ nothing.of }}", "'nothing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
        ("{{ 'a' * 10**12 }}", "needs more than 256 MiB"),
        ("{{ 'abcdefgh' * 10**6 }}", "writes more than 4,194,304 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}", "longer than 0.2 s"),
        (
            "{% set n = namespace(x=1) %}{% for i in range(64) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
            "longer",
        ),
    ],
)
def test_render__wrong_or_boundless_template__is_refused(source: str, because: str) -> None:
    with pytest.raises(ChatTemplateError) as refused:
        ChatTemplate(source, seconds=0.2 if "longer" in because else 10).render(MESSAGES)
    assert because in str(refused.value.because)
    assert ChatTemplate("{{ messages[0].role }}").render(MESSAGES) == "system"  # and the next is served


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "without messages"),
        ([{"content": "x"}], "message 0 has no role"),
        (["hi"], "message 0 has no role"),
        ([{"role": "user", "content": b"x"}], "not made of JSON's types"),
    ],
)
def test_render__messages_that_are_none__are_refused(messages: list[Any], message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate("x").render(messages)


def test_render__from_many_threads__each_gets_its_own() -> None:
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        template = ChatTemplate("{{ messages[0].content }}")
        found[number] = template.render([{"role": "user", "content": f"{number}" * 1000}])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}" * 1000 for number in range(8)}
