// The command `erase-project`: counts, failures, a second run, and data that must stay.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { eraseProject } from '../../src/harness/collections/commands.ts'
import { Declarations } from '../../src/harness/collections/capability.ts'
import {
  forEach,
  ProjectErasure,
  type Stock,
  unread,
} from '../../src/harness/collections/erasure.ts'
import { CommandError } from '../../src/harness/findings.ts'

/** The place fails. */
class Down extends Error {}

/** A place with items. It fails after `limit` deletions. */
class Shelf implements Stock {
  readonly what = 'books'
  readonly where = 'a shelf'
  readonly note = 'it is dusty'
  readonly failures = [Down]
  readonly staysBecause: string
  items: string[]
  isClosed = false
  limit = 1000
  /** These fail always. */
  locked: string[] = []
  /** After each list, one of them is stored. */
  added: string[] = []

  constructor(items: string[], staysBecause = '') {
    this.items = items
    this.staysBecause = staysBecause
  }

  async *pages(): AsyncGenerator<string[]> {
    if (this.isClosed) throw new Down('no key')
    yield [...this.items]
    const item = this.added.pop()
    if (item !== undefined) this.items.push(item)
  }

  delete(names: string[]): Promise<number> {
    return forEach(names, async (name) => {
      if (this.limit === 0 || this.locked.includes(name)) throw new Down('no light')
      this.limit--
      this.items = this.items.filter((item) => item !== name)
    })
  }
}

describe('the erasure of a project', () => {
  test('counts all items, then erases them', async () => {
    const shelf = new Shelf(['a', 'b'])
    const erasure = new ProjectErasure([shelf])
    assert.deepEqual(await erasure.count(), ['  books in a shelf: 2'])
    assert.deepEqual(shelf.items, ['a', 'b'])
    assert.equal(erasure.isEmpty, false)
    const lines = ['erased: books in a shelf: 2', 'note: it is dusty']
    assert.deepEqual(await erasure.erase(), lines)
    assert.deepEqual(shelf.items, [])
    assert.equal(erasure.hasRemains, false)
    const again = new ProjectErasure([shelf])
    assert.deepEqual(await again.count(), ['  books in a shelf: 0'])
    assert.equal(again.isEmpty, true)
  })

  test('names the rest after a failure, and a second run erases it', async () => {
    const shelf = new Shelf(['a', 'b', 'c'])
    const other = new Shelf(['d'])
    shelf.limit = 1
    const erasure = new ProjectErasure([shelf, other])
    const lines = await erasure.erase()
    assert.ok(lines.includes('erased: books in a shelf: 1'))
    assert.ok(lines.includes('failed: books in a shelf: 2 left: no light'))
    assert.equal(erasure.hasRemains, true)
    assert.equal(erasure.isRetryable, true)
    assert.deepEqual(other.items, [], 'the other place is erased')
    shelf.limit = 1000
    const again = new ProjectErasure([shelf, other])
    assert.ok((await again.erase()).includes('erased: books in a shelf: 2'))
    assert.equal(again.hasRemains, false)
  })

  test('reports the items of an agent that still runs', async () => {
    const shelf = new Shelf(['a'])
    shelf.added = Array.from({ length: 100 }, (_, number) => `new-${number}`)
    const erasure = new ProjectErasure([shelf])
    const failure = 'failed: books in a shelf: 1 left: stop the agent, and run this again'
    assert.ok((await erasure.erase()).includes(failure))
    assert.equal(erasure.hasRemains, true)
  })

  test('keeps data that may belong to others', async () => {
    const shelf = new Shelf(['a'], 'it is borrowed')
    const erasure = new ProjectErasure([shelf])
    const line = 'not erased: books in a shelf: it is borrowed'
    assert.deepEqual(await erasure.count(), [line])
    assert.equal(erasure.isEmpty, true)
    assert.deepEqual(await erasure.erase(), [line])
    assert.deepEqual(shelf.items, ['a'])
    assert.equal(erasure.hasRemains, true)
    assert.equal(erasure.isRetryable, false)
  })

  test('names a place that cannot be listed, even if its data stays', async () => {
    const shelf = new Shelf(['a'], 'it is borrowed')
    shelf.isClosed = true
    const erasure = new ProjectErasure([shelf])
    assert.deepEqual(await erasure.count(), ['  books in a shelf: cannot be counted: no key'])
    assert.equal(erasure.isEmpty, true)
    assert.equal(erasure.hasRemains, true)
  })

  test('erases the others if one item is locked', async () => {
    const shelf = new Shelf(Array.from({ length: 500 }, (_, number) => String(number)))
    shelf.locked = ['7', '8']
    const lines = await new ProjectErasure([shelf]).erase()
    assert.equal(lines[0], 'erased: books in a shelf: 498')
    assert.equal(lines[1], 'failed: books in a shelf: 2 left: no light')
    assert.deepEqual(shelf.items, ['7', '8'])
  })

  test('says that items without a project belong to all projects of the agent', async () => {
    const erasure = new ProjectErasure([new Shelf(['a'])], 'apollo')
    assert.deepEqual(await erasure.count(), ['  books of every PROJECT_ID in a shelf: 1'])
    const [line] = await erasure.erase()
    assert.equal(line, 'erased: books of every PROJECT_ID in a shelf: 1')
  })

  test('names a place whose secret is not set', async () => {
    const stock = unread('books', 'the library', 'SECRETS_LIBRARY')
    const erasure = new ProjectErasure([stock], 'apollo')
    const why = 'set SECRETS_LIBRARY, and run this again: nothing there was looked at'
    const found = `  books in the library: cannot be counted: ${why}`
    assert.deepEqual(await erasure.count(), [found])
    assert.equal(erasure.isEmpty, false)
    assert.deepEqual(await erasure.erase(), [`failed: books in the library: ${why}`])
    assert.equal(erasure.hasRemains, true)
    assert.equal(erasure.isRetryable, false, 'only after the secret is set')
  })
})

describe('the command erase-project', () => {
  const collections = new Map([['earlier', {}]])
  const project = { agentId: 'apart', collections, used: () => [] }
  const declarations = Object.create(Declarations.prototype, {
    project: { value: project },
    settings: { value: { projectId: 'apollo' } },
    check: { value: () => [] },
  })
  const load = async () => [declarations]

  for (const name of ['other', '', 'apart', 'Apart/apollo']) {
    test(`rejects "${name}" as the name of project apart/apollo`, async () => {
      const isRefusal = (error: unknown) =>
        error instanceof CommandError &&
        error.exitCode === 2 &&
        error.message ===
          `"${name}" is not the name of this project, apart/apollo. Nothing was erased.`
      await assert.rejects(eraseProject(['--yes', name], load), isRefusal)
    })
  }

  test('rejects a collection that is not a memory of the agent', async () => {
    for (const id of ['unknown', 'earlier']) {
      const args = ['--yes', 'apart/apollo', '--unshared', id]
      await assert.rejects(eraseProject(args, load), CommandError)
    }
  })

  test('names a collection that the agent does not use', async () => {
    const erasure = new ProjectErasure(declarations.projectStocks())
    const [line, ...others] = await erasure.count()
    assert.match(line ?? '', /^not erased: data of collection earlier in its store: not looked at/)
    assert.deepEqual(others, [])
    assert.equal(erasure.isEmpty, true)
    assert.equal(erasure.hasRemains, true)
  })
})
