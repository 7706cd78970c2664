// What people see of the bridge in Element Web, in headless Chromium. Element Web's interface is built from its npm packages
// into the clone's own folder; Chromium is the machine's own.
// Invariants: nothing of Element Web is part of the repository or of a package that is published; its packages are those
// of the lock file beside the sources of the build.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { sha256 } from "../src/domain/digest.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { ROOT, runProgram } from "./run-program.ts";
import { runTests } from "./run-tests.ts";

const SOURCES = join(ROOT, "tests", "element", "web");
const TOOLS = join(ROOT, ".drawbridge", "tools");
const BUILT = join("dist", "index.html");
/** Names a Chromium that is not in the path. */
const CHROMIUM_VARIABLE = "CHROMIUM";
const CHROMIUM_NAMES = ["chromium", "chromium-browser", "google-chrome"];
const CHROMIUM_HINT =
  "Install it, with fonts (Debian: sudo apt-get install --no-install-recommends chromium fonts-liberation " +
  `fonts-noto-color-emoji), or name the program in the variable ${CHROMIUM_VARIABLE}; then run the task again.`;
const WRITE = "--write";
const FILE_TIMEOUT_MS = 15 * 60_000;

/** `--write` replaces the pictures of the documentation. */
export async function testElement(args: readonly string[]): Promise<number> {
  const chromium = findChromium();
  const element = await buildElement();
  const pictures = args.includes(WRITE) ? join(ROOT, "docs", "images") : join(TOOLS, "element-pictures");
  mkdirSync(pictures, { recursive: true });
  const code = await runTests({
    folders: ["tests/element"],
    args: args.filter((argument) => argument !== WRITE),
    concurrency: 1,
    timeoutMs: FILE_TIMEOUT_MS,
    env: {
      DRAWBRIDGE_TEST_CHROMIUM: chromium,
      DRAWBRIDGE_TEST_ELEMENT: element,
      DRAWBRIDGE_TEST_PICTURES: pictures,
    },
  });
  process.stderr.write(`The pictures are in ${pictures}\n`);
  return code;
}

function findChromium(): string {
  const named = process.env[CHROMIUM_VARIABLE];
  for (const name of named === undefined ? CHROMIUM_NAMES : [named]) {
    const { status, stdout } = spawnSync(name, ["--version"], { encoding: "utf8", timeout: 20_000 });
    if (status !== 0) continue;
    process.stderr.write(`${stdout.trim()}\n`);
    return spawnSync("sh", ["-c", 'command -v "$0"', name], { encoding: "utf8" }).stdout.trim();
  }
  throw new DrawbridgeError("program_failed", "Chromium does not run here", { hint: CHROMIUM_HINT });
}

/** The folder of the built interface. Made beside its final place, so that half a build is never taken for a whole one. */
async function buildElement(): Promise<string> {
  const folder = join(TOOLS, `element-web-${sourcesDigest()}`);
  if (existsSync(join(folder, BUILT))) return join(folder, "dist");
  process.stderr.write("Installing and building Element Web's interface, 360 MB, one to three minutes …\n");
  const staging = join(TOOLS, "element-web.new");
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(TOOLS, { recursive: true });
  cpSync(SOURCES, staging, { recursive: true });
  const npm = ["ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"];
  await demand("npm", npm, staging, "See that the npm registry can be reached; then run the task again.");
  await demand(process.execPath, ["build.mjs"], staging, "Remove the folder and run the task again.");
  rmSync(folder, { recursive: true, force: true });
  renameSync(staging, folder);
  return join(folder, "dist");
}

function sourcesDigest(): string {
  const files = globSync("**/*.*", { cwd: SOURCES }).sort();
  const texts = files.map((file) => `${file}\n${readFileSync(join(SOURCES, file), "utf8")}`);
  return sha256(texts.join("\n")).toString("hex").slice(0, 12);
}

async function demand(program: string, args: readonly string[], cwd: string, hint: string): Promise<void> {
  const { code, output } = await runProgram(program, args, { quiet: true, cwd });
  if (code === 0) return;
  throw new DrawbridgeError("program_failed", `${program} ${args[0]} failed in ${cwd}\n${output}`, { hint });
}
