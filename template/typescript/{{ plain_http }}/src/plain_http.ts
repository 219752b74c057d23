// Whether a URL is safe for a secret.

const PLAIN_HTTP = /^http:\/\/(?!([^/?#]*@)?(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?([/?#]|$))/i

/** Whether what is sent to a URL can be read on its way to another host. */
export function isPlainHttp(url: string): boolean {
  return PLAIN_HTTP.test(url)
}
