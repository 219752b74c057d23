// The tool word_count waits for a person.

export const GATE = { toolApproval: { word_count: 'user-approval' } }
