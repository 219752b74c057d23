// The tool word_count waits for a person.

import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'

export const GATE = { interventions: [new HumanInTheLoop()] }
