// The boundaries between folders, and the lint rule against ambient time, with planted violations.
import assert from "node:assert/strict";
import { cpSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { boundaryProblems } from "../../../tasks/boundaries.ts";
import { importsOf } from "../../../tasks/structure.ts";
import { ROOT, run, temporaryFolder, writeFile } from "../../support/temporary.ts";

/** Lints one planted file; returns `line rule` of each complaint. */
async function complaints(t: TestContext, path: string, lines: readonly string[]): Promise<string[]> {
  const folder = temporaryFolder(t);
  cpSync(join(ROOT, "biome.json"), join(folder, "biome.json"));
  cpSync(join(ROOT, "tasks", "lint"), join(folder, "tasks", "lint"), { recursive: true });
  writeFile(join(folder, path), lines.join("\n"));
  const biome = join(ROOT, "node_modules", ".bin", "biome");
  const { stdout, stderr } = await run(biome, ["lint", "--colors=off", "--max-diagnostics=50", path], {
    cwd: folder,
  });
  return [...`${stdout}${stderr}`.matchAll(/:([0-9]+):[0-9]+ (\S+) ━/g)].map(
    (match) => `${match[1]} ${match[2]}`,
  );
}

describe("import rules", () => {
  const refusals = (from: string, ...imports: string[]) =>
    boundaryProblems(new Map([[from, imports]])).map((problem) => problem.split(" ")[4]);

  it("lets the bridge import its own folders, domain, runtime and cards, and nothing else", () => {
    const allowed = ["src/bridge/agents/loaded-agents.ts", "src/domain/clock.ts", "src/runtime/secrets.ts"];
    const forbidden = [
      "src/federation/config.ts",
      "src/issuer/config.ts",
      "lab/lab.ts",
      "src/cli/lib/command.ts",
    ];
    assert.deepEqual(refusals("src/bridge/matrix/planted.ts", ...allowed, ...forbidden), forbidden);
  });

  const FORBIDDEN: readonly (readonly [file: string, imported: string])[] = [
    ["src/federation/planes/planted.ts", "src/bridge/config.ts"],
    ["src/federation/planes/gateway/planted.ts", "src/gateway/config.ts"],
    ["src/issuer/planted.ts", "src/bridge/config.ts"],
    ["src/runtime/planted.ts", "src/bridge/config.ts"],
    ["src/cards/planted.ts", "src/rendered-files/agents-file.ts"],
    ["src/rendered-files/planted.ts", "src/gateway/config.ts"],
    ["src/gateway/planted.ts", "src/federation/config.ts"],
    ["src/domain/planted.ts", "src/runtime/secrets.ts"],
    ["src/records/verify/planted.ts", "src/records/sign/signer.ts"],
    ["src/bridge/ledger/planted.ts", "src/bridge/delegation/worker.ts"],
    ["src/bridge/ledger/planted.ts", "src/bridge/services.ts"],
    ["src/cli/planted.ts", "lab/lab.ts"],
    ["examples/docs-qa/planted.ts", "src/bridge/config.ts"],
    ["lab/planted.ts", "tests/support/database.ts"],
  ];

  for (const [file, imported] of FORBIDDEN) {
    it(`refuses ${imported} in ${file.replace("/planted.ts", "")}`, () => {
      assert.deepEqual(refusals(file, imported), [imported]);
    });
  }

  it("lets the lab and the command line import every part of the product", () => {
    const parts = ["src/bridge/config.ts", "src/federation/planes/x.ts"];
    assert.deepEqual(refusals("lab/planted.ts", ...parts), []);
    assert.deepEqual(refusals("src/cli/planted.ts", ...parts), []);
  });

  it("finds a cycle of files, and names its members once", () => {
    const graph = new Map([
      ["src/domain/a.ts", ["src/domain/b.ts"]],
      ["src/domain/b.ts", ["src/domain/c.ts"]],
      ["src/domain/c.ts", ["src/domain/a.ts", "src/domain/d.ts"]],
      ["src/domain/d.ts", []],
    ]);
    assert.deepEqual(boundaryProblems(graph), [
      "these files import one another: src/domain/a.ts, src/domain/b.ts, src/domain/c.ts",
    ]);
  });

  it("finds a cycle of folders at any depth, also through a file of their parent", () => {
    const at = "src/federation/offboarding";
    const graph = new Map([
      [`${at}/run/context.ts`, [`${at}/record/facts.ts`]],
      [`${at}/record/facts.ts`, []],
      [`${at}/record/file.ts`, [`${at}/shared.ts`]],
      [`${at}/shared.ts`, [`${at}/run/run-file.ts`]],
      [`${at}/run/run-file.ts`, []],
      // A folder may use one file of its parent and be used by another one.
      ["src/gateway/render/render.ts", ["src/gateway/config.ts"]],
      ["src/gateway/serve.ts", ["src/gateway/render/render.ts"]],
      ["src/gateway/config.ts", []],
    ]);
    assert.deepEqual(boundaryProblems(graph), [
      `these folders import one another: ${at}/record, ${at}/run, ${at}/shared.ts`,
    ]);
  });

  it("counts type-only, dynamic and side-effect imports", () => {
    const text = 'import type { A } from "./a.ts";\nimport "../b.ts";\nconst c = () => import("./c.ts");\n';
    assert.deepEqual(importsOf("src/domain/x.ts", text), ["src/domain/a.ts", "src/b.ts", "src/domain/c.ts"]);
  });

  const AMBIENT = [
    "export const a = Date.now();",
    "export const b = new Date();",
    "export const c = Math.random();",
    "export const d = Math.random;",
    "export const e = performance.now();",
    "export const f = process.hrtime.bigint();",
    "export const g = randomUUID();",
  ];

  it("time and randomness of the machine are refused in src", async (t) => {
    const found = await complaints(t, "src/bridge/planted.ts", [...AMBIENT, "export const h = new Date(5);"]);
    assert.deepEqual(
      found,
      AMBIENT.map((_, index) => `${index + 1} plugin`),
    );
  });

  it("time and randomness of the machine are allowed in the clock's file and in tests", async (t) => {
    assert.deepEqual(await complaints(t, "src/domain/clock.ts", AMBIENT), []);
    assert.deepEqual(await complaints(t, "tests/unit/planted.test.ts", AMBIENT), []);
  });

  it("a thread of machines loads no HTTP client", () => {
    const STATEMENT = /^(?:import(?! type\b)|export(?! type\b)[^;=(]*?\bfrom)\b[^;]*?"([^"]+)"/gms;
    const loaded = new Set<string>(["src/bridge/crypto/machine-thread-entry.ts"]);
    for (const file of loaded) {
      if (!file.startsWith("src/")) continue;
      for (const [, imported = ""] of readFileSync(join(ROOT, file), "utf8").matchAll(STATEMENT)) {
        loaded.add(imported.startsWith(".") ? normalize(join(dirname(file), imported)) : imported);
      }
    }
    assert.ok(loaded.has("src/bridge/crypto/machine.ts") && loaded.has("pg"), [...loaded].join(" "));
    assert.deepEqual(
      [...loaded].filter((module) => module === "undici" || module.startsWith("src/runtime/http")),
      [],
    );
  });
});
