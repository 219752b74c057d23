"""Gives the turns of cases their tools, and offline their model, as a capability."""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..capability import Capability
from ..contract import Turn, TurnRequest
from .adapter import names_of, scripted, stubbed
from .expect import fits


@dataclass(frozen=True)
class EvalRequest(TurnRequest):
    """A turn of a case: the step of it, and where to add problems."""

    case: dict[str, Any] = field(default_factory=dict, repr=False)
    step: dict[str, Any] = field(default_factory=dict, repr=False)
    problems: list[str] = field(default_factory=list, repr=False)


class Stubs(Capability):
    """Reads a case and its step from the request of a turn; other turns stay as they are."""

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        if isinstance(turn.request, EvalRequest):
            self._prepare(turn.request, options)

    def _prepare(self, request: EvalRequest, options: dict[str, Any]) -> None:
        stubs: dict[str, Any] = request.case.get("tools", {})
        problems = request.problems
        for name in stubs.keys() - names_of(options["tools"]):
            tools = ", ".join(sorted(names_of(options["tools"]))) or "none"
            problems.append(f"there is no tool {name}; the agent has {tools}")
        options["tools"] = [
            stubbed(tool, partial(_answer, name, stubs[name], problems)) if name in stubs else tool
            for tool in options["tools"]
            for name in names_of([tool])
        ]
        if self.settings.model == "offline" and "offline" in request.step:
            options["model"] = scripted(request.step["offline"])


async def _answer(
    name: str, stubs: list[dict[str, Any]], problems: list[str], given: dict[str, Any]
) -> str:
    for stub in stubs:
        if fits(stub.get("input", {}), given):
            if "error" in stub:
                raise RuntimeError(stub["error"])
            answer = stub.get("answer", "")
            return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    what = f"no answer of {name} is for {json.dumps(given, ensure_ascii=False)[:200]}"
    problems.append(what)
    raise RuntimeError(what)
