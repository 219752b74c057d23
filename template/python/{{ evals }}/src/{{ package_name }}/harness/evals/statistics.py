"""Statistics of pass rates: confidence interval, and Fisher's exact test."""

from math import comb, sqrt

SIGNIFICANCE = 0.05  # differences with a smaller p-value are significant


def interval(passed: int, runs: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a pass rate; its bounds are from 0 to 1."""
    share = passed / runs
    z = 1.96
    middle = share + z * z / (2 * runs)
    half = z * sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    scale = 1 + z * z / runs
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def fisher_p(passed: int, runs: int, passed_before: int, runs_before: int) -> float:
    """Return the two-sided p-value of Fisher's exact test."""
    total = runs + runs_before
    all_passed = passed + passed_before

    def weight(count: int) -> int:
        return comb(runs, count) * comb(runs_before, all_passed - count)

    low = max(0, all_passed - runs_before)
    high = min(runs, all_passed)
    tail = [w for w in map(weight, range(low, high + 1)) if w <= weight(passed)]
    return sum(tail) / comb(total, all_passed)


def describe_change(passed: int, runs: int, passed_before: int, runs_before: int) -> str:
    """Describe the difference of two pass rates, and whether it is significant."""
    # With few runs, even a drop from all passed to none is not significant.
    if fisher_p(0, runs, runs_before, runs_before) >= SIGNIFICANCE:
        return "too few runs to compare"
    p = fisher_p(passed, runs, passed_before, runs_before)
    value = f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
    if p >= SIGNIFICANCE:
        return f"not significant ({value})"
    is_worse = passed / runs < passed_before / runs_before
    return f"significantly {'worse' if is_worse else 'better'} ({value})"
