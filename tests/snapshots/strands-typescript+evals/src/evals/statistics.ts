// How sure a count of passed runs is.

/** A difference is more than chance if its probability by chance is below. */
export const SURE = 0.05

/** Return the Wilson interval of 95 % for a share of passed runs, from 0 to 1. */
export function interval(passed: number, runs: number): [number, number] {
  const [share, z] = [passed / runs, 1.96]
  const middle = share + (z * z) / (2 * runs)
  const half = z * Math.sqrt((share * (1 - share)) / runs + (z * z) / (4 * runs * runs))
  const scale = 1 + (z * z) / runs
  return [Math.max(0, (middle - half) / scale), Math.min(1, (middle + half) / scale)]
}

/** Return how probable so great a difference is by chance: Fisher's exact test, two sides. */
export function byChance(passed: number, runs: number, before: number, runsBefore: number): number {
  const all = passed + before
  const weight = (count: number) => choose(runs, count) * choose(runsBefore, all - count)
  const [low, high] = [Math.max(0, all - runsBefore), Math.min(runs, all)]
  const weights = Array.from({ length: high - low + 1 }, (_, index) => weight(low + index))
  const asRare = weights.filter((one) => one <= weight(passed))
  const rare = asRare.reduce((sum, one) => sum + one, 0n)
  return Number((rare * 1_000_000n) / choose(runs + runsBefore, all)) / 1_000_000
}

function choose(from: number, count: number): bigint {
  let ways = 1n
  for (let step = 1; step <= count; step++) {
    ways = (ways * BigInt(from - count + step)) / BigInt(step)
  }
  return ways
}
