// The choices of each request: which model answers, with how much effort, and with which tools.

import type { LanguageModel, PrepareStepFunction, ToolSet } from 'ai'
import { z } from 'zod'

import { AgentError, Capability } from './harness/index.ts'
import type { ModelModule, Options, Turn } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

const Effort = z.enum(['low', 'medium', 'high']).optional()

export class Choices extends Capability<Settings> {
  #module: ModelModule | undefined

  override async open(): Promise<void> {
    this.#module = await this.load.model()
  }

  /** Return the model that the header names. The limits of the customer count it, too. */
  override wrapModel(model: LanguageModel, _actor: string | null, turn?: Turn): LanguageModel {
    const id = turn?.headers['x-research-model']
    // While MODEL is unset, no provider is called.
    if (id === undefined || !this.#module || this.settings.model === 'offline') return model
    const { researchModels } = this.settings
    if (typeof id !== 'string' || !researchModels.includes(id)) {
      const what = `X-Research-Model must be one of: ${researchModels.join(', ')}.`
      throw new AgentError('invalid_request', what)
    }
    return this.#module.buildModel({ ...this.settings, model: id })
  }

  override prepare(turn: Turn, options: Options): void {
    const effort = Effort.safeParse(turn.headers['x-research-effort'])
    if (!effort.success) {
      throw new AgentError('invalid_request', 'X-Research-Effort must be low, medium or high.')
    }
    if (effort.data) options.providerOptions = { openai: { reasoningEffort: effort.data } }
    // Without a tool the last step has to answer.
    const last = this.settings.maxSteps - 1
    const prepareStep: PrepareStepFunction<ToolSet> = ({ stepNumber }) => {
      return stepNumber === last ? { toolChoice: 'none' } : {}
    }
    options.prepareStep = prepareStep
  }
}
