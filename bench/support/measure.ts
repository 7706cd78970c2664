// Medians, percentiles, and how a run of timed steps is summed up.
import { readFileSync } from "node:fs";

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

/** Ticks a second of the times in proc(5). */
const TICKS = 100;

/** Processor time of a process and of the programs that it has run to their end, in milliseconds. */
export function processorMs(of: number | "self" = "self"): number {
  const stat = readFileSync(`/proc/${of}/stat`, "utf8");
  // The name in parentheses may hold blanks; utime, stime, cutime and cstime are fields 14 to 17.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0) * 1_000) / TICKS;
}

/** Resident memory of a process, in MiB. */
export function residentMiB(pid: number): number {
  const line = readFileSync(`/proc/${pid}/status`, "utf8").match(/^VmRSS:\s+(\d+) kB$/m);
  return Number(line?.[1] ?? 0) / 1024;
}

/** How long one step takes, in milliseconds, and its result. */
export async function timedOnce<Result>(
  step: () => Promise<Result>,
): Promise<{ readonly ms: number; readonly value: Result }> {
  const begun = performance.now();
  const value = await step();
  return { ms: performance.now() - begun, value };
}

export const seconds = (value: number): string => `${(value / 1_000).toFixed(1)} s`;

export const ms = (value: number): string => `${value.toFixed(2)} ms`;
