// Medians, percentiles, and how a run of timed steps is summed up.

export function percentile(sorted: readonly number[], p: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor((p / 100) * sorted.length))] ?? 0;
}

export interface Timing {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly meanMs: number;
}

/** Sums up durations in milliseconds. */
export function summarize(durationsMs: readonly number[]): Timing {
  const sorted = [...durationsMs].sort((a, b) => a - b);
  return {
    p50Ms: percentile(sorted, 50),
    p99Ms: percentile(sorted, 99),
    meanMs: sorted.reduce((sum, one) => sum + one, 0) / Math.max(1, sorted.length),
  };
}

/** Durations of `count` runs of a step, one after the other, in milliseconds. */
export async function timed(count: number, step: (index: number) => Promise<unknown>): Promise<number[]> {
  const durations: number[] = [];
  for (let index = 0; index < count; index++) {
    const begun = performance.now();
    await step(index);
    durations.push(performance.now() - begun);
  }
  return durations;
}

export function median(values: readonly number[]): number {
  return percentile(
    [...values].sort((a, b) => a - b),
    50,
  );
}

export const ms = (value: number): string => `${value.toFixed(2)} ms`;
