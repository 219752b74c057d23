"""A capability that replaces tools, and offline the model, in the turns of cases."""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..capability import Capability
from ..contract import Turn, TurnRequest
from .adapter import names_of, scripted_model, stub_tool
from .expect import fits


@dataclass(frozen=True)
class EvalRequest(TurnRequest):
    """A request for a turn of a case; errors of its stubs are added to `failures`."""

    case: dict[str, Any] = field(default_factory=dict, repr=False)
    case_turn: dict[str, Any] = field(default_factory=dict, repr=False)
    failures: list[str] = field(default_factory=list, repr=False)


class Stubs(Capability):
    """Prepares the turns of cases; does not change other turns."""

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        if isinstance(turn.request, EvalRequest):
            self._prepare(turn.request, options)

    def _prepare(self, request: EvalRequest, options: dict[str, Any]) -> None:
        stubs: dict[str, Any] = request.case.get("tools", {})
        failures = request.failures
        for name in stubs.keys() - names_of(options["tools"]):
            tools = ", ".join(sorted(names_of(options["tools"]))) or "none"
            failures.append(f"the agent has no tool {name}; its tools: {tools}")
        options["tools"] = [
            stub_tool(tool, partial(_answer, name, stubs[name], failures))
            if name in stubs
            else tool
            for tool in options["tools"]
            for name in names_of([tool])
        ]
        if self.settings.model == "offline" and "offline" in request.case_turn:
            options["model"] = scripted_model(request.case_turn["offline"])


async def _answer(
    name: str, stubs: list[dict[str, Any]], failures: list[str], arguments: dict[str, Any]
) -> str:
    for stub in stubs:
        if fits(stub.get("input", {}), arguments):
            if "error" in stub:
                raise RuntimeError(stub["error"])
            answer = stub.get("answer", "")
            return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    text = json.dumps(arguments, ensure_ascii=False)[:200]
    failure = f"`tools` has no answer of {name} for {text}"
    failures.append(failure)
    raise RuntimeError(failure)
