// Namespace templates, and the actor, session and project that fill them in.

import { createHash } from 'node:crypto'

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
    memoryStrategyId: 'local', // of a file: a service fills it in before
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
