"""Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset."""

import os
from typing import Any

from strands.models import Model
from strands.models.openai import OpenAIModel
from strands.types.streaming import StreamEvent

from .offline_model import OfflineModel
from .settings import Settings, diagnostic


REASONS = {"stop", "tool_calls", "length", "content_filter"}


class ChatModel(OpenAIModel):
    """OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and others serve them."""

    def format_chunk(self, event: dict[str, Any], **kwargs: Any) -> StreamEvent:
        # The base class takes for a good end: a stream that just stops, and an unknown reason.
        if event["chunk_type"] == "message_stop" and event["data"] == "end_turn":
            raise ConnectionError("the stream ended without a finish reason")
        if event["chunk_type"] == "message_stop" and event["data"] not in REASONS:
            return {"messageStop": {"stopReason": event["data"]}}
        return super().format_chunk(event, **kwargs)


def build_model(settings: Settings) -> Model:
    """The model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    # A server of your own may want no key, but the client insists on one.
    return ChatModel(
        client_args={"api_key": os.environ.get("OPENAI_API_KEY") or "none"},
        model_id=settings.model,
    )


def check_model(settings: Settings) -> list[dict[str, Any]]:
    """What keeps this model from answering, as far as the environment can tell."""
    known = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")
    if settings.model == "offline" or known:
        return []
    hint = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own: MODEL needs it."
    return [diagnostic("SET-OPENAI_API_KEY", hint)]


def model_endpoint(settings: Settings) -> str:
    """Where the model is reached."""
    return os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
