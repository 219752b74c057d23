// The strategies of an AgentCore memory, and the namespaces to which they write.

import type { MemoryStrategy } from '@aws-sdk/client-bedrock-agentcore-control'

import { segmentsOf } from './namespaces.ts'

const STRATEGY = '{memoryStrategyId}' // filled in before the others, from the memory resource

/** Whether templates can be searched without a description of the memory resource. */
export function areWhole(templates: readonly string[]): boolean {
  return !templates.some((template) => template.includes(STRATEGY))
}

/** Return a template once for each strategy that writes to it, if it has {memoryStrategyId}. */
export function ofStrategies(template: string, strategies: readonly MemoryStrategy[]): string[] {
  if (!template.includes(STRATEGY)) return [template]
  return strategies.flatMap((strategy) => {
    const filled = template.replaceAll(STRATEGY, strategy.strategyId ?? '')
    const written = writtenTemplates([strategy])
    return written.length === 0 || written.some((one) => isWritten(filled, one)) ? [filled] : []
  })
}

/** Whether what is written by one template may be found by another. */
export function isWritten(template: string, written: string): boolean {
  let [asked, wrote] = [segmentsOf(template), segmentsOf(written)]
  if (asked.at(-1) === '*') {
    asked = asked.slice(0, -1)
    wrote = wrote.slice(0, asked.length)
  }
  return asked.length === wrote.length && asked.every((one, at) => meets(one, wrote[at]!))
}

/** Whether a segment is the other, or what the other may become. */
function meets(segment: string, written: string): boolean {
  const pattern = written.split(/\{\w+\}/).join('[^/{}]+')
  return segment === written || new RegExp(`^${pattern}$`).test(segment)
}

/** Return the templates to which strategies of a memory write, as the files spell them. */
export function writtenTemplates(strategies: readonly MemoryStrategy[] = []): string[] {
  return strategies.flatMap((strategy) => {
    // What reflects on episodes has namespaces of its own.
    const reflection = strategy.configuration?.reflection
    const custom = reflection?.customReflectionConfiguration?.episodicReflectionOverride
    const parts = [strategy, reflection?.episodicReflectionConfiguration ?? custom]
    const found = parts.flatMap((part) => {
      return (part?.namespaceTemplates?.length ? part.namespaceTemplates : part?.namespaces) ?? []
    })
    // The service allows keys in lower case only.
    return found.map((template) =>
      template
        .replaceAll(STRATEGY, strategy.strategyId ?? '')
        .replaceAll('{projectid}', '{projectId}'),
    )
  })
}
