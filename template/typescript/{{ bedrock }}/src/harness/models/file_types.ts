// The types of files that the vendor's models accept.

import { FORMATS } from '../files.ts'

export const FILE_TYPES: readonly string[] = Object.keys(FORMATS)
