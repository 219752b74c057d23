// What is wrong in a collection beyond single fields: what does not fit together, or is unwise.
//
// What `models` says is no valid value is not looked at again.

import { isBlank } from '../contract.ts'
import type { Document } from './frontmatter.ts'
import { lintTransport } from './lint_access.ts'
import { at, type Findings } from './rules.ts'

const NEEDED = {
  agentcore_memory: ['1', 'memory_id_secret'],
  valkey: ['2', 'endpoint_secret'],
  s3: ['3', 'bucket_secret'],
  custom: ['4', 'transport'],
} as const
const LIFE: Record<string, string> = { valkey: 'ttl_seconds', s3: 'ttl_days' }
const OTHER: Record<string, [placeholder: string, expected: string]> = {
  project: ['{actorId}', 'user'],
  user: ['{projectId}', 'project'],
}
const NAMESPACE = /^(?=.{1,512}$)\/?[A-Za-z0-9_{}-]+(\/[A-Za-z0-9_{}-]+)*(\/\*?)?$/
// People could meet: a-b and c are an actor and a session, and so are a and b-c.
const BESIDE = /\{actorId\}[^/]*\{|\}[^/]*\{actorId\}/
const PLACEHOLDER = /\{(?:actorId|projectId|sessionId)\}/g
const SENTENCE_END = /[.!?]+(?:[ \t\n]+|$)|[。！？]+/
// A URL, host:port, and ARNs of something other than a secret.
const LITERAL = /^(.*:\/\/.*|[^/#]+:[0-9]+|arn:.*)$/
const MEMORY_ID = /^[A-Za-z][A-Za-z0-9_-]{0,99}-[A-Za-z0-9]{10}$/
const SECRET_ARN = /^arn:aws[a-z-]*:secretsmanager:.*$/

/** The findings in a collection whose file is called `<stem>.collection.md`. */
export function* lint(document: Document, stem: string): Findings {
  const id = document.getText('collection_id')
  if (id !== null && id !== stem) {
    const expected = `collections/${id}.collection.md`
    yield at('AML-E004', document, ['collection_id'], { expected })
  }
  if (id?.includes('_')) yield at('AML-W223', document, ['collection_id'])
  if (document.get('meta') !== null && !document.has('meta', 'last_updated')) {
    yield at('AML-W205', document, ['meta', 'last_updated'])
  }
  const description = document.getText('meta', 'description') ?? ''
  const count = description.split(SENTENCE_END).filter((sentence) => !isBlank(sentence)).length
  if (description && (count < 2 || count > 4)) {
    yield at('AML-W222', document, ['meta', 'description'], { count })
  }
  const type = document.getText('backend', 'type') as keyof typeof NEEDED | null
  if (type !== null) {
    yield* lintBackend(document, type)
    yield* lintSecret(document, type)
  }
  if (type === 'agentcore_memory') yield* lintLongTermMemory(document)
  yield* lintTransport(document)
}

function* lintBackend(document: Document, type: string): Findings {
  const [lifetime, life] = [document.getText('scope', 'lifetime'), LIFE[type]]
  if (life && (lifetime === 'project' || lifetime === 'user')) {
    yield at('AML-E042', document, ['backend', 'type'])
  }
  if (!life && lifetime === 'session') yield at('AML-E043', document, ['backend', 'type'])
  if (life && lifetime === 'session' && !document.has('backend', life)) {
    yield at('AML-W206', document, ['backend', life], { name: life })
  }
}

function* lintSecret(document: Document, type: keyof typeof NEEDED): Findings {
  const [number, name] = NEEDED[type]
  if (!document.has('backend', name)) {
    const id = `AML-${document.get('status') === 'draft' ? 'W' : 'E'}20${number}`
    yield at(id, document, ['backend', name])
  }
  const secret = document.getText('backend', name) ?? 'env:'
  if (secret.startsWith('env:') || SECRET_ARN.test(secret)) return
  if (LITERAL.test(secret) || (name === 'memory_id_secret' && MEMORY_ID.test(secret))) {
    yield at('AML-E229', document, ['backend', name], { name })
  }
}

function* lintLongTermMemory(document: Document): Findings {
  if (!document.has('backend', 'retrieval_config')) {
    yield at('AML-W207', document, ['backend', 'retrieval_config'])
  }
  if (Number(document.get('backend', 'batch_size') ?? 1) > 1) {
    yield at('AML-W225', document, ['backend', 'batch_size'])
  }
  for (const namespace of document.keys('backend', 'retrieval_config')) {
    const where = ['backend', 'retrieval_config', namespace]
    yield* lintNamespace(document, where, namespace)
    const topK = [...where, 'top_k']
    if (Number(document.get(...topK) ?? 0) > 100) yield at('AML-W220', document, topK)
  }
}

function* lintNamespace(document: Document, where: string[], namespace: string): Findings {
  const lifetime = document.getText('scope', 'lifetime') ?? ''
  if (!NAMESPACE.test(namespace)) {
    yield at('AML-E052', document, where, { name: namespace })
  } else if (/[{}]/.test(namespace.replace(PLACEHOLDER, ''))) {
    yield at('AML-E053', document, where)
  } else if (BESIDE.test(namespace)) {
    yield at('AML-E05B', document, where)
  } else if (OTHER[lifetime]) {
    const [placeholder, expected] = OTHER[lifetime]
    if (namespace.includes(placeholder)) {
      yield at('AML-W221', document, where, { placeholder, expected, lifetime })
    }
    if (lifetime === 'project' && !namespace.includes('{projectId}')) {
      yield at('AML-W228', document, where)
    }
    if (lifetime === 'user' && !namespace.includes('{actorId}')) {
      yield at('AML-E231', document, where)
    }
  }
}
