// bin/drawbridge: which Node.js and which files it runs, and that it passes everything through. The launcher is
// copied into a made-up clone or a made-up installed package, which asks for a Node.js newer than any.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { ROOT, run, start, temporaryFolder, writeFile } from "../../support/temporary.ts";

const LAUNCHER = readFileSync(join(ROOT, "bin", "drawbridge"), "utf8");

const MAIN = `
process.on("SIGTERM", () => process.exit(7));
const [what, ...rest] = process.argv.slice(2);
if (what === "wait") { console.log("waiting"); setInterval(() => {}, 1000); }
else if (what === "die") process.kill(process.pid, "SIGKILL");
else { console.log(JSON.stringify({ file: import.meta.url, node: process.execPath, rest })); process.exitCode = Number(what); }
`;

/** A clone whose Node.js is this one; `oldest` is the Node.js that its sources need. */
function makeClone(
  t: TestContext,
  { oldest = "999.0.0", hasNode = true }: { oldest?: string; hasNode?: boolean } = {},
): string {
  const root = temporaryFolder(t);
  const launcher = join(root, "bin", "drawbridge");
  writeFile(launcher, LAUNCHER.replace('SOURCES = "24.0.0"', `SOURCES = "${oldest}"`), 0o755);
  writeFile(join(root, "package.json"), '{ "type": "module" }');
  writeFile(join(root, "src", "cli", "main.ts"), MAIN);
  writeFile(join(root, "dist", "main.js"), 'console.log("compiled");');
  const bin = join(root, "node_modules", ".bin");
  mkdirSync(bin, { recursive: true });
  if (hasNode) symlinkSync(process.execPath, join(bin, "node"));
  return launcher;
}

function installPackage(t: TestContext, engine: string): { launcher: string; modules: string } {
  const modules = join(temporaryFolder(t), "node_modules");
  const root = join(modules, "drawbridge");
  writeFile(join(root, "package.json"), JSON.stringify({ type: "module", engines: { node: engine } }));
  writeFile(join(root, "bin", "drawbridge"), LAUNCHER, 0o755);
  writeFile(join(root, "dist", "main.js"), MAIN);
  return { launcher: join(root, "bin", "drawbridge"), modules };
}

describe("launcher in a clone", () => {
  it("hands arguments and exit code over to the clone's Node.js when its own is too old", async (t) => {
    const ended = await run(process.execPath, [makeClone(t), "5", "a b", "--flag", ""]);
    assert.deepEqual([ended.code, ended.stderr], [5, ""]);
    const ran = JSON.parse(ended.stdout);
    assert.deepEqual(ran.rest, ["a b", "--flag", ""]);
    assert.match(ran.file, /\/src\/cli\/main\.ts$/);
  });

  it("passes a signal on to the CLI and takes over its exit code", async (t) => {
    const program = start(process.execPath, [makeClone(t), "wait"]);
    await program.printed("waiting");
    program.child.kill("SIGTERM");
    assert.deepEqual((await program.finished).code, 7);
  });

  it("exits with 128 plus the signal when a signal ended the CLI", async (t) => {
    assert.equal((await run(process.execPath, [makeClone(t), "die"])).code, 137);
  });

  it("runs the sources itself on a new enough Node.js, whatever dist holds", async (t) => {
    const ended = await run(process.execPath, [makeClone(t, { oldest: "1.0.0" }), "0"]);
    assert.match(JSON.parse(ended.stdout).file, /\/src\/cli\/main\.ts$/);
  });

  it("says what to do and exits 2 when there is no usable Node.js", async (t) => {
    const ended = await run(process.execPath, [makeClone(t, { hasNode: false }), "0"]);
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, /^error: Node\.js 999\.0\.0 or newer is needed; this is .*\nhint: .*\.\/task/);
  });
});

describe("launcher of an installed package", () => {
  it("runs the compiled files itself, also when it is called through npm's link", async (t) => {
    const { launcher, modules } = installPackage(t, `>=${process.versions.node}`);
    const link = join(modules, ".bin", "drawbridge");
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(launcher, link);
    const ended = await run(process.execPath, [link, "3", "x"]);
    assert.equal(ended.code, 3, ended.stderr);
    const ran = JSON.parse(ended.stdout);
    assert.match(ran.file, /\/drawbridge\/dist\/main\.js$/);
    assert.deepEqual([ran.node, ran.rest], [process.execPath, ["x"]]);
  });

  for (const engine of [">=999.0.0", `>=${process.versions.node}99`]) {
    it(`exits 2 when the manifest asks for ${engine}`, async (t) => {
      const ended = await run(process.execPath, [installPackage(t, engine).launcher, "0"]);
      assert.equal(ended.code, 2);
      assert.match(
        ended.stderr,
        /^error: Node\.js [0-9.]+ or newer is needed; this is .*\nhint: Install that/,
      );
    });
  }
});
