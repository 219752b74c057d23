// A reporter for node:test that ends the run at the first test that fails, with exit code 3.

export default async function* firstFailure(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:fail') continue
    // A file that cannot be loaded is no test.
    const isTest = data.nesting > 0 || data.name !== data.file
    console.log(`FAILED ${data.file}::${data.name}\n${data.details.error.stack}`, data.details.error.cause ?? '')
    process.exit(isTest ? 3 : 1)
  }
}
