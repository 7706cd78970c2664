// Tests against real servers: Synapse, Envoy, the issuer, the bridge. Each file starts its own.
import { CRASH_RUN, STOPS } from "../tests/support/kills.ts";
import { runTests } from "./run-tests.ts";

const MINUTE_MS = 60_000;
const SHORT = "--short";
const TIMES = "--times";
/** Minutes each, and other files exercise the same workflows: left out by `--short`. */
const LONG_FILES = ["tests/lab/federation/offboarding/kept-rooms.test.ts"];
/** Its load needs both cores for minutes: left out by `--short`. */
const LOAD_FILES = ["tests/crash/active-processes.test.ts"];

function without(args: readonly string[], option: string): string[] {
  return args.filter((argument) => argument !== option);
}

export function testLab(args: readonly string[]): Promise<number> {
  return runTests({
    folders: ["tests/lab"],
    args: without(args, SHORT),
    except: args.includes(SHORT) ? LONG_FILES : [],
    // Servers that start, and tests that wait for them, leave a core idle.
    concurrency: 2,
    timeoutMs: 15 * MINUTE_MS,
  });
}

/** Kills programs, ours and the homeserver, at random instants and checks what becomes of their work. */
export function testCrashRecovery(args: readonly string[]): Promise<number> {
  return runTests({
    folders: ["tests/crash"],
    args: without(args, SHORT),
    except: args.includes(SHORT) ? LOAD_FILES : [],
    timeoutMs: 30 * MINUTE_MS,
    env: args.includes(SHORT) ? { [CRASH_RUN]: "short" } : {},
  });
}

/** Stops the homeserver under load, `--times` times in each kind of room. */
export function testHomeserverStops(args: readonly string[]): Promise<number> {
  const position = args.indexOf(TIMES);
  const times = position < 0 ? undefined : args[position + 1];
  return runTests({
    folders: ["tests/crash"],
    args: ["homeserver-stops"],
    timeoutMs: 120 * MINUTE_MS,
    env: times === undefined ? {} : { [STOPS]: times },
  });
}
