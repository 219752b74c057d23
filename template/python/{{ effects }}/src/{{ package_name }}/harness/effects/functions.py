"""The decorators of effects, and the functions that they register."""

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_type_hints, overload

import click

if TYPE_CHECKING:  # importing pydantic takes 0.1 s
    from pydantic import TypeAdapter

    from .calls import TurnCalls

AsyncFunction = Callable[..., Awaitable[Any]]
Tool = Callable[..., Coroutine[Any, Any, Any]]
Reconcile = Callable[[str], Awaitable[Any]]
Kind = Literal["after_commit", "once"]

IN_TURN: ContextVar["TurnCalls"] = ContextVar("IN_TURN")


@dataclass(frozen=True)
class Effect:
    """A call of an effect. Send `key` to the receiver: each try of the call has the same key."""

    key: str
    session_id: str
    actor: str | None
    turn: int


class Rejected(Exception):
    """The receiver rejected the call, so it had no effect. The model gets the message."""


class EffectFunction:
    """A decorated function and its parameters."""

    def __init__(self, function: AsyncFunction, kind: Kind, reconcile: Reconcile | None) -> None:
        """Raises ClickException for a function that cannot be an effect."""
        self.name = function.__name__
        self.kind = kind
        self.reconcile = reconcile
        self.function = function
        for part in (function, reconcile):
            if part is not None and not inspect.iscoroutinefunction(part):
                name = getattr(part, "__name__", str(part))
                raise click.ClickException(f"{name} is not async: define it with `async def`.")
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                message = f"{self.name} has the parameter {parameter}: give each argument a name."
                raise click.ClickException(message)
        self.effect_names = [it.name for it in parameters if it.annotation in (Effect, "Effect")]
        shown = [it for it in parameters if it.name not in self.effect_names]
        self.signature = signature.replace(parameters=shown)

    @property
    def place(self) -> tuple[str, str]:
        """The module and the qualified name of the function."""
        return self.function.__module__, self.function.__qualname__

    @functools.cached_property
    def adapters(self) -> "dict[str, TypeAdapter[Any]]":
        """The types of the parameters by name, without the Effect."""
        from pydantic import TypeAdapter

        hints = get_type_hints(self.function, include_extras=True)
        return {name: TypeAdapter(hints.get(name, Any)) for name in self.signature.parameters}

    def serialize(self, args: tuple[Any, ...], values: dict[str, Any]) -> str:
        """Return the arguments as canonical JSON. Raises ValueError if that loses something."""
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        bound = self.signature.bind(*args, **values)
        bound.apply_defaults()
        try:
            text = canonical(to_jsonable_python(bound.arguments))
            self.parse(json.loads(text))
        except (PydanticSerializationError, ValueError, RecursionError):
            message = f"The arguments of {self.name} cannot be saved as JSON, so it did not run."
            raise ValueError(message) from None
        return text

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return recorded arguments for a call. Raises ValueError if the signature has changed."""
        unknown = arguments.keys() - self.adapters.keys()
        required = {
            name
            for name, parameter in self.signature.parameters.items()
            if parameter.default is parameter.empty
        }
        if unknown or not required <= arguments.keys():
            raise ValueError("the parameters have changed")
        return {
            name: self.adapters[name].validate_json(json.dumps(value))
            for name, value in arguments.items()
        }

    async def run(self, effect: Effect, arguments: dict[str, Any]) -> Any:
        """Call the function with recorded arguments."""
        return await self.function(
            **self.parse(arguments), **dict.fromkeys(self.effect_names, effect)
        )


FUNCTIONS: dict[str, EffectFunction] = {}


def canonical(value: Any) -> str:
    """Return JSON with sorted keys. Raises ValueError for NaN and infinity."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def after_commit(function: AsyncFunction) -> Tool:
    """Run the function after the turn is saved, with retries; the model gets "scheduled".

    Put this decorator below the framework's decorator of tools. The function is async. A parameter
    of type Effect receives the key. Raise Rejected to fail without a retry.
    """
    return _register(EffectFunction(function, "after_commit", None))


@overload
def once(function: AsyncFunction) -> Tool: ...


@overload
def once(*, reconcile: Reconcile) -> Callable[[AsyncFunction], Tool]: ...


def once(
    function: AsyncFunction | None = None, *, reconcile: Reconcile | None = None
) -> Tool | Callable[[AsyncFunction], Tool]:
    """Run the function in the turn; a repetition of the turn gets the recorded result.

    Put this decorator below the framework's decorator of tools. The function is async. A parameter
    of type Effect receives the key. Raise Rejected if the receiver rejected the call: any other
    error means that the outcome is unknown. Then `reconcile(key)` asks the receiver: it returns the
    result, or None if the call had no effect and never will have, or raises.
    """
    if function is None:
        return lambda decorated: _register(EffectFunction(decorated, "once", reconcile))
    return _register(EffectFunction(function, "once", reconcile))


def _register(function: EffectFunction) -> Tool:
    other = FUNCTIONS.get(function.name, function)
    if other.place != function.place:
        places = f"{other.place[0]} and {function.place[0]}"
        raise click.ClickException(f"Two effects have the name {function.name} ({places}).")
    FUNCTIONS[function.name] = function

    @functools.wraps(function.function)
    async def tool(*args: Any, **values: Any) -> Any:
        calls = IN_TURN.get(None)
        if calls is None:
            raise LookupError(f"{function.name} was called outside a turn: let the model call it.")
        arguments = function.serialize(args, values)
        if function.kind == "once":
            return await calls.run_once(function, arguments)
        return await calls.schedule(function, arguments)

    hints = {
        name: hint
        for name, hint in function.function.__annotations__.items()
        if name not in function.effect_names
    }
    if function.kind == "after_commit":
        hints["return"] = str
    tool.__annotations__ = hints
    tool.__signature__ = function.signature  # type: ignore[attr-defined]
    return tool
