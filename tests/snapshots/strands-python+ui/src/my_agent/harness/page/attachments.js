// Files of a prompt: in the composer, and in the conversation.

import { element } from './markdown.js'

const WORD = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'
// Browsers do not report the types of .csv, .docx and .md on all systems.
const TYPES = new Map([
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['gif', 'image/gif'],
  ['webp', 'image/webp'],
  ['pdf', 'application/pdf'],
  ['docx', WORD],
  ['txt', 'text/plain'],
  ['csv', 'text/csv'],
  ['md', 'text/markdown'],
])
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,/

/** The types that the file dialog offers. */
export const ACCEPT = [...TYPES].flatMap(([extension, type]) => [`.${extension}`, type]).join()

/** Read files; return parts of a message, or null for a folder or a lost file. */
export function readFiles(files) {
  return Promise.all(files.map(readFile)).catch(() => null)
}

async function readFile(file) {
  const extension = file.name.split('.').at(-1).toLowerCase()
  const mediaType = TYPES.get(extension) ?? (file.type || 'application/octet-stream')
  const url = await readUrl(file.slice(0, file.size, mediaType))
  return { type: 'file', mediaType, filename: file.name, url }
}

function readUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(reader.result)
    reader.onerror = () => reject(reader.error)
    reader.readAsDataURL(blob)
  })
}

/** Return the files in the parts of a message. */
export function filesIn(parts) {
  return parts.filter(({ type }) => type === 'file')
}

/** Return the size of a file in bytes. */
export function sizeOf({ url }) {
  const data = url.slice(url.indexOf(',') + 1).replace(/=+$/, '')
  return Math.floor((data.length * 3) / 4)
}

/** Return the list items of attachments; `remove` gets the index of a file. */
export function attachmentItems(files, remove) {
  return files.map((file, index) => {
    const button = element('button', '', '✕')
    const label = `Remove ${file.filename}`
    Object.assign(button, { type: 'button', ariaLabel: label, title: label })
    button.onclick = () => remove(index)
    const size = element('small', '', formatSize(sizeOf(file)))
    // The name is beside the image.
    const image = IMAGE.test(file.url) ? imageOf(file, '') : ''
    return element('li', '', image, element('bdi', '', file.filename), size, button)
  })
}

/** Return the list of the files in a sent message, or '' without files. */
export function fileList(files) {
  if (files.length === 0) return ''
  const items = files.map((file) => {
    if (IMAGE.test(file.url)) return element('li', '', imageOf(file, file.filename || 'Image'))
    return element('li', 'file', element('bdi', '', file.filename || 'File'))
  })
  const list = element('ul', 'files', ...items)
  list.ariaLabel = 'Files'
  return list
}

function imageOf({ url }, alt) {
  const image = element('img')
  Object.assign(image, { src: url, alt })
  return image
}

function formatSize(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`
}
