"""Renders with approvals and a page, whose agents have a tool that needs an approval."""

from dataclasses import replace
from pathlib import Path

from hooks.rendering import render
from hooks.variants import answers_of
from tests.conformance.targets import Target
from tests.installed import ROOT, environment, link_environment

AGENTS = {
    "strands-python": """

@tool
def delete_order(order_id: str) -> str:
    \"\"\"Delete an order.\"\"\"
    print(f"<<ran {order_id}>>", flush=True)
    return f"deleted {order_id}"


TOOLS.append(delete_order)
from strands.vended_interventions.hitl import HumanInTheLoop

INTERVENTIONS = [HumanInTheLoop(allowed_tools=["*", "!delete_order"])]
""",
    "vercel-python": """

@ai.tool(require_approval=True)
async def delete_order(order_id: str) -> str:
    \"\"\"Delete an order.\"\"\"
    print(f"<<ran {order_id}>>", flush=True)
    return f"deleted {order_id}"


TOOLS.append(delete_order)
""",
    "strands-typescript": """
import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'

const deleteOrder = tool({
  name: 'delete_order',
  description: 'Delete an order.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: ({ order_id }) => {
    console.log(`<<ran ${order_id}>>`)
    return `deleted ${order_id}`
  },
})
TOOLS.push(deleteOrder as never)
export const INTERVENTIONS = [new HumanInTheLoop({ allowedTools: ['*', '!delete_order'] })]
""",
    "vercel-typescript": """
const deleteOrder = tool({
  description: 'Delete an order.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: ({ order_id }) => {
    console.log(`<<ran ${order_id}>>`)
    return `deleted ${order_id}`
  },
})
Object.assign(TOOLS, { delete_order: deleteOrder })
export const TOOL_APPROVAL = { delete_order: 'user-approval' }
""",
}


def gated(target: Target, folder: Path, *extras: str) -> Target:
    """The target with approvals, extras, and the tool `delete_order`, which prints its input."""
    project = folder / "my-agent"
    answers = {"model": "openai-compatible", "extras": ["approval", *extras]}
    render(ROOT, answers_of(target.name) | answers, project)
    link_environment(project, environment(target.name))
    agent = project / "src" / ("agent.ts" if target.is_node else "my_agent/agent.py")
    agent.write_text(agent.read_text() + AGENTS[target.name])
    return replace(target, command=lambda _: target.command(project))
