"""A second model answers a call that the first one fails before its first content."""

import json
import logging
from typing import Any
from unittest.mock import patch

import pytest
from client import JSON, POST, SESSION, Client
from conftest import ScriptedModel
from down import DownModel

from app.contract import AgentError
from app.fallback.capability import Fallback
from app.fallback.settings import FallbackSettings

IS_DOWN = ConnectionRefusedError("a secret")


async def ask(client: Client, prompt: str) -> Any:
    body = json.dumps({"prompt": prompt}).encode()
    _, _, text = await client.send(POST, {**JSON, SESSION: "s"}, body)
    return json.loads(text)


def client_of(first: Any, *script: Any) -> tuple[Client, ScriptedModel]:
    """A client of an agent with two models, and the second one, which plays a script."""
    client = Client(model_fallback="second")
    client.runtime.model, second = first, ScriptedModel(script)
    fallback = Fallback.find(client.runtime.capabilities)
    fallback.model = second  # in place of the one that it would make
    return client, second


async def test_the_second_model_answers_one_call(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    first = DownModel(IS_DOWN)
    client, second = client_of(first, ["Second."])
    assert (await ask(client, "1"))["reply"] == "Second."
    assert "outcome=committed" in caplog.text and "detail=answered by second" in caplog.text
    why = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(why) == 1 and "ConnectionRefusedError" in why[0] and "secret" not in why[0]
    assert 'Earlier you said: "1"' in (await ask(client, "2"))["reply"]
    assert (first.calls, second.calls) == (2, ["1"])


@pytest.mark.parametrize("error", [ValueError("wrong"), AgentError("reply_incomplete")])
async def test_other_failures_end_the_turn(error: Exception) -> None:
    client, second = client_of(DownModel(error), ["Second."])
    assert (await ask(client, "1"))["error"]["type"] in {"model_failed", "reply_incomplete"}
    assert second.calls == []


async def test_after_its_first_text_the_first_model_is_not_replaced() -> None:
    client, second = client_of(ScriptedModel([["Well, ", IS_DOWN]]), ["Second."])
    assert (await ask(client, "1"))["error"]["type"] == "model_failed"
    assert second.calls == []


async def test_both_models_may_fail() -> None:
    client, second = client_of(DownModel(IS_DOWN), [IS_DOWN])
    assert (await ask(client, "1"))["error"]["type"] == "model_failed"
    assert len(second.calls) == 1


@pytest.mark.parametrize(
    ("first", "second", "severities"),
    [("a", "b", []), ("a", "", ["warning"]), ("a", "a", ["error"]), ("offline", "b", ["error"])],
)
def test_check_wants_two_models(first: str, second: str, severities: list[str]) -> None:
    fallback = Fallback(FallbackSettings(model=first, model_fallback=second), [])
    assert [finding["severity"] for finding in fallback.check()] == severities


def test_check_warns_if_a_turn_ends_before_the_second_model_is_asked() -> None:
    settings = FallbackSettings(model="a", model_fallback="b", turn_timeout_seconds=120)
    (finding,) = Fallback(settings, []).check()
    assert (finding["id"], finding["severity"]) == ("SET-FALLBACK_SECONDS", "warning")


def test_the_offline_model_is_no_second_model() -> None:
    with patch.dict("os.environ", MODEL_FALLBACK="offline"):
        _, findings = FallbackSettings.read()
    assert [finding["id"] for finding in findings] == ["SET-MODEL_FALLBACK"]
