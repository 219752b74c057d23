// For your tests: a client of the agent, and a model that plays a script.

export * from './harness/client.ts'
export * from './harness/script.ts'
