// The npm package as an operator gets it: packed, installed into an empty folder, called with the machine's
// own Node.js. Needs npm and its registry, as the lab's own installation does.
import assert from "node:assert/strict";
import { existsSync, globSync, mkdirSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe, it } from "node:test";
import { pathToFileURL } from "node:url";
import { COMMANDS } from "../../../src/cli/commands.ts";
import { type Finished, ROOT, run, temporaryFolder, writeFile } from "../../support/temporary.ts";

/** The environment of a person at the machine: without the Node.js of this clone. */
function machineEnvironment(): NodeJS.ProcessEnv {
  const path = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.startsWith(ROOT));
  return { ...process.env, PATH: path.join(delimiter) };
}

function assertOk(ended: Finished, what: string): void {
  assert.equal(ended.code, 0, `${what}: ${ended.stdout}${ended.stderr}`);
}

describe("installed package", () => {
  it("the packed tarball installs into an empty folder and every command of it starts", async (t) => {
    const folder = temporaryFolder(t);
    const env = machineEnvironment();
    assertOk(
      await run("npm", ["pack", "--loglevel=error", "--pack-destination", folder], { env }),
      "npm pack",
    );
    const [tarball = "no tarball"] = globSync("*.tgz", { cwd: folder });

    const consumer = join(folder, "an operator's folder");
    mkdirSync(consumer);
    writeFile(join(consumer, "package.json"), '{ "name": "consumer", "private": true }');
    const install = ["install", "--no-audit", "--no-fund", "--loglevel=error", join(folder, tarball)];
    assertOk(await run("npm", install, { env, cwd: consumer }), "npm install");

    const help = await run("npx", ["--no-install", "drawbridge", "--help"], { env, cwd: consumer });
    assertOk(help, "npx drawbridge --help");
    assert.match(help.stdout, /^Usage: drawbridge /);

    const launcher = join(consumer, "node_modules", ".bin", "drawbridge");
    for (const { path } of COMMANDS) {
      const ended = await run(launcher, [...path, "--help"], { env, cwd: consumer });
      assertOk(ended, path.join(" "));
      assert.ok(ended.stdout.startsWith(`Usage: drawbridge ${path.join(" ")}`), ended.stdout);
    }

    const installed = join(consumer, "node_modules", "drawbridge");
    // The threads of cryptographic machines are started from a file that no import names.
    const inDist = (...path: string[]) =>
      JSON.stringify(pathToFileURL(join(installed, "dist", ...path)).href);
    const script = join(consumer, "ask-a-thread.mjs");
    writeFile(
      script,
      `import { startMachineThread } from ${inDist("bridge", "crypto", "machine-thread.js")};
import { systemClock } from ${inDist("domain", "clock.js")};
const on = { lost() {}, ended: () => process.exit(1) };
const data = { databaseUrl: "postgres://127.0.0.1:1/none", policy: {} };
const thread = startMachineThread(data, systemClock, on);
const question = { do: "call", ghost: "@agent_docs:a.test", call: "outgoing", args: [] };
console.log(await thread.ask(question).catch((error) => error.kind));
await thread.stop();
`,
    );
    const asked = await run(process.execPath, [script], { env, cwd: consumer });
    assertOk(asked, "a thread of machines");
    assert.equal(asked.stdout.trim(), "not_open");

    assert.equal(existsSync(join(installed, "src")), false, "only compiled files are shipped");
    for (const file of globSync("**/*.sql", { cwd: join(ROOT, "src") })) {
      const [shipped, source] = [join(installed, "dist", file), join(ROOT, "src", file)];
      assert.equal(readFileSync(shipped, "utf8"), readFileSync(source, "utf8"), file);
    }
  });
});
