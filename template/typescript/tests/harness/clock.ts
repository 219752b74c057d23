// A clock that only a test moves.

import type { TestContext } from 'node:test'

/** Stops timeouts, intervals and `performance.now()` until the test is over. */
export class Clock {
  readonly #context: TestContext
  #milliseconds = performance.now()

  constructor(context: TestContext) {
    this.#context = context
    context.mock.method(performance, 'now', () => this.#milliseconds)
    context.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] })
  }

  /** Let so many seconds pass at once. */
  advance(seconds: number): void {
    this.#milliseconds += seconds * 1000
    this.#context.mock.timers.tick(seconds * 1000)
  }
}
