// Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset.

import { BedrockRuntimeClient } from '@aws-sdk/client-bedrock-runtime'
import type {
  ConverseStreamCommandOutput,
  ConverseStreamOutput,
  ServiceInputTypes,
  ServiceOutputTypes,
} from '@aws-sdk/client-bedrock-runtime'
import { NodeHttpHandler } from '@smithy/node-http-handler'
import type { Model } from '@strands-agents/sdk'
import { BedrockModel } from '@strands-agents/sdk/models/bedrock'

import { AgentError, isBlank, RUNNING } from './harness/contract.ts'
import { diagnostic, type Finding } from './harness/findings.ts'
import { OfflineModel } from './harness/echo_model.ts'
import type { CoreSettings } from './harness/settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['the AWS credentials', 'AWS_REGION']
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

/** The model of this process. */
export function buildModel(settings: CoreSettings): Model {
  if (settings.model === 'offline') return new OfflineModel()
  // HTTP/1.1, which goes through proxies too; at most two more tries, before the first byte.
  const clientConfig = { region, maxAttempts: 3, requestHandler: new Handler() }
  const { GUARDRAIL_ID: id = '', GUARDRAIL_VERSION: version = '' } = process.env
  if (!GUARDRAIL.test(`${id} ${version}`)) throw new Error(GUARDRAIL_FORM)
  const guardrail = { guardrailConfig: { guardrailIdentifier: id, guardrailVersion: version } }
  const options = { ...(settings.promptCache && { cacheConfig: {} }), ...(id.trim() && guardrail) }
  const model = new BedrockModel({ modelId: settings.model, clientConfig, ...options })
  checkCalls(model)
  return model
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

/** Return findings about missing or invalid model settings. */
export async function checkModel(settings: CoreSettings): Promise<Finding[]> {
  const what = 'AWS_REGION is not set: MODEL needs it, as in us-east-1.'
  if (!(await region().catch(() => ''))) return [diagnostic('SET-AWS_REGION', what)]
  try {
    buildModel({ ...settings, promptCache: 0 }) // the SDK warns for some models
    return []
  } catch (error) {
    return [diagnostic('SET-AWS', `MODEL cannot use Bedrock: ${(error as Error).message}`)]
  }
}

/** Where the model is reached. */
export async function modelEndpoint(_settings: CoreSettings): Promise<string> {
  const { AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL } = process.env
  const own = AWS_ENDPOINT_URL_BEDROCK_RUNTIME || AWS_ENDPOINT_URL
  return own || `https://bedrock-runtime.${await region()}.amazonaws.com`
}

/** From the environment, or from the profile in ~/.aws/config. */
async function region(): Promise<string> {
  const named = process.env.AWS_REGION || process.env.AWS_DEFAULT_REGION
  return named || new BedrockRuntimeClient().config.region()
}
