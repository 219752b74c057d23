// Whose memory it is, and where in a memory that lies: templates of namespaces, filled in.

import { createHash } from 'node:crypto'

/** Who talks, and in which session. */
export interface Who {
  readonly actor: string
  readonly sessionId: string
  readonly projectId: string | null
}

/** A namespace: one exactly, or with all that lies below it. */
export class Place {
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
 * The place that a template means for somebody; `/*` at its end means all below.
 *
 * What is filled in is not looked at again. Throws RangeError, which names what is wrong, and so
 * also for values with which the places of two people could meet.
 */
export function resolve(template: string, who: Who): Place {
  const values: Record<string, unknown> = {
    actorId: who.actor,
    sessionId: eventSession(who.sessionId),
    projectId: who.projectId,
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
  return new Place(normalised(path), isSubtree)
}

/** The name of a session in AgentCore Memory, which has at most 100 characters. */
export function eventSession(sessionId: string): string {
  if (sessionId.length <= 100) return sessionId
  const hash = createHash('sha256').update(sessionId).digest('hex')
  return `${sessionId.slice(0, 60)}-${hash.slice(0, 32)}`
}

function normalised(path: string): string {
  return `/${path.replace(/^\/+|\/+$/g, '')}/`
}
