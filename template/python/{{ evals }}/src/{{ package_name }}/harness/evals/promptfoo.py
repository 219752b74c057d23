"""Converts cases for promptfoo, which has a viewer and a red team."""

from typing import Any
from uuid import uuid4

from .cases import Case

HEAD = {
    "description": "The cases in evals/, sent to POST /invocations of a running server.",
    "prompts": ["{{prompt}}"],
    "providers": [
        {
            "id": "http",
            "config": {
                "url": "http://127.0.0.1:8080/invocations",
                "method": "POST",
                "headers": {
                    "Accept": "application/json",
                    "Content-Type": "application/json",
                    "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "{{conversation}}",
                },
                "body": {"prompt": "{{prompt}}"},
                "transformResponse": "json.reply",
            },
        }
    ],
}


def config(cases: list[Case]) -> dict[str, Any]:
    """Return the configuration; each turn is a test in the session of its case."""
    tests: list[dict[str, Any]] = []
    run = uuid4().hex[:8]  # earlier files used other sessions
    for case in cases:
        for number, turn in enumerate(case.data.get("turns", []), 1):
            expect = turn.get("expect", {})
            reply = expect.get("reply", {})
            checks = [{"type": "contains", "value": it} for it in reply.get("contains", [])]
            checks += [{"type": "not-contains", "value": it} for it in reply.get("lacks", [])]
            if "matches" in reply:
                checks.append({"type": "regex", "value": reply["matches"]})
            if "schema" in reply:
                checks.append({"type": "is-json", "value": reply["schema"]})
            if "judge" in expect:
                checks.append({"type": "llm-rubric", "value": expect["judge"]})
            values = {"prompt": turn["prompt"], "conversation": f"{case.name}-{run}"}
            about = f"{case.name}, turn {number}"
            tests.append({"description": about, "vars": values, "assert": checks})
    return {**HEAD, "tests": tests}
