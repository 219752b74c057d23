#!/usr/bin/env node
// The command of the project.
import './harness/commands.ts'
