"""The AI SDK for TypeScript gets the JSON Schema of a tool, and does not make it for each call."""

import subprocess

import pytest

from tests.installed import NODE, installed

pytestmark = pytest.mark.slow
SCRIPT = """
import { jsonSchema, streamText } from 'ai'
const { mergeTools } = await import(process.argv[1])
const { OfflineModel } = await import(process.argv[2])
let made = 0
const schema = { type: 'object', properties: {} }
const inputSchema = () => jsonSchema(() => (made++, schema))
const own = { mine: { inputSchema, execute: () => 1 } }
for (const answer of [1, 2]) {
  own.mine.execute = () => answer
  const tools = mergeTools(own, [['added', { inputSchema, execute: () => 0 }]])
  if (tools.mine.execute() !== answer) throw new Error('an execute of before')
  await streamText({ model: new OfflineModel(), prompt: 'Hello.', tools }).consumeStream()
}
if (made !== 1) throw new Error(`made ${made} times`)
"""


def test_it_is_made_once_and_the_tool_may_change() -> None:
    project = installed("vercel-typescript")
    modules = [(project / "src" / name).as_uri() for name in ("turn.ts", "offline_model.ts")]
    command = [str(NODE), "--input-type=module", "-e", SCRIPT, *modules]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
