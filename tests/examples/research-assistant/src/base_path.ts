// Serves the agent below a path, behind a proxy that does not remove it.

import type { RequestListener } from 'node:http'

import { Capability } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

export class BasePath extends Capability<Settings> {
  override wrap(app: RequestListener): RequestListener {
    const { basePath } = this.settings
    return (request, response) => {
      if (request.url?.startsWith(`${basePath}/`)) request.url = request.url.slice(basePath.length)
      return app(request, response)
    }
  }
}
