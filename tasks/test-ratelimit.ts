// Gateways that share a limiter. The service is built by Go from its sources into the clone's own folder; Redis
// is the machine's own.
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { ROOT, runProgram } from "./run-program.ts";
import { runTests } from "./run-tests.ts";

/** The project makes no releases; this is a commit of its main branch. */
const VERSION = "v1.4.1-0.20260122083618-3fb702589d36";
const PACKAGE = "github.com/envoyproxy/ratelimit/src/service_cmd";
const FOLDER = join(ROOT, ".drawbridge", "tools", `ratelimit-${VERSION}`);
const FILE_TIMEOUT_MS = 10 * 60_000;

export async function testRatelimit(args: readonly string[]): Promise<number> {
  const redis = await demand(
    "redis-server",
    ["--version"],
    "Install it: sudo apt-get install redis-server (its service need not run).",
  );
  return runTests({
    folders: ["tests/ratelimit"],
    args,
    concurrency: 1,
    timeoutMs: FILE_TIMEOUT_MS,
    env: { DRAWBRIDGE_TEST_REDIS: redis, DRAWBRIDGE_TEST_RATELIMIT: await build() },
  });
}

async function demand(program: string, args: readonly string[], hint: string): Promise<string> {
  const { code } = await runProgram(program, args, { quiet: true });
  if (code === 0) return program;
  throw new DrawbridgeError("program_failed", `${program} does not run here`, { hint });
}

async function build(): Promise<string> {
  const program = join(FOLDER, "service_cmd");
  if (existsSync(program)) return program;
  await demand("go", ["version"], "Install Go 1.23 or newer, such as from https://go.dev/dl.");
  process.stderr.write(`Building envoyproxy/ratelimit ${VERSION} …\n`);
  mkdirSync(FOLDER, { recursive: true });
  const { code, output } = await runProgram("go", ["install", `${PACKAGE}@${VERSION}`], {
    quiet: true,
    env: { GOBIN: FOLDER },
  });
  if (code === 0) return program;
  throw new DrawbridgeError("program_failed", `Go could not build the rate limit service\n${output}`, {
    hint: "See that a Go module proxy can be reached (go env GOPROXY); then run the task again.",
  });
}
