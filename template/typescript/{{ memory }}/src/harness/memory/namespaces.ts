// Resolve namespace templates for an actor, session and project.

import { createHash } from 'node:crypto'

/** The actor, session and project of a turn. */
export interface Who {
  readonly actor: string
  readonly sessionId: string
  readonly projectId: string | null
}

/** A namespace; if `isSubtree`, it includes all namespaces below. */
export class Namespace {
  /** Such as /users/alice/. */
  readonly path: string
  readonly isSubtree: boolean

  constructor(path: string, isSubtree = false) {
    this.path = path
    this.isSubtree = isSubtree
  }

  /** The request parameter of AgentCore. */
  get parameter(): { namespace: string } | { namespacePath: string } {
    return this.isSubtree ? { namespacePath: this.path } : { namespace: this.path }
  }

  /** Whether a record at `namespace` is in this namespace. */
  holds(namespace: string): boolean {
    const path = normalised(namespace)
    return this.isSubtree ? path.startsWith(this.path) : path === this.path
  }
}

export const STRATEGY = '{memoryStrategyId}'
/** The only strategy of a file. */
export const LOCAL = 'local'

/** All namespaces. */
export const ROOT = new Namespace('/', true)

/**
 * Fill in the placeholders of a template; a final `/*` includes all namespaces below.
 *
 * Values are not expanded again. Throws RangeError for an invalid
 * template, and if the namespaces of two actors could overlap.
 */
export function resolve(template: string, identity: Who): Namespace {
  const values: Record<string, unknown> = {
    actorId: identity.actor,
    sessionId: eventSession(identity.sessionId),
    projectId: identity.projectId,
    memoryStrategyId: LOCAL, // services replace it earlier
  }
  for (const segment of template.split('/')) {
    if (segment.includes('{actorId}') && (segment.match(/\{\w+\}/g) ?? []).length > 1) {
      throw new RangeError(`${template}: {actorId} must be the only placeholder of its segment`)
    }
  }
  const isSubtree = template.endsWith('/*')
  // Not a replacement string, in which `$` would be special.
  const path = (isSubtree ? template.slice(0, -1) : template).replace(
    /\{(\w+)\}/g,
    (placeholder, name) => {
      if (!Object.hasOwn(values, name)) return placeholder
      const value = values[name]
      if (typeof value !== 'string' || !value)
        throw new RangeError(`${template}: ${placeholder} has no value`)
      if (!/[/*]/.test(value)) return value
      throw new RangeError(`${template}: the value of ${placeholder} contains / or *`)
    },
  )
  const rest = /\{\w*\}?|[}*]/.exec(path)
  if (rest) throw new RangeError(`${template}: ${rest[0]} is an unknown placeholder`)
  if (normalised(path) === '//') throw new RangeError(`${template}: the namespace is empty`)
  return new Namespace(normalised(path), isSubtree)
}

/** Return the session's name in AgentCore Memory: at most 100 letters, digits, _ and -. */
export function eventSession(sessionId: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/.test(sessionId)) return sessionId
  const hash = createHash('sha256').update(sessionId).digest('hex')
  const letters = sessionId.slice(0, 60).replace(/[^A-Za-z0-9_-]/g, '-')
  return `${letters.replace(/^[_-]/, '0')}-${hash.slice(0, 32)}`
}

/** Return the namespace template for a collection without `retrieval_config`. */
export function defaultTemplate(lifetime: string): string {
  return lifetime === 'user' ? '/users/{actorId}' : '/projects/{projectId}'
}

/** Return a path with one slash at each end. */
export function normalised(path: string): string {
  return `/${path.replace(/^\/+|(?<!\/)\/+$/g, '')}/`
}

/** Return the segments of a path. */
export function segmentsOf(path: string): string[] {
  return path.replace(/^\/+|(?<!\/)\/+$/g, '').split('/')
}
