"""Keeps fields of tool calls in the gateway's protocol that the AI SDK drops."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import ai
from ai.providers.ai_gateway.client.errors import GatewayError, create_gateway_error

STATUSES = {
    "authentication_error": 401,
    "internal_server_error": 500,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "timeout_error": 408,
}
METADATA_KEY = "call"  # in `provider_metadata`


class GatewayCalls:
    """Wraps the gateway's client for a request, and keeps the options of calls.

    Gemini signs its calls in these options, and requires the signatures back.
    """

    def __init__(self, client: Any, messages: Sequence[ai.messages.Message]) -> None:
        self._client = client
        self._messages = messages
        self._metadata: dict[str, Any] = {}  # by call id
        self._redacted: dict[str, Any] = {}  # by block id
        self._empty: set[str] = set()  # calls without arguments so far

    def stream(self, path: str, body: dict[str, Any], **options: Any) -> Any:
        """Send a request with the options of earlier calls."""
        calls = [call for message in self._messages for call in message.tool_calls]
        known = {
            call.tool_call_id: (call.provider_metadata or {}).get(METADATA_KEY) for call in calls
        }
        for message in body["prompt"]:
            for part in message["content"] if message["role"] == "assistant" else []:
                if part["type"] == "tool-call" and (metadata := known.get(part["toolCallId"])):
                    part["providerOptions"] = metadata
        return self._client.stream(path, body, **options)

    async def iter_sse(self, response: Any) -> AsyncGenerator[dict[str, Any]]:
        """Yield the parts of an answer, with the parts that the AI SDK needs in addition."""
        async for part in self._client.iter_sse(response):
            for complete in self._read(part):
                yield complete

    def signed_ends(self) -> Iterator[ai.events.Event]:
        """Yield the ends of calls again, with their options as metadata."""
        for id, metadata in self._metadata.items():
            yield ai.events.ToolEnd(
                tool_call_id=id,
                tool_call=ai.messages.DUMMY_TOOL_CALL,
                provider_metadata={METADATA_KEY: metadata},
            )

    def _read(self, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = part.get("type", "")
        metadata = part.get("providerMetadata")
        if kind == "error":
            raise failure(part.get("error"))
        if kind in {"tool-call", "tool-input-start", "tool-input-delta", "tool-input-end"}:
            name = "toolCallId" if kind == "tool-call" else "id"
            id = part[name] = str(part.get(name) or "")
            part |= {"toolName": str(part.get("toolName") or "")}
            if metadata:
                self._metadata[id] = metadata
            if kind == "tool-input-start":
                self._empty.add(id)
            elif kind == "tool-input-delta" and part.get("delta"):
                self._empty.discard(id)
            elif kind == "tool-call" and id in self._empty:
                self._empty.discard(id)
                value = part.get("input", "")
                text = value if isinstance(value, str) else json.dumps(value)
                yield {"type": "tool-input-delta", "id": id, "delta": text}
        elif kind == "reasoning-start" and metadata:
            self._redacted[part.get("id", "")] = {
                vendor: values
                for vendor, values in metadata.items()
                if isinstance(values, dict) and "redactedData" in values
            }
        elif kind == "reasoning-end" and not metadata:
            part["providerMetadata"] = self._redacted.get(part.get("id", "")) or None
        yield part


def failure(error: Any) -> GatewayError:
    """Convert an error in a stream to the error of the equivalent HTTP status."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    status = fields.get("statusCode")
    if not isinstance(status, int):
        status = STATUSES.get(str(fields.get("type")), 502)
    body = {"error": {**fields, "message": str(fields.get("message", ""))}}
    return create_gateway_error(response_body=body, status_code=status)
