"""An agent whose tools call a service that counts the calls."""

import json
import os
import urllib.error
import urllib.request
from asyncio import to_thread
from typing import Any

import ai

from .harness.effects import Effect, after_commit, once

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
COUNTER = os.environ.get("COUNTER", "")


def send(effect: Effect, name: str) -> str:
    """Count a call at the service."""
    body = json.dumps({"key": effect.key, "name": name}).encode()
    with urllib.request.urlopen(f"{COUNTER}/calls", body, timeout=60) as response:
        return str(json.load(response)["result"])


def find(key: str) -> str | None:
    """Return the result of a call that the service has counted."""
    try:
        with urllib.request.urlopen(f"{COUNTER}/calls/{key}", timeout=20) as response:
            return str(json.load(response)["result"])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


async def reconcile(key: str) -> str | None:
    return await to_thread(find, key)


@ai.tool
@after_commit
async def notify(name: str, effect: Effect) -> str:
    """Send a notification."""
    return await to_thread(send, effect, name)


@ai.tool(require_approval=True)
@after_commit
async def notify_if_approved(name: str, effect: Effect) -> str:
    """Send a notification that a person approves."""
    return await to_thread(send, effect, name)


@ai.tool
@once(reconcile=reconcile)
async def pay(name: str, effect: Effect) -> str:
    """Pay, and find an earlier payment."""
    return await to_thread(send, effect, name)


@ai.tool
@once
async def pay_blindly(name: str, effect: Effect) -> str:
    """Pay, without a way to find an earlier payment."""
    return await to_thread(send, effect, name)


@ai.tool(require_approval=True)
@once
async def pay_if_approved(name: str, effect: Effect) -> str:
    """Pay if a person approves."""
    return await to_thread(send, effect, name)


TOOLS: list[Any] = [notify, notify_if_approved, pay, pay_blindly, pay_if_approved]
