// The files that the vendor's models accept.

import { FORMATS } from '../files.ts'

export const FILE_TYPES: readonly string[] = Object.keys(FORMATS)
export const MAX_DOCUMENTS = 5 // in a request, without texts
