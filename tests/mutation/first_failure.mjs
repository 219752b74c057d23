// A reporter for node:test that ends the run at the first test that fails, with exit code 3.

export default async function* firstFailure(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:fail') continue
    const { stack, cause } = data.details.error
    console.log(`FAILED ${data.file}::${data.name}\n${cause?.stack ?? stack}`)
    // What bears the name of its file is a file that cannot be loaded, and no test.
    process.exit(data.file?.endsWith(data.name) ? 1 : 3)
  }
}
