// A clock that tests control.

import type { TestContext } from 'node:test'

/** Controls timeouts, intervals and `performance.now()` until the test ends. */
export class Clock {
  readonly #context: TestContext
  #milliseconds = performance.now()

  constructor(context: TestContext) {
    this.#context = context
    context.mock.method(performance, 'now', () => this.#milliseconds)
    context.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] })
  }

  /** Advance the clock by `seconds`. */
  advance(seconds: number): void {
    this.#milliseconds += seconds * 1000
    this.#context.mock.timers.tick(seconds * 1000)
  }
}
