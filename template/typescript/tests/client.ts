// For your tests: a client of the agent and a scripted model.

export * from './harness/client.ts'
export * from './harness/script.ts'
