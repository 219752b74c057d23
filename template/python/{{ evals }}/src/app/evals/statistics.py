"""How sure a count of passed runs is."""

from math import comb, sqrt

SURE = 0.05  # a difference is more than chance if its probability by chance is below


def interval(passed: int, runs: int) -> tuple[float, float]:
    """Return the Wilson interval of 95 % for a share of passed runs, from 0 to 1."""
    share, z = passed / runs, 1.96
    middle = share + z * z / (2 * runs)
    half = z * sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    scale = 1 + z * z / runs
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def by_chance(passed: int, runs: int, passed_before: int, runs_before: int) -> float:
    """Return how probable so great a difference is by chance: Fisher's exact test, two sides."""
    total, all_passed = runs + runs_before, passed + passed_before

    def weight(count: int) -> int:
        return comb(runs, count) * comb(runs_before, all_passed - count)

    low, high = max(0, all_passed - runs_before), min(runs, all_passed)
    as_rare = [w for w in map(weight, range(low, high + 1)) if w <= weight(passed)]
    return sum(as_rare) / comb(total, all_passed)
