// Starts the agent in AgentCore if the code is a zip file.

process.env.HOST ??= '0.0.0.0'
process.argv.push('serve')
await import('./src/main.ts')
