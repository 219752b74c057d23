// The findings of `check` about settings and files, and the errors that end a command.

/** A finding of `check`; `line` is 0 if the finding has no line. */
export interface Finding {
  id: string
  severity: 'error' | 'warning'
  file: string
  line: number
  message: string
}

/** Return a finding of `check`. */
export function diagnostic(
  id: string,
  message: string,
  severity: Finding['severity'] = 'error',
  file = 'environment',
  line = 0,
): Finding {
  return { id, severity, file, line, message }
}

/** Return a finding as one line of text: place, id and message. */
export function formatFinding({ file, line, id, message }: Finding): string {
  return `${file}:${line} ${id} ${message}`
}

/** Ends a command and prints the message to stderr. Exit code 2 means invalid arguments. */
export class CommandError extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/** Return the findings that are errors. */
export function errorsOf(findings: readonly Finding[]): Finding[] {
  return findings.filter(({ severity }) => severity === 'error')
}

/** Throw CommandError if a finding is an error. */
export function refuseErrors(findings: readonly Finding[]): void {
  const lines = errorsOf(findings).map((finding) =>
    finding.file === 'environment' ? finding.message : formatFinding(finding),
  )
  if (lines.length > 0) throw new CommandError(lines.join('\n'))
}
