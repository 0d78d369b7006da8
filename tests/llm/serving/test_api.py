"""OpenAI's interface: what answers look like, what is refused and how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from abele.llm.generation import GeneratorError
from abele.llm.serving.limits import ServingLimits
from support.scripted_model import scripted_model

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


def chunks(text: str) -> list[dict[str, Any]]:
    """Chunks of a stream, which must end with DONE."""
    lines = text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: ") for line in lines[:-1])
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def refused(client: TestClient, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    """The error that a body is answered with."""
    answer = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_models__one(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["scripted"])
    assert client.get("/v1/models/scripted").json() == listed["data"][0]
    missing = client.get("/v1/models/a/b")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_chat__whole_and_streamed__same_text_usage_and_logprobs(client: TestClient) -> None:
    body = {
        "model": "scripted",
        "messages": HI,
        "max_tokens": 6,
        "seed": 5,
        "n": 2,
        "logprobs": True,
        "top_logprobs": 2,
    }
    whole = client.post(CHAT, json=body).json()
    assert whole["object"] == "chat.completion"
    assert whole["usage"] == {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}
    streamed = chunks(client.post(CHAT, json=body | {"stream": True, "stream_options": {"include_usage": True}}).text)
    assert {chunk["object"] for chunk in streamed} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in streamed}) == 1
    assert (streamed[-1]["choices"], streamed[-1]["usage"]) == ([], whole["usage"])
    assert all(chunk["usage"] is None for chunk in streamed[:-1])
    for choice in whole["choices"]:
        mine = [c["choices"][0] for c in streamed[:-1] if c["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in mine) == choice["message"]["content"] != ""
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]
        told = [entry for c in mine if c["logprobs"] for entry in c["logprobs"]["content"]]
        assert told == choice["logprobs"]["content"]
        assert "".join(entry["token"] for entry in told) == choice["message"]["content"]
        assert {len(entry["top_logprobs"]) for entry in told} == {2}
    assert whole["choices"][0]["message"]["content"] != whole["choices"][1]["message"]["content"]


def test_chat__each_chunk_of_tokens__has_their_modelled_time(client: TestClient) -> None:
    body = {"messages": HI, "max_tokens": 4, "temperature": 0, "stream": True}
    costs = [chunk["abele"] for chunk in chunks(client.post(CHAT, json=body).text) if "abele" in chunk]
    assert [len(cost["tokens"]) for cost in costs] == [1, 1, 1, 1]
    assert costs[0]["cycles"] > costs[1]["cycles"] == costs[2]["cycles"] == 1850
    assert costs[1]["seconds"] == pytest.approx(1e-6)


def test_completions__prompts_echo_and_stop(client: TestClient) -> None:
    body = {"prompt": ["a", "b"], "temperature": 0, "max_tokens": 9, "echo": True, "stop": ["lno"]}
    whole = client.post(TEXT, json=body).json()
    assert [choice["text"] for choice in whole["choices"]] == ["adehi", "bdehi"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "stop"]
    streamed = chunks(client.post(TEXT, json=body | {"stream": True}).text)
    for i, choice in enumerate(whole["choices"]):
        texts = [c["choices"][0]["text"] for c in streamed if c["choices"][0]["index"] == i]
        assert "".join(texts) == choice["text"]


def test_completions__ids__are_prompts_as_well(client: TestClient) -> None:
    def texts(prompt: Any) -> list[str]:
        answer = client.post(TEXT, json={"prompt": prompt, "temperature": 0, "max_tokens": 3})
        return [choice["text"] for choice in answer.json()["choices"]]

    assert texts([97, 98]) == texts("ab") == ["deh"]
    assert texts([[97], [98]]) == texts(["a", "b"]) == ["deh", "deh"]


def test_completions__logprobs__with_offsets(client: TestClient) -> None:
    answer = client.post(TEXT, json={"prompt": "a", "temperature": 0, "max_tokens": 3, "logprobs": 3}).json()
    told = answer["choices"][0]["logprobs"]
    assert (told["tokens"], told["text_offset"]) == (["d", "e", "h"], [0, 1, 2])
    assert told["token_logprobs"] == [-0.25] * 3
    assert told["top_logprobs"][0]["\N{REPLACEMENT CHARACTER}"] == -9999.0


def test_end_token__stops_and_is_no_text(client: TestClient) -> None:
    choice = client.post(TEXT, json={"prompt": "Z", "max_tokens": 9}).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("z", "stop")


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("temperature", -1, "from 0 to 2"),
        ("temperature", "hot", "a number"),
        ("temperature", True, "true"),
        ("top_p", 1.5, "from 0 to 1"),
        ("n", 0, "from 1 to 32"),
        ("n", 10**400, "whole number of"),
        ("max_tokens", 0, "from 1"),
        ("max_tokens", 1.5, "whole"),
        ("seed", 2**64, "whole number"),
        ("stop", [1], "strings"),
        ("stop", ["x"] * 40, "at most"),
        ("stop", [""], "characters"),
        ("top_logprobs", 3, "logprobs to be true"),
        ("stream_options", {"include_usage": True}, "stream to be true"),
        ("presence_penalty", 0.5, "not served"),
        ("frequency_penalty", -1, "not served"),
        ("logit_bias", {"3": 100}, "not served"),
        ("tools", [{}], "not served"),
        ("response_format", {"type": "json_object"}, "not served"),
        ("temprature", 1, "did you mean temperature"),
        ("messages", [], "empty list"),
        ("messages", "hi", "a list"),
        ("messages", [{"role": "wizard", "content": "x"}], "one of system"),
        ("messages", [{"role": "user", "content": None}], "messages[0].content"),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ("messages", [{"role": "user", "content": "\ud800"}], "surrogate"),
        ("messages", [{"role": "user", "content": "x", "colour": 1}], "unknown field 'colour'"),
        ("messages", [{"role": "user", "content": "x" * 300}], "context"),
    ],
)
def test_chat__wrong_field__is_named(client: TestClient, field: str, value: Any, word: str) -> None:
    error = refused(client, CHAT, {"messages": HI} | {field: value})
    assert word in json.dumps(error, ensure_ascii=False)
    assert error["type"] == "invalid_request_error"
    assert error["param"] is not None


@pytest.mark.parametrize(
    "prompt", [None, "", [], [[]], ["a", 1], [True], [-1], [257], [10**30], {"text": "a"}, [["a"]], "\udfff"]
)
def test_completions__wrong_prompt__is_refused(client: TestClient, prompt: Any) -> None:
    assert "prompt" in str(refused(client, TEXT, {"prompt": prompt}))


def test_neutral_fields_of_clients__are_taken(client: TestClient) -> None:
    body = {
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}], "name": "b"}],
        "max_tokens": 1,
    }
    body |= {"user": "x", "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "tools": [], "stop": None}
    body |= {"response_format": {"type": "text"}, "metadata": {"a": "b"}, "store": True, "tool_choice": "none"}
    said = client.post(CHAT, json=body)
    assert said.status_code == 200, said.text
    back = said.json()["choices"][0]["message"]
    assert client.post(CHAT, json={"messages": [*HI, back, *HI], "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"[1]", "application/json", 400, "invalid_json"),
        (b'{"n": NaN}', "application/json", 400, "invalid_json"),
        (b'{"n": 1, "n": 2}', "application/json", 400, "invalid_json"),
        (b"\xff\xfe", "application/json", 400, "invalid_json"),
        (b'{"n": ' + b"9" * 5000 + b"}", "application/json", 400, "invalid_json"),
        (b"[" * 200_000, "application/json", 400, "invalid_json"),
        (b"", "application/json", 400, "invalid_json"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b" " * 5_000_000, "application/json; charset=utf-8", 413, "body_too_large"),
    ],
)
def test_body__not_an_object_of_json__is_refused(
    client: TestClient, content: bytes, kind: str, status: int, code: str
) -> None:
    answer = client.post(CHAT, content=content, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_unknown_paths_and_methods__are_told_in_json(client: TestClient) -> None:
    assert client.get("/v2").json()["error"]["message"] == "there is nothing at /v2"
    answer = client.get(CHAT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "http_error"
    assert refused(client, CHAT, {"model": "gpt-4", "messages": HI}, 404)["code"] == "model_not_found"


def test_key__missing_or_wrong__is_401(opening: Any) -> None:
    with opening(key="secret") as client:
        for given in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": "Basic secret"},
            {"Authorization": "Bearer é"},
        ):
            headers = {name: value.encode() for name, value in given.items()}
            answer = client.get("/v1/models", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert client.get("/v1/models", headers={"Authorization": "bearer secret"}).status_code == 200
        assert client.get("/metrics").status_code == 401
        assert [client.get(path).status_code for path in ("/", "/health", "/chat/page.js")] == [200, 200, 200]


def test_pages_of_other_sites__are_refused_unless_named(opening: Any) -> None:
    with opening(origins=["https://lab.example"]) as client:
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert client.get("/v1/models", headers=headers).status_code == 403
        assert client.get("/v1/models", headers={"Host": "evil.example:8000"}).status_code == 421
        allowed = client.get("/v1/models", headers={"Origin": "https://lab.example", "Sec-Fetch-Site": "cross-site"})
        assert allowed.headers["access-control-allow-origin"] == "https://lab.example"
        preflight = {"Origin": "https://lab.example", "Access-Control-Request-Method": "POST"}
        assert client.options(CHAT, headers=preflight).status_code == 200


def test_limits__of_prompt_tokens_and_sequences(opening: Any) -> None:
    limits = ServingLimits(prompt_tokens=8, max_tokens=4, sequences=3)
    with opening(limits=limits) as client:
        assert refused(client, TEXT, {"prompt": "123456789"})["code"] == "context_length_exceeded"
        assert "at most 4" in refused(client, TEXT, {"prompt": "a", "max_tokens": 5})["message"]
        assert "at most 3" in refused(client, TEXT, {"prompt": ["a", "b"], "n": 2})["message"]
        answer = client.post(TEXT, json={"prompt": "a"}).json()
        assert answer["usage"]["completion_tokens"] == 4


def test_failed_steps__are_500_and_the_next_request_succeeds(opening: Any) -> None:
    model = scripted_model()
    with opening(model) as client:
        model.engine.backend.fail = GeneratorError("the adder broke")
        error = refused(client, TEXT, {"prompt": "a"}, 500)
        assert (error["type"], error["message"]) == ("server_error", "the adder broke")
        model.engine.backend.fail = None
        assert client.post(TEXT, json={"prompt": "a"}).status_code == 200


def test_step_that_nobody_foresaw__is_500_without_its_words_and_then_503(
    opening: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted_model()

    def broken() -> list[Any]:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(model.engine, "step", broken)
    with opening(model) as client:
        error = refused(client, TEXT, {"prompt": "a"}, 500)
        assert (error["code"], "secret" in error["message"]) == ("internal_error", False)
        while client.get("/health").status_code == 200:
            client.post(TEXT, json={"prompt": "a"})
        assert client.get("/health").json()["status"] == "failed"
        assert refused(client, TEXT, {"prompt": "a"}, 503)["code"] == "generator_failed"


def test_stopping__new_requests_are_503(opening: Any) -> None:
    with opening() as client:
        client.worker.stop_accepting()
        answer = client.post(TEXT, json={"prompt": "a"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/health").json()["status"] == "stopping"


def test_request_that_takes_too_long__is_504_and_leaves_nothing(opening: Any) -> None:
    model = scripted_model(step_seconds=0.02)
    with opening(model, ServingLimits(request_seconds=0.1)) as client:
        assert refused(client, TEXT, {"prompt": "a", "max_tokens": 100}, 504)["code"] == "timeout"
        answer = client.post(TEXT, json={"prompt": "a", "max_tokens": 100, "stream": True})
        assert answer.status_code == 200
        last = json.loads(answer.text.strip().split("\n\n")[-1].removeprefix("data: "))
        assert last["error"]["code"] == "timeout"
        while model.engine.has_work:
            pass
        assert model.engine.num_running == 0


def test_metrics__count_requests_tokens_and_cycles(opening: Any) -> None:
    with opening() as client:
        client.post(TEXT, json={"prompt": "abc", "max_tokens": 5})
        client.get("/strange/path")
        lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert lines['abele_requests_total{route="/v1/completions",code="200"}'] == "1"
    assert lines['abele_requests_total{route="none",code="404"}'] == "1"
    assert (lines["abele_prompt_tokens_total"], lines["abele_generated_tokens_total"]) == ("3", "5")
    assert int(lines["abele_modelled_cycles_total"]) == 5 * 1850 + 200
    assert lines['abele_first_token_seconds_bucket{le="+Inf"}'] == lines["abele_first_token_seconds_count"] == "1"
