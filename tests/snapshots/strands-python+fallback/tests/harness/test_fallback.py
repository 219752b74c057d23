"""The fallback model answers if the first model fails before its first content."""

import logging
from typing import Any

import pytest
from client import Client, app
from script import Answer, Fail, Reply
from scripted_model import ScriptedModel

from my_agent.harness.contract import AgentError
from my_agent.harness.fallback.capability import Fallback
from my_agent.harness.fallback.settings import (
    FallbackSettings,
)

DOWN = Fail(ConnectionRefusedError("a secret"))


def client_of(first: Answer, second: Answer) -> tuple[Client, ScriptedModel]:
    """Return a client of an agent with two scripted models, and the fallback model."""
    client = Client(first, model_fallback="second")
    fallback_model = ScriptedModel([second])
    Fallback.find(client.runtime.capabilities).model = fallback_model
    return client, fallback_model


async def test_the_fallback_model_answers_if_the_first_model_is_down() -> None:
    client, second_model = client_of(DOWN, Reply("Second."))
    response = await client.say("Hello")
    assert response.reply == "Second."
    assert response.body["model"] == "second"
    assert second_model.requests == [["user: Hello"]]


async def test_the_log_names_the_fallback_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    client, _ = client_of(DOWN, Reply("Second."))
    await client.say()
    assert "outcome=committed" in caplog.text
    assert "model=second" in caplog.text
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "ConnectionRefusedError" in warning.message
    assert "secret" not in warning.message


async def test_the_next_request_goes_to_the_first_model_again() -> None:
    client, second_model = client_of(DOWN, Reply("Second."))
    await client.say("Hello", session="s")
    response = await client.say("More", session="s")
    assert response.reply == "ok"
    assert response.body["model"] == "offline"
    assert client.model.requests[-1] == ["user: Hello", "assistant: Second.", "user: More"]
    assert len(second_model.requests) == 1


@pytest.mark.parametrize(
    ("error", "type"),
    [(ValueError("wrong"), "model_failed"), (AgentError("reply_incomplete"), "reply_incomplete")],
)
async def test_another_failure_ends_the_turn(error: Exception, type: str) -> None:
    client, second_model = client_of(Fail(error), Reply("Second."))
    assert (await client.say()).error == type
    assert second_model.requests == []


async def test_a_failure_after_the_first_text_ends_the_turn() -> None:
    client, second_model = client_of([Reply("Well, "), DOWN], Reply("Second."))
    assert (await client.say()).error == "model_failed"
    assert second_model.requests == []


async def test_if_both_models_are_down_the_turn_fails() -> None:
    client, second_model = client_of(DOWN, DOWN)
    assert (await client.say()).error == "model_failed"
    assert len(second_model.requests) == 1


def severities_for(**settings: Any) -> list[str]:
    """Return the severities of the findings of `check` for these settings."""
    findings = Fallback(FallbackSettings(**settings), [], app.load).check()
    return [finding["severity"] for finding in findings]


def test_check_accepts_two_models() -> None:
    assert severities_for(model="first", model_fallback="second") == []


def test_check_warns_without_a_fallback_model() -> None:
    assert severities_for(model="first", model_fallback="") == ["warning"]


def test_check_refuses_the_same_model_twice() -> None:
    assert severities_for(model="first", model_fallback="first") == ["error"]


def test_check_refuses_a_fallback_for_the_offline_model() -> None:
    assert severities_for(model="offline", model_fallback="second") == ["error"]


def test_check_warns_if_a_turn_ends_before_its_fallback() -> None:
    settings = FallbackSettings(model="a", model_fallback="b", turn_timeout_seconds=120)
    [finding] = Fallback(settings, [], app.load).check()
    assert finding["id"] == "SET-FALLBACK_SECONDS"
    assert finding["severity"] == "warning"


def test_the_offline_model_cannot_be_the_fallback_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_FALLBACK", "offline")
    _, findings = FallbackSettings.read()
    assert [finding["id"] for finding in findings] == ["SET-MODEL_FALLBACK"]
