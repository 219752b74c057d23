// The client of Amazon Bedrock: limits, guardrail, and checks of its streams.

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
type Send = (request: { input: ServiceInputTypes }) => Promise<Output>

/** Reports to the running turn if Bedrock is busy: the client waits silently. */
class Handler extends NodeHttpHandler {
  override async handle(...args: Parameters<NodeHttpHandler['handle']>) {
    const answer = await super.handle(...args)
    const { statusCode, headers } = answer.response
    RUNNING.getStore()?.noteAnswer(statusCode, retryAfter(headers))
    return answer
  }
}

/** Return the seconds until the next call that a service asks for, or ''. */
function retryAfter(headers: Record<string, string>): string {
  const milliseconds = headers['x-amz-retry-after'] ?? ''
  if (/^[0-9]{1,9}$/.test(milliseconds)) return String(Math.ceil(Number(milliseconds) / 1000))
  return headers['retry-after'] ?? ''
}

/** Return the model for these settings. Throws Error for an invalid guardrail. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): Model {
  // HTTP/1.1, because proxies support it; at most two retries, before the first byte.
  const clientConfig = { region, maxAttempts: 3, requestHandler: new Handler() }
  const caching = settings.promptCache ? { cacheConfig: {} } : {}
  const defaults = { modelId: settings.model, clientConfig, ...caching, ...readGuardrail() }
  const model = new BedrockModel({ ...defaults, ...options })
  checkCalls(model)
  return model
}

/** Return the options for GUARDRAIL_ID and GUARDRAIL_VERSION. Throws Error for invalid values. */
function readGuardrail(): VendorOptions {
  const { GUARDRAIL_ID: id = '', GUARDRAIL_VERSION: version = '' } = process.env
  if (!GUARDRAIL.test(`${id} ${version}`)) throw new Error(GUARDRAIL_FORM)
  if (!id.trim()) return {}
  return { guardrailConfig: { guardrailIdentifier: id, guardrailVersion: version } }
}

/** Check the streams of a model here: later, SDK events lack the type and index of a block. */
function checkCalls(model: BedrockModel): void {
  const { middlewareStack } = model['_client']
  middlewareStack.add(
    (next: Send): Send =>
      async (request) => {
        const result = await next(request)
        const output = result.output as Partial<ConverseStreamCommandOutput>
        if (output.stream) output.stream = checked(output.stream)
        return result
      },
    { step: 'initialize' },
  )
}

/** Drop calls of Bedrock's own tools; throw AgentError for arguments of an ended call. */
async function* checked(
  events: AsyncIterable<ConverseStreamOutput>,
): AsyncGenerator<ConverseStreamOutput> {
  const open = new Set<unknown>()
  const withoutArguments = new Set<unknown>() // indexes of calls without arguments
  const serverBlocks = new Set<unknown>() // calls of Bedrock's own tools
  for await (const event of events) {
    const { contentBlockStart: start, contentBlockDelta: part, contentBlockStop: stop } = event
    const index = (start ?? part ?? stop)?.contentBlockIndex
    const use = start?.start?.toolUse
    if (use) open.add(index)
    if (use?.type === 'server_tool_use') {
      serverBlocks.add(index)
    } else if (use) {
      // Later arguments of the first call would mix with the arguments of this call.
      const isUnclear = withoutArguments.has(index)
      if (isUnclear) throw new AgentError('model_failed', '', 'two calls have one index')
      withoutArguments.add(index)
    }
    const text = part?.delta?.toolUse?.input ?? ''
    if (text && !open.has(index)) {
      throw new AgentError('model_failed', '', 'arguments outside of a call')
    }
    if (!isBlank(text)) withoutArguments.delete(index)
    if (!serverBlocks.has(index)) yield event
    if (stop) {
      open.delete(index)
      serverBlocks.delete(index)
    }
  }
}

/** Return findings about missing or invalid model settings. */
export async function vendorFindings(settings: CoreSettings): Promise<Finding[]> {
  const hint = 'AWS_REGION is not set: MODEL needs it, for example us-east-1.'
  if (!(await region().catch(() => ''))) return [diagnostic('SET-AWS_REGION', hint)]
  try {
    // Without caching: the SDK warns for some models.
    vendorModel({ ...settings, promptCache: 0 }, {})
    return []
  } catch (error) {
    return [diagnostic('SET-AWS', `MODEL cannot use Bedrock: ${(error as Error).message}`)]
  }
}

/** Return the address of the provider. */
export async function vendorEndpoint(_settings: CoreSettings): Promise<string> {
  const { AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL } = process.env
  const url = AWS_ENDPOINT_URL_BEDROCK_RUNTIME || AWS_ENDPOINT_URL
  return url || `https://bedrock-runtime.${await region()}.amazonaws.com`
}

/** Return the region of the environment, or of the profile in ~/.aws/config. */
async function region(): Promise<string> {
  const name = process.env.AWS_REGION || process.env.AWS_DEFAULT_REGION
  return name || new BedrockRuntimeClient().config.region()
}
