// The command of the project.

import { app } from './app.ts'
import { runCommand } from './harness/index.ts'

await runCommand(app)
