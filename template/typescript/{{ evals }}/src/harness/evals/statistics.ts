// Statistics of pass rates: confidence interval, and Fisher's exact test.

const SIGNIFICANCE = 0.05 // differences with a smaller p-value are significant

/** Return the 95 % Wilson interval of a pass rate; its bounds are from 0 to 1. */
export function interval(passed: number, runs: number): [number, number] {
  const share = passed / runs
  const z = 1.96
  const middle = share + (z * z) / (2 * runs)
  const half = z * Math.sqrt((share * (1 - share)) / runs + (z * z) / (4 * runs * runs))
  const scale = 1 + (z * z) / runs
  return [Math.max(0, (middle - half) / scale), Math.min(1, (middle + half) / scale)]
}

/** Return the two-sided p-value of Fisher's exact test. */
export function fisherP(passed: number, runs: number, before: number, runsBefore: number): number {
  const all = passed + before
  const weight = (count: number) => choose(runs, count) * choose(runsBefore, all - count)
  const low = Math.max(0, all - runsBefore)
  const high = Math.min(runs, all)
  const weights = Array.from({ length: high - low + 1 }, (_, index) => weight(low + index))
  const tail = weights.filter((value) => value <= weight(passed))
  const ways = tail.reduce((sum, value) => sum + value, 0n)
  return Number((ways * 1_000_000n) / choose(runs + runsBefore, all)) / 1_000_000
}

/** Describe the difference of two pass rates, and whether it is significant. */
export function describeChange(
  passed: number,
  runs: number,
  before: number,
  runsBefore: number,
): string {
  // With few runs, even a drop from all passed to none is not significant.
  if (fisherP(0, runs, runsBefore, runsBefore) >= SIGNIFICANCE) return 'too few runs to compare'
  const p = fisherP(passed, runs, before, runsBefore)
  const value = p >= 0.001 ? `p = ${p.toFixed(3)}` : 'p < 0.001'
  if (p >= SIGNIFICANCE) return `not significant (${value})`
  const isWorse = passed / runs < before / runsBefore
  return `significantly ${isWorse ? 'worse' : 'better'} (${value})`
}

function choose(from: number, count: number): bigint {
  let ways = 1n
  for (let step = 1; step <= count; step++) {
    ways = (ways * BigInt(from - count + step)) / BigInt(step)
  }
  return ways
}
