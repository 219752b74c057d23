// Recognizes requests with files that the model does not read.

import { AgentError, type File } from '../contract.ts'
import { unsupported } from '../files.ts'
import { causesOf, describe, log } from '../log.ts'
import { hasStatus, says } from './context_length.ts'

// Error texts about files, by the kind of files, of Bedrock, OpenAI, Azure, Anthropic, DeepSeek,
// Ollama, LM Studio, OpenRouter, llama.cpp, vLLM and Qwen.
const REJECTIONS: Record<string, RegExp> = {
  images: new RegExp(
    'support the image content block|image_url is only supported by certain models' +
      '|does not support image|endpoints found that support image input' +
      '|image input is not supported|at most 0 image|unknown variant `image',
    'i',
  ),
  documents: new RegExp(
    "support the document content block|doesn't support documents|does not support PDF" +
      '|does not support document|unknown variant `(file|document)|unknown part type: file' +
      '|invalid value: .?file',
    'i',
  ),
}
// Error texts about all files, of Groq, vLLM and mlx-lm.
const REJECTS_ALL =
  /content must be a string|is not a multimodal model|only .?text.? content type is supported/i
// HTTP statuses of these errors: OpenRouter sends 404, llama.cpp 500 and vLLM 501. An error in a
// stream has no status or the status of the stream.
const STATUSES = [200, 400, 404, 415, 422, 500, 501, 502]

/** Return the kind of a file: images, texts or documents. */
function kindOf(mediaType: string): string {
  if (mediaType.startsWith('image/')) return 'images'
  return mediaType.startsWith('text/') ? 'texts' : 'documents'
}

/**
 * Return the kinds of files because of which a model rejected a request.
 *
 * `sent` are the media types of the files in the request. Every model reads texts.
 */
function rejectedKinds(error: unknown, sent: readonly string[]): string[] {
  const failures = causesOf(error).filter((failure) => !(failure instanceof AgentError))
  if (!failures.every((failure) => hasStatus(failure, STATUSES))) return []
  const sentKinds = sent.map(kindOf)
  const kinds = Object.entries(REJECTIONS).filter(([kind]) => sentKinds.includes(kind))
  const isAny = failures.some((failure) => says(REJECTS_ALL, failure))
  const named = kinds.filter(([, text]) => isAny || failures.some((it) => says(text, it)))
  return named.map(([kind]) => kind)
}

/** The media types that the model of a turn accepts; it may accept fewer than its provider. */
export class AcceptedTypes {
  types: readonly string[]
  readonly #files: readonly File[]

  /** `types` are the provider's types, and `files` are those of the turn's request. */
  constructor(types: readonly string[], files: readonly File[]) {
    this.types = types
    this.#files = files
  }

  /**
   * Remove the types that the model rejected; return whether there are any.
   *
   * `sent` are the media types of the files in the rejected request. The next request has notes
   * instead of rejected files of tools and of earlier turns. Throws `unsupported_file` if the
   * turn's request has such files.
   */
  reduce(error: unknown, sent: readonly string[]): boolean {
    const accepted = sent.filter((type) => this.types.includes(type))
    const kinds = rejectedKinds(error, accepted)
    if (kinds.length === 0) return false
    this.types = this.types.filter((type) => !kinds.includes(kindOf(type)))
    const names = kinds.join(' or ')
    if (this.#files.some(({ mediaType }) => kinds.includes(kindOf(mediaType)))) {
      const failure = unsupported(`The model does not read ${names}`, this.types)
      failure.detail = describe(error)
      failure.cause = error
      throw failure
    }
    log('WARNING', `model: it does not read ${names}: set FILE_TYPES in the model module`)
    return true
  }
}
