// Namespace templates, and the actor, session and project that fill them in.

import { createHash } from 'node:crypto'

import type { MemoryStrategy } from '@aws-sdk/client-bedrock-agentcore-control'

/** A placeholder that is filled in before the others, from the memory resource. */
export const STRATEGY = '{memoryStrategyId}'

/** The identity of a turn: the actor, the session and the project. */
export interface Who {
  readonly actor: string
  readonly sessionId: string
  readonly projectId: string | null
}

/** A namespace: one exactly, or with all that lies below it. */
export class Namespace {
  /** Such as /users/alice/ */
  readonly path: string
  readonly isSubtree: boolean

  constructor(path: string, isSubtree = false) {
    this.path = path
    this.isSubtree = isSubtree
  }

  /** The parameter that names it to AgentCore. */
  get wire(): { namespace: string } | { namespacePath: string } {
    return this.isSubtree ? { namespacePath: this.path } : { namespace: this.path }
  }

  /** Whether a record of that namespace is here. */
  holds(namespace: string): boolean {
    const path = normalised(namespace)
    return this.isSubtree ? path.startsWith(this.path) : path === this.path
  }
}

/**
 * Fill in a template for an actor; `/*` at its end stands for all namespaces below.
 *
 * Values are substituted in one pass. Throws RangeError, also for values with which the
 * namespaces of two people could overlap.
 */
export function resolve(template: string, identity: Who): Namespace {
  const values: Record<string, unknown> = {
    actorId: identity.actor,
    sessionId: eventSession(identity.sessionId),
    projectId: identity.projectId,
  }
  for (const segment of template.split('/')) {
    if (segment.includes('{actorId}') && (segment.match(/\{\w+\}/g) ?? []).length > 1) {
      throw new RangeError(`${template}: {actorId} needs a segment without other placeholders`)
    }
  }
  const isSubtree = template.endsWith('/*')
  // By a function, as `$` means something in a text that replaces.
  const path = (isSubtree ? template.slice(0, -1) : template).replace(
    /\{(\w+)\}/g,
    (found, name) => {
      if (!Object.hasOwn(values, name)) return found
      const value = values[name]
      if (typeof value !== 'string' || !value)
        throw new RangeError(`${template}: ${found} has no value`)
      if (!/[/*]/.test(value)) return value
      throw new RangeError(`${template}: the value of ${found} has a / or a *`)
    },
  )
  const left = /\{\w*\}?|[}*]/.exec(path)
  if (left) throw new RangeError(`${template}: ${left[0]} is left over`)
  if (normalised(path) === '//') throw new RangeError(`${template}: it names no namespace`)
  return new Namespace(normalised(path), isSubtree)
}

/** The name of a session in AgentCore Memory, which has at most 100 characters. */
export function eventSession(sessionId: string): string {
  if (sessionId.length <= 100) return sessionId
  const hash = createHash('sha256').update(sessionId).digest('hex')
  return `${sessionId.slice(0, 60)}-${hash.slice(0, 32)}`
}

/** Return the namespace of a local memory whose collection declares none. */
export function defaultTemplate(lifetime: string): string {
  return lifetime === 'user' ? '/users/{actorId}' : '/projects/{projectId}'
}

function normalised(path: string): string {
  return `/${path.replace(/^\/+|(?<!\/)\/+$/g, '')}/`
}

/** The parts of a path between its slashes. */
export function segmentsOf(path: string): string[] {
  return path.replace(/^\/+|(?<!\/)\/+$/g, '').split('/')
}

/** Whether templates can be searched without a description of the memory resource. */
export function areWhole(templates: readonly string[]): boolean {
  return !templates.some((template) => template.includes(STRATEGY))
}

/** Return a template for a local memory, which has one strategy. */
export function inFile(template: string): string {
  return template.replaceAll(STRATEGY, 'local')
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
