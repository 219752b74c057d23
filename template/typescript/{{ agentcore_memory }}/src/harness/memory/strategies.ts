// Match namespace templates with the strategies of an AgentCore memory.

import type { MemoryStrategy } from '@aws-sdk/client-bedrock-agentcore-control'

import { segmentsOf, STRATEGY } from './namespaces.ts'

/** The template of a strategy that names no namespace. */
export const DEFAULT_TEMPLATE = `/strategies/${STRATEGY}/actors/{actorId}`

/** Whether searches by the templates do not need the memory resource. */
export function areWhole(templates: readonly string[]): boolean {
  return !templates.some((template) => template.includes(STRATEGY))
}

/**
 * Return the template filled in for each strategy of a memory that writes to it.
 *
 * A template without {memoryStrategyId} is returned unchanged.
 */
export function ofStrategies(template: string, strategies: readonly MemoryStrategy[]): string[] {
  if (!template.includes(STRATEGY)) return [template]
  return strategies.flatMap((strategy) => {
    const path = template.replaceAll(STRATEGY, strategy.strategyId ?? '')
    const written = writtenTemplates([strategy])
    const isTarget = written.length === 0 || written.some((pattern) => isWritten(path, pattern))
    return isTarget ? [path] : []
  })
}

/** Whether a search by `template` can find records that a strategy writes to `written`. */
export function isWritten(template: string, written: string): boolean {
  let searched = segmentsOf(template)
  let target = segmentsOf(written)
  if (searched.at(-1) === '*') {
    searched = searched.slice(0, -1)
    target = target.slice(0, searched.length)
  }
  if (searched.length !== target.length) return false
  return searched.every((segment, index) => canEqual(segment, target[index]!))
}

/** Whether a segment equals the written segment, or matches its placeholders. */
function canEqual(segment: string, written: string): boolean {
  const pattern = written.split(/\{\w+\}/).join('[^/{}]+')
  return segment === written || new RegExp(`^${pattern}$`).test(segment)
}

/** Return the templates that a memory's strategies write to, with the files' placeholders. */
export function writtenTemplates(strategies: readonly MemoryStrategy[] = []): string[] {
  return strategies.flatMap((strategy) => {
    // The reflection of an episodic strategy has separate namespaces.
    const reflection = strategy.configuration?.reflection
    const custom = reflection?.customReflectionConfiguration?.episodicReflectionOverride
    const parts = [strategy, reflection?.episodicReflectionConfiguration ?? custom]
    const templates = parts.flatMap((part) => {
      return (part?.namespaceTemplates?.length ? part.namespaceTemplates : part?.namespaces) ?? []
    })
    // The service requires lower-case keys.
    return templates.map((template) =>
      template
        .replaceAll(STRATEGY, strategy.strategyId ?? '')
        .replaceAll('{projectid}', '{projectId}'),
    )
  })
}
