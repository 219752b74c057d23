"""A specialist agent, which the order desk asks by a tool."""

from strands import Agent, tool

from .harness import current_turn, read_settings
from .model import build_model

PROMPT = "You are a potter. Answer questions about tea and pots in two sentences."


@tool
async def ask_potter(question: str) -> str:
    """Ask a potter, for example how to care for a teapot.

    Args:
        question: The question, with all that the potter has to know.
    """
    settings, _ = read_settings()
    potter = Agent(build_model(settings), system_prompt=PROMPT, callback_handler=None)
    result = await potter.invoke_async(question)
    # The tokens count in the usage of the turn, and in the limits of the customer.
    usage = result.metrics.accumulated_usage
    current_turn().charge(input_tokens=usage["inputTokens"], output_tokens=usage["outputTokens"])
    return str(result)
