// What the border module costs at each event that another server sends.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import * as z from "zod";
import { findPrograms } from "../lab/programs.ts";
import { ROOT } from "../tests/support/temporary.ts";
import type { Bench } from "./bench.ts";

const BAR_US = 3;
const FLAT = 1.2;

const Times = z.object({ empty: z.number(), border: z.number() });
const Found = z.object({ "10": Times, "100000": Times });

export const bench: Bench = {
  name: "Border callback",
  minutes: 1,
  description:
    "`should_drop_federated_event` of the border module for an event that comes in, against a callback that " +
    "returns at once, with 10 and with 100,000 allowed servers. It looks at the policy file's state each time.",
  async run() {
    const { stdout } = await promisify(execFile)(
      findPrograms().python,
      [join(ROOT, "bench/border/callback.py")],
      { env: { ...process.env, PYTHONPATH: join(ROOT, "border/src") } },
    );
    const found = Found.parse(JSON.parse(stdout));
    const us = (ns: number) => `${(ns / 1_000).toFixed(2)} µs`;
    const above = (times: z.output<typeof Times>) => times.border - times.empty;
    const [small, large] = [found["10"], found["100000"]];
    const ratio = large.border / small.border;
    return [
      ...(
        [
          ["10", small],
          ["100,000", large],
        ] as const
      ).map(([servers, times]) => ({
        measure: `one callback, ${servers} servers`,
        ours: us(times.border),
        reference: `${us(times.empty)} (empty callback)`,
        bar: `≤ ${BAR_US} µs more`,
        outcome: `${us(above(times))} more`,
        met: above(times) <= BAR_US * 1_000,
        numbers: { ours: times.border / 1_000, reference: times.empty / 1_000, unit: "µs" },
      })),
      {
        measure: "100,000 servers against 10",
        ours: us(large.border),
        reference: us(small.border),
        bar: `flat: ≤ ${FLAT}×`,
        outcome: `${ratio.toFixed(2)}×`,
        met: ratio <= FLAT,
      },
    ];
  },
};
