// The files that the vendor's models accept.

import { COMMON_TYPES } from '../files.ts'

export const FILE_TYPES = COMMON_TYPES
export const MAX_DOCUMENTS = 100 // in a request, without texts
