// The types of files that the vendor's models accept.

import { COMMON_TYPES } from '../files.ts'

export const FILE_TYPES = COMMON_TYPES
