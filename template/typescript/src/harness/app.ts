// The application: the project's own modules and the enabled capabilities.

import { join, sep } from 'node:path'
import { pathToFileURL } from 'node:url'

import type { App, Capability, CapabilityClass } from './capability.ts'
import { loadClasses, type Settings, SETTINGS } from './enabled.ts'
import { type Finding, refuseErrors } from './findings.ts'
import { logging } from './log.ts'
import type { AgentModule, ModelModule, Modules, Routes } from './modules.ts'
import { type CoreSettings, type Declarations, readSettings } from './settings.ts'

/** The module `own_capabilities`. */
export interface OwnModule {
  readonly OWN_SETTINGS: Declarations
  readonly OWN_CAPABILITIES: readonly CapabilityClass[]
}

/** Your modules; commands load `agent`, `model` and `routes` when they need them. */
export interface OwnModules {
  /** The folder of your modules. */
  readonly folder: string
  readonly agent: () => Promise<AgentModule>
  readonly model: () => Promise<ModelModule>
  readonly routes: () => Promise<Routes>
  /** Your long-term memory policy, if the project has memory. */
  readonly memory?: () => Promise<object>
  readonly own: OwnModule
}

/** An agent composed of your modules and the harness. */
export class AgentApp implements App<Settings> {
  readonly own: OwnModule
  readonly load: Modules

  constructor({ folder, agent, model, routes, memory, own }: OwnModules) {
    this.own = own
    logging.sources = pathToFileURL(join(folder, sep)).href
    this.load = {
      folder,
      agent: once(agent),
      model: once(model),
      routes: once(routes),
      ...(memory && { memory: once(memory) }),
    }
  }

  /** Read the environment and .env; return settings and findings. */
  readSettings(): [Settings, Finding[]] {
    return readSettings<typeof SETTINGS>({ ...SETTINGS, ...this.own.OWN_SETTINGS })
  }

  /** Return the findings about the model. */
  async checkModel(settings: CoreSettings): Promise<Finding[]> {
    if (settings.model === 'offline') return []
    const { checkModel } = await this.load.model()
    return checkModel(settings)
  }

  /** Return the capabilities; the project's own come last. */
  async makeCapabilities(settings: Settings): Promise<Capability[]> {
    const classes = [...(await loadClasses()), ...this.own.OWN_CAPABILITIES]
    const capabilities: Capability[] = []
    for (const Class of classes) {
      capabilities.push(new Class(settings as never, [...capabilities], this.load))
    }
    return capabilities
  }

  /** Return the capabilities, for a command that runs no turns; refuse invalid settings. */
  async loadCapabilities(): Promise<Capability[]> {
    const [settings, findings] = this.readSettings()
    refuseErrors(findings)
    return this.makeCapabilities(settings)
  }
}

/** Return a function that calls `load` only once. */
function once<T>(load: () => Promise<T>): () => Promise<T> {
  let loaded: Promise<T> | undefined
  return () => {
    loaded ??= load()
    return loaded
  }
}
