// Which part of a memory is one person's alone, and so may be erased for that person.

import { Place, resolve, type Who } from './namespaces.ts'

const PLACEHOLDER = /\{(\w+)\}/

/** The places of one person, and in words what else there is. */
interface Own {
  readonly places: Map<string, Place>
  /** What to set, to find more. */
  readonly missing: string[]
  /** What cannot be told apart. */
  readonly shared: string[]
}

/** What lies below the segment with {actorId} of each template; `sessions` are this actor's. */
export function ownPlaces(given: Iterable<string>, who: Who, sessions: readonly string[]): Own {
  const own: Own = { places: new Map(), missing: [], shared: [] }
  const templates = [...new Set(given)]
  if (who.actor.includes('/')) {
    own.shared.push('no records are made for an actor id with a /')
    return own
  }
  for (const template of templates) {
    const part = ownPart(template)
    if (!part) {
      own.shared.push(`records in ${template} are of all people`)
      continue
    }
    if (part.includes('{projectId}')) {
      if (!who.projectId) {
        own.missing.push(`records in ${template}: PROJECT_ID is not set`)
        continue
      }
      own.shared.push(`records in ${template} are looked for in project ${who.projectId}`)
    }
    if (part.includes('{sessionId}')) {
      own.shared.push(`records in ${template} are looked for by the sessions that it lists`)
    }
    for (const sessionId of part.includes('{sessionId}') ? sessions : ['']) {
      let place: Place
      try {
        place = resolve(part, { ...who, sessionId })
      } catch (error) {
        if (!(error instanceof RangeError)) throw error
        own.shared.push(`records in ${error.message}`)
        break
      }
      if (templates.some((one) => isOfOthers(place, one, who.actor))) {
        own.shared.push(`records in ${place.path} may be of others too`)
      } else {
        own.places.set(place.path, place)
      }
    }
  }
  return own
}

/** The template up to the segment with {actorId}, and all below; '': it has none. */
function ownPart(template: string): string {
  const segments = segmentsOf(template)
  const end = segments.findIndex((one) => one.includes('{actorId}')) + 1
  return end ? ['', ...segments.slice(0, end), '*'].join('/') : ''
}

/** Whether a template can mean something in that place for anybody else. */
function isOfOthers(place: Place, template: string, actor: string): boolean {
  const own = segmentsOf(place.path)
  let pattern = ''
  const above = segmentsOf(template).slice(0, own.length).join('/')
  for (const [at, part] of above.split(PLACEHOLDER).entries()) {
    if (at % 2 === 0) pattern += part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
    else if (part !== 'actorId') pattern += '[^/]+'
    else pattern += pattern.includes('<actor>') ? '\\k<actor>' : '(?<actor>[^/]+)'
  }
  const found = new RegExp(`^${pattern}$`).exec(own.join('/'))
  return found !== null && found.groups?.actor !== actor
}

function segmentsOf(path: string): string[] {
  return path.replace(/^\/+|\/+$/g, '').split('/')
}
