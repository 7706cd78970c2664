// The npm packages as an operator and an auditor get them: packed, installed into empty folders, and called.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { globSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { after, before, describe, it } from "node:test";
import { freePort } from "../../../lab/ports.ts";
import manifest from "../../../package.json" with { type: "json" };
import verifierManifest from "../../../packages/verify/package.json" with { type: "json" };
import { systemClock } from "../../../src/domain/clock.ts";
import { generateSigningKeys } from "../../../src/issuer/server.ts";
import { bundledSources } from "../../../tasks/build.ts";
import { testDatabase } from "../../support/database.ts";
import { eventually } from "../../support/gateway.ts";
import {
  installPackages,
  machineEnvironment,
  oldestNode,
  type PackedPackage,
  packDependency,
  packPackages,
} from "../../support/installed-packages.ts";
import { party, removalOf } from "../../support/removal.ts";
import { ROOT, run, start, writeFile } from "../../support/temporary.ts";

const MB = 1_000_000;
const LINK = /\]\(([^)#:]+)(?:#[^)]*)?\)|src="([^":]+)"/g;
const folder = mkdtempSync(join(tmpdir(), "drawbridge packages "));
after(() => rmSync(folder, { recursive: true, force: true }));

function sizeOf(installed: string): number {
  const files = globSync("**/*", { cwd: installed }).map((file) => lstatSync(join(installed, file)));
  return files.filter((file) => file.isFile()).reduce((sum, { size }) => sum + size, 0);
}

/** Writes a verified record, its keys and its trust file into `folder`. */
async function writeRecord(): Promise<{ record: string; trust: string }> {
  const [a, b] = [party("a.test"), party("b.test")];
  const { bytes } = await removalOf(a, b, {});
  const [record, trust] = [join(folder, "record.json"), join(folder, "trust.yaml")];
  writeFile(record, bytes.toString("utf8"));
  const parties = [a, b].map(({ name, pem }) => {
    writeFile(join(folder, `${name}.pem`), pem);
    return `  - organisation: ${name}\n    keys:\n      - file: ${name}.pem\n`;
  });
  writeFile(trust, `version: 1\nparties:\n${parties.join("")}`);
  return { record, trust };
}

let packed: { readonly drawbridge: PackedPackage; readonly verifier: PackedPackage };
let written: { record: string; trust: string };
before(async () => {
  packed = await packPackages(folder);
  written = await writeRecord();
});

describe("npm package drawbridge", () => {
  let modules: string;
  let installed: string;
  const drawbridge = (...args: string[]) =>
    run(process.execPath, [join(modules, ".bin", "drawbridge"), ...args], { cwd: folder });

  before(async () => {
    const dependency = await packDependency(folder);
    modules = await installPackages(join(folder, "an operator's folder"), [
      packed.drawbridge.tarball,
      dependency,
    ]);
    installed = join(modules, "drawbridge");
  });

  it("contains the guides, the alarm rules, the dashboard, the border module and the migrations", () => {
    const files = new Set(packed.drawbridge.files);
    const migrations = globSync("src/bridge/ledger/migrations/*.sql", { cwd: ROOT });
    assert.ok(migrations.length > 0);
    for (const file of [
      ...globSync("docs/operating/*.md", { cwd: ROOT }),
      ...globSync("docs/reference/*.md", { cwd: ROOT }),
      "docs/reference/schemas/bridge.schema.json",
      ...globSync("deploy/*/*", { cwd: ROOT }),
      "border/pyproject.toml",
      ...globSync("border/src/**/*.{py,typed}", { cwd: ROOT }),
      ...migrations.map((file) => file.replace("src/bridge/ledger", "dist")),
      "bin/drawbridge",
      "dist/THIRD-PARTY-LICENSES.txt",
      "LICENSE",
      "README.md",
    ]) {
      assert.ok(files.has(file), `${file} is missing`);
    }
  });

  it("contains every page and picture that its README, or a guide, links to", () => {
    const { files } = packed.drawbridge;
    const links = files
      .filter((file) => /^(?:[^/]*|docs\/[^/]*|docs\/operating\/.*)\.md$/.test(file))
      .flatMap((file) =>
        [...readFileSync(join(installed, file), "utf8").matchAll(LINK)].map(([, link, picture]) =>
          posix.join(posix.dirname(file), link ?? picture ?? ""),
        ),
      );
    assert.ok(links.includes("docs/images/answer.png") && links.length > 100, `${links.length}`);
    assert.deepEqual(
      links.filter((link) => !files.some((file) => file === link || file.startsWith(`${link}/`))),
      [],
    );
  });

  it("contains no lab, example, test, embedded database or Node.js binary", async () => {
    assert.deepEqual(
      packed.drawbridge.files.filter((file) =>
        /^(?:src|lab|examples|tests|tasks|packages|node_modules)\//.test(file),
      ),
      [],
    );
    const bundled = [await bundledSources("drawbridge"), await bundledSources("drawbridge-verify")].flat();
    assert.ok(bundled.includes("src/cli/main.ts") && bundled.includes("packages/verify/main.ts"));
    assert.deepEqual(
      bundled.filter(
        (file) => !/^(?:src|packages\/verify|node_modules|global:.*)(?:\/|$)|^package\.json$/.test(file),
      ),
      [],
    );
    assert.deepEqual(
      globSync("{*,@*/*}", { cwd: modules }).filter(
        (name) => !name.startsWith(".") && name !== "@matrix-org",
      ),
      ["drawbridge", "@matrix-org/matrix-sdk-crypto-wasm"],
    );
  });

  it("has an issuer whose tokens expire", async (t) => {
    const at = join(folder, "issuer");
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const keys = { file: "keys.json" };
    const client = {
      clientId: "caller",
      secret: { file: "client-secrets/caller" },
      partner: "partner.example",
    };
    const config = {
      version: 1,
      listen: { port },
      url,
      audience: "https://agents.example",
      signingKeys: keys,
    };
    writeFile(join(at, "issuer.yaml"), JSON.stringify(config));
    writeFile(join(at, "clients.yaml"), JSON.stringify({ version: 1, clients: [client] }));
    writeFile(join(at, "client-secrets/caller"), "a-secret-of-the-caller\n", 0o600);
    writeFile(join(at, keys.file), JSON.stringify(await generateSigningKeys()), 0o600);
    const words = [
      join(modules, "drawbridge", "dist", "main.js"),
      "issuer",
      "--config",
      join(at, "issuer.yaml"),
    ];
    const issuer = start(process.execPath, words);
    t.after(async () => {
      issuer.child.kill("SIGTERM");
      await issuer.finished;
    });
    const basic = Buffer.from("caller:a-secret-of-the-caller").toString("base64");
    const answer = await eventually("a token", () =>
      fetch(`${url}/token`, {
        method: "POST",
        body: new URLSearchParams({ grant_type: "client_credentials" }),
        headers: { authorization: `Basic ${basic}` },
      }).catch(() => undefined),
    );
    const { expires_in: expires, access_token: token } = (await answer.json()) as Record<string, unknown>;
    assert.equal(expires, 300);
    const claims = JSON.parse(Buffer.from(String(token).split(".")[1] ?? "", "base64url").toString());
    assert.equal(claims.exp - claims.iat, 300);
  });

  it("takes less than 60 MB with its dependencies", () => {
    const size = sizeOf(modules);
    assert.ok(size < 60 * MB, `${size} bytes`);
  });

  it("asks for no older Node.js than a package in it does", () => {
    const folders = globSync("{*,@*/*}/package.json", { cwd: join(ROOT, "node_modules") });
    const licenses = readFileSync(join(installed, "dist", "THIRD-PARTY-LICENSES.txt"), "utf8");
    const wanted = folders.flatMap((file) => {
      const { name, version, engines } = JSON.parse(readFileSync(join(ROOT, "node_modules", file), "utf8"));
      const oldest = /^>= ?(\d+(?:\.\d+)*)$/.exec(engines?.node ?? "")?.[1];
      return oldest !== undefined && licenses.includes(`${name} ${version}\n`) ? [oldest] : [];
    });
    const newest = wanted.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
    assert.equal(manifest.engines.node, `>=${newest}`);
  });

  it("prints its version", async () => {
    assert.deepEqual(await drawbridge("--version"), {
      code: 0,
      signal: null,
      stdout: `${manifest.version}\n`,
      stderr: "",
    });
  });

  it("names the Node.js that it needs when the machine's own is older", async () => {
    const env = machineEnvironment();
    const machine = execFileSync("node", ["--version"], { env, encoding: "utf8" }).slice(1).trim();
    const ended = await run(join(modules, ".bin", "drawbridge"), ["--version"], { env, cwd: folder });
    if (Number.parseInt(machine, 10) > 22) assert.equal(ended.code, 0);
    else
      assert.equal(
        ended.stderr.split("\n")[0],
        `error: Node.js 22.19.0 or newer is needed; this is ${machine}`,
      );
  });

  it("writes the folder that a bridge starts from", async () => {
    const directory = join(folder, "a bridge");
    const { code, stderr } = await drawbridge(
      ...["bridge", "init", "--directory", directory],
      ...["--server-name", "a.test", "--homeserver-url", "http://127.0.0.1:8008"],
    );
    assert.equal(code, 0, stderr);
    assert.match(readFileSync(join(directory, "bridge.yaml"), "utf8"), /a\.test/);
  });

  it("runs on the oldest Node.js that it admits", async () => {
    const node = await oldestNode("drawbridge");
    const old = (...args: string[]) =>
      run(node, [join(modules, ".bin", "drawbridge"), ...args], { cwd: folder });
    const { stdout } = await run(node, ["--version"]);
    if (process.arch === "x64") assert.equal(`>=${stdout.trim().slice(1)}`, manifest.engines.node);
    assert.equal((await old("--version")).stdout, `${manifest.version}\n`);
    const init = await old(
      ...["bridge", "init", "--directory", join(folder, "an old bridge")],
      ...["--server-name", "a.test", "--homeserver-url", "http://127.0.0.1:8008"],
    );
    assert.equal(init.code, 0, init.stderr);
    const { code, stderr } = await old("verify", written.record, "--trust", written.trust);
    assert.equal(code, 0, stderr);
  });

  it("migrates the database with the files of its bundle when the bridge starts", async (t) => {
    const { url, pool } = await testDatabase(t, { migrated: false });
    const config = join(folder, "a bridge", "bridge.yaml");
    const bridge = start(
      process.execPath,
      [join(modules, ".bin", "drawbridge"), "bridge", "--config", config],
      {
        env: { ...process.env, DATABASE_URL: url },
      },
    );
    const migrated = async () => {
      const { rows } = await pool.query("SELECT to_regclass('bridge_delegations') AS found");
      return rows[0].found !== null;
    };
    while (!(await migrated()) && bridge.child.exitCode === null) await systemClock.sleep(50);
    bridge.child.kill("SIGTERM");
    const { stdout, stderr } = await bridge.finished;
    assert.ok(await migrated(), `${stdout}${stderr}`);
  });

  it("verifies a record", async () => {
    const { code, stdout, stderr } = await drawbridge("verify", written.record, "--trust", written.trust);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /verified/i);
  });

  it("loads every file of its bundle", async () => {
    const script = join(folder, "load.mjs");
    const files = globSync("dist/*.js", { cwd: installed }).filter(
      (file) => !/\/(?:main|machine-thread-entry)\.js$/.test(file),
    );
    writeFile(script, files.map((file) => `import ${JSON.stringify(join(installed, file))};\n`).join(""));
    const { code, stderr } = await run(process.execPath, [script]);
    assert.deepEqual([code, stderr], [0, ""]);
  });

  it("starts the thread of ghosts' machines beside the code that names it", async () => {
    const naming = globSync("dist/*.js", { cwd: installed }).filter((file) =>
      readFileSync(join(installed, file), "utf8").includes('"./machine-thread-entry.js"'),
    );
    assert.notDeepEqual(naming, []);
    const script = join(folder, "thread.mjs");
    writeFile(
      script,
      `import { Worker } from "node:worker_threads";
const workerData = { databaseUrl: "postgres://127.0.0.1:1/none", policy: {} };
const thread = new Worker(${JSON.stringify(join(installed, "dist", "machine-thread-entry.js"))}, { workerData });
thread.on("message", ([{ error }]) => { console.log(error); thread.terminate(); });
thread.postMessage([{ id: 1, do: "call", ghost: "@agent_docs:a.test", call: "outgoing", args: [] }]);
`,
    );
    const { code, stdout, stderr } = await run(process.execPath, [script]);
    assert.deepEqual([code, stdout.trim(), stderr], [0, "not_open", ""]);
  });
});

describe("npm package drawbridge-verify", () => {
  let modules: string;
  before(async () => {
    modules = await installPackages(join(folder, "an auditor's folder"), [packed.verifier.tarball]);
  });

  /** On the machine's own Node.js, which may be older than the one of this clone. */
  const verify = (...args: string[]) =>
    run(join(modules, ".bin", "drawbridge-verify"), args, { env: machineEnvironment(), cwd: folder });

  it("takes less than 5 MB and depends on nothing", () => {
    const size = sizeOf(modules);
    assert.ok(size < 5 * MB, `${size} bytes`);
    assert.deepEqual(
      globSync("*", { cwd: modules }).filter((name) => !name.startsWith(".")),
      ["drawbridge-verify"],
    );
    assert.equal(verifierManifest.version, manifest.version);
  });

  it("contains nothing that signs", () => {
    const bundle = readFileSync(join(modules, "drawbridge-verify", "dist", "main.js"), "utf8");
    const imported = [...bundle.matchAll(/import\s*\{([^}]*)\}\s*from\s*"node:crypto"/g)].flatMap(
      ([, names = ""]) => names.split(",").map((name) => name.trim().split(" ")[0]),
    );
    assert.deepEqual(imported.toSorted(), ["createPublicKey", "hash", "verify"]);
    assert.doesNotMatch(bundle, /createPrivateKey|createSign|crypto\.subtle/);
  });

  it("runs on the oldest Node.js that it admits", async () => {
    const node = await oldestNode("drawbridge-verify");
    const { stdout } = await run(node, ["--version"]);
    if (process.arch === "x64") assert.equal(`>=${stdout.trim().slice(1)}`, verifierManifest.engines.node);
    const verifier = join(modules, ".bin", "drawbridge-verify");
    const { code, stderr } = await run(node, [verifier, written.record, "--trust", written.trust]);
    assert.equal(code, 0, stderr);
  });

  it("verifies a record, and refuses one that was changed", async () => {
    const { code, stdout, stderr } = await verify(written.record, "--trust", written.trust);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /verified/i);
    mkdirSync(join(folder, "changed"));
    const changed = join(folder, "changed", "record.json");
    writeFile(changed, readFileSync(written.record, "utf8").replace("a.test", "c.test"));
    assert.equal((await verify(changed, "--trust", written.trust)).code, 1);
    assert.equal((await verify(changed)).code, 2);
  });
});
