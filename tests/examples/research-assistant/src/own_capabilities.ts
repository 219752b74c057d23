// The settings and capabilities of the research assistant.

import { Articles } from './articles.ts'
import { BasePath } from './base_path.ts'
import { Choices } from './choices.ts'
import type { CapabilityClass } from './harness/index.ts'
import { Notes } from './notes.ts'
import { Questions } from './questions.ts'
import { Sharing } from './sharing.ts'

export { OWN_SETTINGS } from './own_settings.ts'

export const OWN_CAPABILITIES: CapabilityClass[] = [
  Articles,
  Notes,
  Choices,
  Questions,
  Sharing,
  BasePath,
]
