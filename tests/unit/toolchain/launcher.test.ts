// bin/drawbridge: which Node.js and which files it runs, and that it passes everything through.
// The launcher is copied into made-up installations and told to want a Node.js newer than any.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { ROOT, run, start, temporaryFolder, writeFile } from "../../support/temporary.ts";

const LAUNCHER = readFileSync(join(ROOT, "bin", "drawbridge"), "utf8");

interface Layout {
  /** Where npm has put the package `node`, from the installation's root. */
  readonly nodePackage?: string;
  readonly wanted?: number;
}

const MAIN = `
process.on("SIGTERM", () => process.exit(7));
const [what, ...rest] = process.argv.slice(2);
if (what === "wait") { console.log("waiting"); setInterval(() => {}, 1000); }
else if (what === "die") process.kill(process.pid, "SIGKILL");
else { console.log(JSON.stringify({ file: import.meta.url, node: process.execPath, rest })); process.exitCode = Number(what); }
`;

function install(t: TestContext, layout: Layout = {}): { launcher: string; root: string } {
  const root = temporaryFolder(t);
  const packageRoot = join(root, "node_modules", "drawbridge");
  writeFile(join(packageRoot, "package.json"), '{ "name": "drawbridge", "type": "module" }');
  const launcher = join(packageRoot, "bin", "drawbridge");
  writeFile(launcher, LAUNCHER.replace("OLDEST_NODE = 24", `OLDEST_NODE = ${layout.wanted ?? 999}`), 0o755);
  writeFile(join(packageRoot, "dist", "cli", "main.js"), MAIN);
  if (layout.nodePackage !== undefined) {
    const node = join(root, layout.nodePackage, "bin", "node");
    mkdirSync(dirname(node), { recursive: true });
    symlinkSync(process.execPath, node);
    writeFile(join(root, layout.nodePackage, "package.json"), '{ "name": "node" }');
  }
  return { launcher, root };
}

const HOISTED = "node_modules/node";
const NESTED = "node_modules/drawbridge/node_modules/node";

describe("launcher", () => {
  for (const nodePackage of [HOISTED, NESTED]) {
    it(`an old Node.js hands over to the one in ${nodePackage}, with arguments and exit code`, async (t) => {
      const { launcher } = install(t, { nodePackage });
      const ended = await run(process.execPath, [launcher, "5", "a b", "--flag", ""]);
      assert.deepEqual([ended.code, ended.stderr], [5, ""]);
      const seen = JSON.parse(ended.stdout);
      assert.deepEqual(seen.rest, ["a b", "--flag", ""]);
      assert.match(seen.file, /drawbridge\/dist\/cli\/main\.js$/);
    });
  }

  it("a new enough Node.js runs the CLI itself", async (t) => {
    const { launcher } = install(t, { wanted: 1 });
    const ended = await run(process.execPath, [launcher, "0", "x"]);
    assert.equal(ended.code, 0);
    assert.equal(JSON.parse(ended.stdout).node, process.execPath);
  });

  it("a signal reaches the CLI, whose exit code becomes the launcher's", async (t) => {
    const { launcher } = install(t, { nodePackage: HOISTED });
    const program = start(process.execPath, [launcher, "wait"]);
    await program.printed("waiting");
    program.child.kill("SIGTERM");
    assert.deepEqual((await program.finished).code, 7);
  });

  it("a CLI that a signal ended shows as 128 plus the signal", async (t) => {
    const { launcher } = install(t, { nodePackage: HOISTED });
    assert.equal((await run(process.execPath, [launcher, "die"])).code, 137);
  });

  it("without any usable Node.js the launcher says what to do and exits 2", async (t) => {
    const { launcher } = install(t);
    const ended = await run(process.execPath, [launcher, "0"]);
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, /^error: Node\.js 999 is needed; this is .*\nhint: /);
  });

  it("called through a link, as npm installs it, the launcher finds its package", async (t) => {
    const { launcher, root } = install(t, { nodePackage: HOISTED });
    const link = join(root, "node_modules", ".bin", "drawbridge");
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(launcher, link);
    assert.equal((await run(process.execPath, [link, "3"])).code, 3);
  });

  it("in a clone the sources run, whatever dist holds", async (t) => {
    const root = temporaryFolder(t);
    writeFile(join(root, "package.json"), '{ "type": "module" }');
    writeFile(join(root, "bin", "drawbridge"), LAUNCHER);
    writeFile(join(root, "src", "cli", "main.ts"), 'const from: string = "src"; console.log(from);');
    writeFile(join(root, "dist", "cli", "main.js"), 'console.log("dist");');
    assert.equal((await run(process.execPath, [join(root, "bin", "drawbridge")])).stdout, "src\n");
  });
});
