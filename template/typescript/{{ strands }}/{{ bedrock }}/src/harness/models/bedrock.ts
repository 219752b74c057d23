// The client of Amazon Bedrock: its limits, its guardrail, and streams that it does not check.

import { BedrockRuntimeClient } from '@aws-sdk/client-bedrock-runtime'
import type {
  ConverseStreamCommandOutput,
  ConverseStreamOutput,
  ServiceInputTypes,
  ServiceOutputTypes,
} from '@aws-sdk/client-bedrock-runtime'
import { NodeHttpHandler } from '@smithy/node-http-handler'
import type { Model } from '@strands-agents/sdk'
import { BedrockModel, type BedrockModelOptions } from '@strands-agents/sdk/models/bedrock'

import { AgentError, isBlank, RUNNING } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'

export type VendorOptions = BedrockModelOptions

const GUARDRAIL = /^( *|(arn:[a-z0-9:-]+:guardrail\/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7}))$/
const GUARDRAIL_FORM = 'GUARDRAIL_ID must be an id or ARN, GUARDRAIL_VERSION a number or DRAFT'

type Output = { response: unknown; output: ServiceOutputTypes }
type Send = (given: { input: ServiceInputTypes }) => Promise<Output>

/** Notes in the running turn whether Bedrock is busy: the client waits, and says nothing of it. */
class Handler extends NodeHttpHandler {
  override async handle(...given: Parameters<NodeHttpHandler['handle']>) {
    const answer = await super.handle(...given)
    const { statusCode, headers } = answer.response
    RUNNING.getStore()?.noteAnswer(statusCode, retryAfter(headers))
    return answer
  }
}

/** Return in how many seconds a service wants the next call, or ''. */
function retryAfter(headers: Record<string, string>): string {
  const milliseconds = headers['x-amz-retry-after'] ?? ''
  if (/^[0-9]{1,9}$/.test(milliseconds)) return String(Math.ceil(Number(milliseconds) / 1000))
  return headers['retry-after'] ?? ''
}

/** Return the model of these settings. Throws Error for an invalid guardrail. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): Model {
  // HTTP/1.1, which goes through proxies too; at most two more tries, before the first byte.
  const clientConfig = { region, maxAttempts: 3, requestHandler: new Handler() }
  const caching = settings.promptCache ? { cacheConfig: {} } : {}
  const own = { modelId: settings.model, clientConfig, ...caching, ...readGuardrail() }
  const model = new BedrockModel({ ...own, ...options })
  checkCalls(model)
  return model
}

/** Return the options for GUARDRAIL_ID and GUARDRAIL_VERSION. Throws Error for another form. */
function readGuardrail(): VendorOptions {
  const { GUARDRAIL_ID: id = '', GUARDRAIL_VERSION: version = '' } = process.env
  if (!GUARDRAIL.test(`${id} ${version}`)) throw new Error(GUARDRAIL_FORM)
  if (!id.trim()) return {}
  return { guardrailConfig: { guardrailIdentifier: id, guardrailVersion: version } }
}

/** Make a model check its streams: events of the SDK lack the kind and the index of a block. */
function checkCalls(model: BedrockModel): void {
  const { middlewareStack } = model['_client']
  middlewareStack.add(
    (next: Send): Send =>
      async (given) => {
        const done = await next(given)
        const output = done.output as Partial<ConverseStreamCommandOutput>
        if (output.stream) output.stream = checked(output.stream)
        return done
      },
    { step: 'initialize' },
  )
}

/** Leave out the tools that Bedrock itself runs, and refuse arguments of a call that has ended. */
async function* checked(
  events: AsyncIterable<ConverseStreamOutput>,
): AsyncGenerator<ConverseStreamOutput> {
  const open = new Set<unknown>()
  const withoutArguments = new Set<unknown>() // the indexes of such calls
  const others = new Set<unknown>() // blocks of Bedrock's tools
  for await (const event of events) {
    const { contentBlockStart: start, contentBlockDelta: part, contentBlockStop: stop } = event
    const index = (start ?? part ?? stop)?.contentBlockIndex
    const use = start?.start?.toolUse
    if (use) open.add(index)
    if (use?.type === 'server_tool_use') {
      others.add(index)
    } else if (use) {
      // Its arguments may follow, mixed with those of this call.
      const isUnclear = withoutArguments.has(index)
      if (isUnclear) throw new AgentError('model_failed', '', 'two calls have one index')
      withoutArguments.add(index)
    }
    const text = part?.delta?.toolUse?.input ?? ''
    if (text && !open.has(index)) {
      throw new AgentError('model_failed', '', 'arguments outside of a call')
    }
    if (!isBlank(text)) withoutArguments.delete(index)
    if (!others.has(index)) yield event
    if (stop) {
      open.delete(index)
      others.delete(index)
    }
  }
}

/** Return findings about missing or invalid settings of the model. */
export async function vendorFindings(settings: CoreSettings): Promise<Finding[]> {
  const hint = 'AWS_REGION is not set: MODEL needs it, as in us-east-1.'
  if (!(await region().catch(() => ''))) return [diagnostic('SET-AWS_REGION', hint)]
  try {
    vendorModel({ ...settings, promptCache: 0 }, {}) // the SDK warns for some models
    return []
  } catch (error) {
    return [diagnostic('SET-AWS', `MODEL cannot use Bedrock: ${(error as Error).message}`)]
  }
}

/** Return the address of the provider. */
export async function vendorEndpoint(_settings: CoreSettings): Promise<string> {
  const { AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL } = process.env
  const own = AWS_ENDPOINT_URL_BEDROCK_RUNTIME || AWS_ENDPOINT_URL
  return own || `https://bedrock-runtime.${await region()}.amazonaws.com`
}

/** Return the region of the environment, or of the profile in ~/.aws/config. */
async function region(): Promise<string> {
  const named = process.env.AWS_REGION || process.env.AWS_DEFAULT_REGION
  return named || new BedrockRuntimeClient().config.region()
}
