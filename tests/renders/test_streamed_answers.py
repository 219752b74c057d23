"""Answers that vercel-typescript reads from their streams are those that `streamText` reads."""

import json
import subprocess
from typing import Any

import pytest

from tests.installed import NODE, clean_environment, installed

pytestmark = pytest.mark.slow

USAGE = {
    "inputTokens": {"total": 7, "noCache": 5, "cacheRead": 2, "cacheWrite": 0},
    "outputTokens": {"total": 3, "text": 2, "reasoning": 1},
}
STOP, CALLS = ({"unified": "stop", "raw": "end"}, {"unified": "tool-calls", "raw": "tools"})
SIGNED, OTHER = ({"vendor": {"signature": "abc"}}, {"vendor": {"id": "2"}})
CALL = {"type": "tool-call", "toolCallId": "c1", "toolName": "count", "input": '{"text":"a b"}'}
TEXT = [
    {"type": "text-start", "id": "1"},
    {"type": "text-delta", "id": "1", "delta": "Well, "},
    {"type": "text-delta", "id": "1", "delta": "done."},
    {"type": "text-end", "id": "1"},
]


def finish(reason: object = STOP, **more: object) -> dict[str, Any]:
    return {"type": "finish", "finishReason": reason, "usage": USAGE, **more}


Part = dict[str, Any]
# For each name the answers of one turn, each as its parts.
TURNS: dict[str, list[list[Part]]] = {
    "text": [[*TEXT, finish()]],
    "blocks that overlap": [
        [
            {"type": "stream-start", "warnings": []},
            {"type": "response-metadata", "id": "r1", "modelId": "m1"},
            {"type": "reasoning-start", "id": "1"},
            {"type": "text-start", "id": "1", "providerMetadata": OTHER},
            {"type": "reasoning-delta", "id": "1", "delta": "Hm, "},
            {"type": "text-delta", "id": "1", "delta": "Yes"},
            {"type": "reasoning-delta", "id": "1", "delta": "yes."},
            {"type": "reasoning-end", "id": "1", "providerMetadata": SIGNED},
            {"type": "text-end", "id": "1"},
            *TEXT,  # the id of a block that has ended
            finish(providerMetadata=OTHER),
        ]
    ],
    "files and sources": [
        [
            {"type": "source", "sourceType": "url", "id": "s", "url": "https://a.b", "title": "A"},
            {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": "iVBO"}},
            *TEXT,
            finish(),
        ]
    ],
    "calls of tools": [
        [
            *TEXT,
            {"type": "tool-input-start", "id": "c1", "toolName": "count"},
            {"type": "tool-input-delta", "id": "c1", "delta": CALL["input"]},
            {"type": "tool-input-end", "id": "c1"},
            {**CALL, "providerMetadata": SIGNED},
            {**CALL, "toolCallId": "c2", "toolName": "fails"},
            {**CALL, "toolCallId": "c3", "toolName": "unknown"},
            {**CALL, "toolCallId": "c4", "input": '{"wrong":1}'},
            finish(CALLS),
        ],
        [*TEXT, finish()],
    ],
    "a tool of the provider": [
        [
            {**CALL, "toolName": "search", "providerExecuted": True, "dynamic": True},
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "toolName": "search",
                "result": {"found": 1},
                "dynamic": True,
            },
            *TEXT,
            finish(),
        ]
    ],
    "a call that needs an approval": [
        [{**CALL, "toolName": "ask"}, finish(CALLS)],
    ],
}
BREAKS: dict[str, list[Part]] = {
    "no end": [*TEXT, CALL],
    "an end of no kind": [*TEXT, CALL, finish({"unified": "other"})],
    "an end that failed": [*TEXT, CALL, finish({"unified": "error", "raw": "error"})],
    "an error in front of an end": [
        *TEXT,
        CALL,
        {"type": "error", "error": {"error": {"message": "secret", "code": 429}}},
        finish(CALLS),
    ],
    "a server that is overloaded": [{"type": "error", "error": {"message": "Overloaded"}}],
    "an error": [*TEXT, CALL, {"type": "error", "error": {"message": "secret", "status": 503}}],
}
DETAILS = {
    "an error": "StreamProviderError (HTTP 503)",
    "an error in front of an end": "StreamProviderError (HTTP 429)",
    "a server that is overloaded": "StreamProviderError (HTTP 503)",
}
SCRIPT = """
import { generateText, isStepCount, jsonSchema, streamText } from 'ai'
const { streaming } = await import(process.argv[1])
const { turn: answers, way } = JSON.parse(process.argv[2])
const runs = []
let calls = 0
const doStream = async () => ({ stream: ReadableStream.from(answers[calls++]) })
const named = { specificationVersion: 'v4', provider: 'p', modelId: 'm', supportedUrls: {} }
const model = { ...named, doStream }
const properties = { text: { type: 'string' } }
const validate = (value) =>
  'text' in value ? { success: true, value } : { success: false, error: new Error('no text') }
const inputSchema = jsonSchema({ type: 'object', properties }, { validate })
const count = { inputSchema, execute: () => (runs.push('count'), 2) }
const fails = { inputSchema, execute: () => { throw new Error('it failed') } }
const tools = { count, fails, ask: { ...count, needsApproval: true } }
const options = { prompt: 'Hello.', tools, stopWhen: isStepCount(3), onError() {} }
const prompts = { apply: (prompt) => prompt, shorten: async (error) => { throw error } }
const accepted = { types: [], reduce: () => false }
const stop = new AbortController()
const parts = []
const use = async (part) => (parts.push(part.type), part)
let result
try {
  if (way === 'streamText') {
    result = streamText({ ...options, model })
    await result.consumeStream()
  } else {
    const reading = streaming(model, stop.signal, use, prompts, { accepted })
    result = await generateText({ ...options, model: reading })
  }
} catch ({ type, detail }) {
  console.log(JSON.stringify({ type, detail, runs, calls }))
  process.exit()
}
const { finalStep, responseMessages, totalUsage } = result
const { text, finishReason, providerMetadata } = await finalStep
const seen = { messages: await responseMessages, usage: await totalUsage, finishReason }
// `streamText` does not name the model of a part.
const unmarked = (key, value) => {
  if (key !== 'providerOptions' || !value?.producer) return value
  const { producer, ...others } = value
  return Object.keys(others).length > 0 ? others : undefined
}
// The ids of approvals are made up.
const shown = JSON.stringify({ ...seen, text, providerMetadata, runs, calls }, unmarked)
console.log(shown.replace(/"approvalId":"[\\w-]+"/g, ''))
"""

# What a turn emits while its tools run.
TURN = """
import { setTimeout as sleep } from 'node:timers/promises'
const load = (name) => import(new URL(name, process.argv[1]))
const { app } = await load('../../app.ts')
const { Capability } = await load('../capability.ts')
const { SETTINGS } = await load('../enabled.ts')
const { Turn, TurnRequest } = await load('../contract.ts')
const { logging } = await load('../log.ts')
const { readSettings } = await load('../settings.ts')
const { Runtime } = await load('../runtime.ts')
const { reply, toolCall } = await load('../../../tests/harness/script.ts')
const { ScriptedModel } = await load('../../../tests/harness/scripted_model.ts')
const seen = []
console.error = (line) => seen.push(line.replace(/^.* WARNING/, 'WARNING'))
const script = [toolCall('word_count', { text: 'a b' }), reply('Done.')]
const options = { emit() {}, execute: () => 2, more: {} }
const given = new Function('seen', 'sleep', 'modelOf', `return ${process.argv[2]}`)
const modelOf = (text) => new ScriptedModel([reply(text)])
Object.assign(options, given(seen, sleep, modelOf))
class Own extends Capability {
  prepare(_, given) {
    const { word_count } = given.tools
    const execute = () => options.execute()
    given.tools = { word_count: { ...word_count, execute } }
    Object.assign(given, options.more)
  }
}
const [settings] = readSettings(SETTINGS)
const own = new Own(settings, [], app.load)
const runtime = new Runtime(settings, await app.load.agent(), app.load, [own])
logging.hasTurns = false
runtime.model = new ScriptedModel(script)
options.stop = new AbortController()
const languageModel = (name) => name === 'named' && new ScriptedModel([reply('Named.')])
globalThis.AI_SDK_DEFAULT_PROVIDER = { languageModel }
const emit = async (chunk) => {
  seen.push(typeof chunk === 'string' ? chunk : (chunk.text ?? chunk.name))
  await options.emit(chunk)
}
const turn = new Turn(new TurnRequest({ sessionId: 's'.repeat(40), prompt: 'Go.' }), emit)
const { signal } = options.stop
const ended = await runtime.start(turn, { signal }).catch((error) => {
  return { reply: [error.type ?? error.name, error.detail].filter(Boolean).join(': ') }
})
await sleep(50)
console.log(JSON.stringify([...seen, ended.reply]))
"""
EMITTED = {
    "nothing else": ("{}", ["word_count", "2", "Done.", "Done."]),
    "a turn that is over before its tool": (
        "{ emit() { this.stop.abort() }, execute: () => seen.push('ran') }",
        ["word_count", "AbortError"],
    ),
    "a tool that ends after its turn": (
        "{ async execute() { this.stop.abort(); await sleep(10); return 'late' } }",
        ["word_count", "AbortError"],
    ),
    "a tool that its turn ends": (
        "{ async execute() { this.stop.abort(); await sleep(1); throw new Error('over') } }",
        ["word_count", "AbortError"],
    ),
    "an emit that fails": (
        "{ emit({ text }) { if (text) throw new TypeError('no') } }",
        ["word_count", "2", "Done.", "model_failed: TypeError"],
    ),
    "a model of a capability for each step": (
        "{ more: { prepareStep: () => ({ model: modelOf('Theirs.') }) } }",
        ["Theirs.", "Theirs."],
    ),
    "the name of a model": ("{ more: { model: 'named' } }", ["Named.", "Named."]),
    "a callback of a capability": (
        "{ more: { onToolExecutionEnd: () => void seen.push('theirs') } }",
        ["word_count", "2", "theirs", "Done.", "Done."],
    ),
}


def test_a_turn_emits_its_tools_events_and_nothing_after_its_end() -> None:
    for options, emitted in EMITTED.values():
        assert json.loads(node(TURN, options)) == emitted, options


ABORTED = """
import { generateText } from 'ai'
const { streaming } = await import(process.argv[1])
const prompts = { apply: (prompt) => prompt, shorten: async (error) => { throw error } }
const accepted = { types: [], reduce: () => false }
const stop = new AbortController()
let isCancelled = false
const stream = new ReadableStream({
  start: (controller) => controller.enqueue({ type: 'text-start', id: '1' }),
  cancel: () => (isCancelled = true),
})
const named = { specificationVersion: 'v4', provider: 'p', modelId: 'm', supportedUrls: {} }
const use = async (part) => {
  setTimeout(() => stop.abort())
  return part
}
const reading = { ...named, doStream: async () => ({ stream }) }
const model = streaming(reading, stop.signal, use, prompts, { accepted })
const ended = await generateText({ model, prompt: 'Hello.' }).catch(({ type }) => type)
console.log(ended, isCancelled)
"""


def node(script: str, *words: str) -> str:
    project = installed("vercel-typescript")
    module = (project / "src" / "harness" / "models" / "streaming.ts").as_uri()
    command = [str(NODE), "--input-type=module", "-e", script, module, *words]
    return subprocess.check_output(
        command, cwd=project, env=clean_environment(), text=True, timeout=60
    )


def read(answers: list[list[Part]], way: str) -> str:
    return node(SCRIPT, json.dumps({"turn": answers, "way": way}))


@pytest.mark.parametrize("name", TURNS)
def test_an_answer_equals_the_result_of_stream_text(name: str) -> None:
    shown = read(TURNS[name], "streaming")
    assert '"messages":' in shown
    assert shown == read(TURNS[name], "streamText")


@pytest.mark.parametrize("name", BREAKS)
def test_an_answer_that_breaks_off_runs_no_tool_and_is_not_tried_again(name: str) -> None:
    shown = json.loads(read([BREAKS[name]] * 3, "streaming"))
    assert (shown["type"], shown["runs"], shown["calls"]) == ("model_failed", [], 1)
    assert shown["detail"] == DETAILS.get(name, "the stream was cut")


def test_a_stream_is_left_when_its_turn_is_over() -> None:
    assert node(ABORTED) == "model_failed true\n"
