// Starts the agent where AgentCore gets its code as a zip file.

process.env.HOST ??= '0.0.0.0'
process.argv.push('serve')
await import('./src/main.ts')
