// The capability that loads collection files and reads their secrets.

import { Capability } from '../capability.ts'
import { AgentError } from '../contract.ts'
import { errorsOf, type Finding } from '../findings.ts'
import { secretRefs } from './backends.ts'
import { checkProject, loadProject, type Project } from './check.ts'
import { type Stock, unerasable } from './erasure.ts'
import { SecretError, Secrets } from './secrets.ts'
import type { DeclarationSettings } from './settings.ts'

const UNUSED =
  "not looked at, because the agent does not use it. Add it to the agent's file, and run this again"

/** The agent's collections. Other capabilities connect to the backends that they declare. */
export class Declarations extends Capability<DeclarationSettings> {
  /** At startup; `eval` skips this. */
  readonly readsSecrets = true
  readonly secrets = new Secrets(this.settings)
  /** Whether `check` has found an error. */
  hasErrors = false
  #project: Project | null = null

  /** The project. Run `check` first: with invalid files, this throws arbitrary errors. */
  get project(): Project {
    return (this.#project ??= loadProject('.', this.settings.agentId))
  }

  override check(): Finding[] {
    const findings = checkProject('.', this.settings.agentId, this.settings.checkAgainst)
    this.hasErrors = errorsOf(findings).length > 0
    return findings
  }

  /** Return the collections that the agent does not use: they may have data from before. */
  projectStocks(): Stock[] {
    const used = this.project.used().map(({ collection_id: id }) => id)
    const unused = [...this.project.collections.keys()].filter((id) => !used.includes(id))
    return unused.map((id) => unerasable(`data of collection ${id}`, 'its store', UNUSED))
  }

  /** Read the secrets that turns need. Throws AgentError if a secret is missing. */
  override async open(): Promise<void> {
    const used = this.settings.model === 'offline' ? [] : this.project.used()
    try {
      for (const ref of used.flatMap(({ backend }) => secretRefs(backend))) {
        await this.secrets.get(ref)
      }
    } catch (error) {
      if (!(error instanceof SecretError)) throw error
      throw new AgentError('store_unavailable', '', error.message)
    }
  }
}
