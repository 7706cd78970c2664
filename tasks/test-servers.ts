// Tests against real servers: Synapse, Envoy, the issuer, the bridge; of the lab's own programs, and of the npm packages as
// they are installed. Each file starts its own.
import { CLI_VARIABLE } from "../lab/programs.ts";
import { CRASH_RUN, LAB_RUN, ORDERS_SEED, STOPS } from "../tests/support/kills.ts";
import { bundleForTests } from "./build.ts";
import { optionValue, runTests, SEED, without } from "./run-tests.ts";

const MINUTE_MS = 60_000;
const SHORT = "--short";
const TIMES = "--times";
/** Thirty random orders of two to three minutes each; a short run has three of about one. */
const LAB_TEST_MINUTES = { short: 15, whole: 240 };
/** Minutes each, and other files exercise the same workflows, or it is a measurement: left out by `--short`. */
const LONG_FILES = [
  "tests/lab/federation/offboarding/kept-rooms.test.ts",
  "tests/lab/federation/leaks.test.ts",
];
/** `--short` leaves the longest out; `--seed N` repeats the random orders of an earlier run. */
export async function testLab(args: readonly string[]): Promise<number> {
  const isShort = args.includes(SHORT);
  const seed = optionValue(args, SEED);
  return runTests({
    folders: ["tests/lab"],
    args: without(args, SHORT, SEED, seed),
    except: isShort ? LONG_FILES : [],
    // Servers that start, and tests that wait for them, leave a core idle.
    concurrency: 3,
    timeoutMs: LAB_TEST_MINUTES[isShort ? "short" : "whole"] * MINUTE_MS,
    env: {
      [CLI_VARIABLE]: await bundleForTests(),
      ...(isShort ? { [LAB_RUN]: "short" } : {}),
      ...(seed === undefined ? {} : { [ORDERS_SEED]: seed }),
    },
  });
}

/** It takes most of two fast cores for a fixed rate, and says how long each question waited: no part of a short run. */
const ALONE = "tests/crash/active-processes-load.test.ts";

/** Kills programs, ours and the homeserver, at boundaries and at random instants, and checks what becomes of their work. */
export async function testCrashRecovery(args: readonly string[]): Promise<number> {
  const words = without(args, SHORT);
  const run = (also: readonly string[]) =>
    runTests({
      folders: ["tests/crash"],
      args: [...words, ...also],
      except: [ALONE],
      timeoutMs: 60 * MINUTE_MS,
      env: args.includes(SHORT) ? { [CRASH_RUN]: "short" } : {},
    });
  const code = await run([]);
  const isWhole = args.every((word) => word.startsWith("-") && word !== SHORT);
  return isWhole ? (await run([ALONE])) || code : code;
}

/** Stops the homeserver under load, `--times` times in each kind of room. */
export function testHomeserverStops(args: readonly string[]): Promise<number> {
  const times = optionValue(args, TIMES);
  return runTests({
    folders: ["tests/crash"],
    args: ["homeserver-stops"],
    timeoutMs: 120 * MINUTE_MS,
    env: times === undefined ? {} : { [STOPS]: times },
  });
}
