"""What a provider may send in one turn, through Bedrock, whose wire has messages and no lines."""

from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import assert_failed
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call
from tests.conformance.test_sizes import MEGABYTE, sent_much

pytestmark = pytest.mark.slow
MOST_MEGABYTES = 1000  # of the process; one message is held several times
VENDOR_TARGETS = [one for one in targets.VENDOR_TARGETS if "-bedrock" in one.name]


def is_sample(test: str, parameters: dict[str, Any]) -> bool:  # noqa: ARG001
    """The usual run sends text to one target in Python, and arguments to one in TypeScript."""
    is_text = isinstance(parameters["step"][0], str)
    name = parameters["target"].name
    return bool(name.startswith("strands-python" if is_text else "vercel-typescript"))


@pytest.mark.parametrize(
    "step",
    [["x" * (100 * MEGABYTE)], [Call("word_count", raw="x" * (32 * MEGABYTE))]],
    ids=["100 MB in one message", "arguments of 32 MB"],
)
def test_much_from_bedrock_takes_no_process_down(
    fleet: Fleet, provider: Provider, step: Any
) -> None:
    chat, reply, peak = sent_much(fleet, provider, step)
    # botocore reads no message of over 24 MB; the SDK in TypeScript takes any.
    is_refused = "python" in fleet.target.name and isinstance(step[0], str)
    error = "model_failed" if is_refused else "reply_incomplete"
    assert_failed(reply, 502, error, chat.session)
    assert peak < MOST_MEGABYTES
