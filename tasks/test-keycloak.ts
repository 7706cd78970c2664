// The issuer's contract on a real Keycloak. Keycloak comes from Maven Central into the clone's own folder and
// runs there, in memory, for as long as the tests do. Java 17 and Maven are expected on the machine.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { ROOT, runProgram } from "./run-program.ts";
import { runTests } from "./run-tests.ts";

const VERSION = "26.7.3";
const PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";
const TOOLS = join(ROOT, ".drawbridge", "tools");
const HOME = join(TOOLS, `keycloak-${VERSION}`);
const START_TIMEOUT_MS = 240_000;
const FILE_TIMEOUT_MS = 10 * 60_000;

export async function testKeycloak(args: readonly string[]): Promise<number> {
  await demand("java", ["-version"], "Install Java 17 or newer, such as Debian's openjdk-17-jre-headless.");
  await install();
  const keycloak = await startKeycloak();
  try {
    return await runTests({
      folders: ["tests/integration/issuer", "tests/keycloak"],
      args: args.length > 0 ? args : ["issuer/contract.test.ts", "tests/keycloak"],
      concurrency: 1,
      timeoutMs: FILE_TIMEOUT_MS,
      env: {
        DRAWBRIDGE_TEST_KEYCLOAK: keycloak.url,
        DRAWBRIDGE_TEST_KEYCLOAK_PASSWORD: keycloak.password,
      },
    });
  } finally {
    await keycloak.stop();
  }
}

async function demand(program: string, args: readonly string[], hint: string): Promise<void> {
  const { code } = await runProgram(program, args, { quiet: true });
  if (code !== 0) throw new DrawbridgeError("program_failed", `${program} does not run here`, { hint });
}

/** Unpacked beside its final place, so that an interrupted download is never taken for a whole one. */
async function install(): Promise<void> {
  if (existsSync(join(HOME, "bin", "kc.sh"))) return;
  await demand("mvn", ["-version"], "Install Maven, such as Debian's package maven.");
  process.stderr.write(`Fetching Keycloak ${VERSION} from Maven Central, 190 MB …\n`);
  const staging = join(TOOLS, "keycloak.new");
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { recursive: true });
  const { code, output } = await runProgram(
    "mvn",
    [
      ...["-q", "-B", `${PLUGIN}:unpack`],
      `-Dartifact=org.keycloak:keycloak-quarkus-dist:${VERSION}:zip`,
      `-DoutputDirectory=${staging}`,
      `-Dmaven.repo.local=${join(TOOLS, "maven")}`,
    ],
    // Maven leaves a folder of markers where it runs.
    { quiet: true, cwd: staging },
  );
  const unpacked = join(staging, `keycloak-${VERSION}`);
  if (code !== 0 || !existsSync(unpacked)) {
    throw new DrawbridgeError("program_failed", `Maven could not fetch Keycloak ${VERSION}\n${output}`, {
      hint: "See that Maven Central, or the mirror in settings.xml, can be reached; then run the task again.",
    });
  }
  renameSync(unpacked, HOME);
  rmSync(staging, { recursive: true, force: true });
}

interface RunningKeycloak {
  readonly url: string;
  readonly password: string;
  stop(): Promise<void>;
}

async function startKeycloak(): Promise<RunningKeycloak> {
  const [port, management] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${port}`;
  const password = randomBytes(16).toString("hex");
  const logFile = join(TOOLS, "keycloak.log");
  const log = openSync(logFile, "w");
  process.stderr.write("Starting Keycloak, about 40 s …\n");
  const child = spawn(
    "sh",
    [
      ...[join(HOME, "bin", "kc.sh"), "start-dev", "--db=dev-mem", "--cache=local"],
      ...["--http-host=127.0.0.1", `--http-port=${port}`, `--http-management-port=${management}`],
      `--hostname=${url}`,
    ],
    {
      // A group of its own: the script's Java must end with it.
      detached: true,
      stdio: ["ignore", log, log],
      env: { ...process.env, KC_BOOTSTRAP_ADMIN_USERNAME: "admin", KC_BOOTSTRAP_ADMIN_PASSWORD: password },
    },
  );
  closeSync(log);
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const end = (signal: NodeJS.Signals) => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, signal);
    } catch {
      // It has ended.
    }
  };
  const endAtOnce = () => end("SIGKILL");
  process.once("exit", endAtOnce);
  const stop = async () => {
    end("SIGTERM");
    await Promise.race([ended, sleep(10_000, undefined, { ref: false })]);
    endAtOnce();
    process.off("exit", endAtOnce);
  };
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (child.exitCode === null && performance.now() < deadline) {
    const isUp = await fetch(`${url}/realms/master`).then(
      (response) => response.ok,
      () => false,
    );
    if (isUp) return { url, password, stop };
    await sleep(250);
  }
  await stop();
  throw new DrawbridgeError("program_failed", "Keycloak does not start", { hint: `Read ${logFile}.` });
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        if (address === null || typeof address === "string") reject(new Error("no port"));
        else resolve(address.port);
      });
    });
  });
}
