// The rules that Biome enforces on the folders, proven by planting violations in a copy.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
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

const REFUSED = "lint/style/noRestrictedImports";

test("bridge may import its own parts, domain, runtime and cards, and nothing else", async (t) => {
  const found = await complaints(t, "src/bridge/matrix/planted.ts", [
    'export * from "../agents/directory.ts";',
    'export * from "../../domain/clock.ts";',
    'export * from "../../runtime/secrets.ts";',
    'export * from "../../cards/verify.ts";',
    'export * from "../../federation/config.ts";',
    'export * from "../../issuer/config.ts";',
    'export * from "../../lab/lab.ts";',
    'export type { CommandModule } from "../../cli/command.ts";',
    'export const late = () => import("../../federation/config.ts");',
  ]);
  assert.deepEqual(
    found,
    [5, 6, 7, 8, 9].map((line) => `${line} ${REFUSED}`),
  );
});

const FORBIDDEN: readonly (readonly [file: string, specifier: string])[] = [
  ["src/federation/planes/planted.ts", "../../bridge/config.ts"],
  ["src/issuer/planted.ts", "../bridge/config.ts"],
  ["src/docs-qa/planted.ts", "../lab/lab.ts"],
  ["src/runtime/planted.ts", "../bridge/config.ts"],
  ["src/cards/planted.ts", "../admission/agents-file.ts"],
  ["src/admission/planted.ts", "../gateway/config.ts"],
  ["src/gateway/planted.ts", "../federation/config.ts"],
  ["src/federation/planes/gateway/planted.ts", "../../../gateway/config.ts"],
  ["src/domain/planted.ts", "../runtime/secrets.ts"],
  ["src/lab/planted.ts", "../../tests/support/database.ts"],
];

for (const [file, specifier] of FORBIDDEN) {
  test(`${file.replace("/planted.ts", "")} must not import ${specifier}`, async (t) => {
    assert.deepEqual(await complaints(t, file, [`export * from "${specifier}";`]), [`1 ${REFUSED}`]);
  });
}

test("lab and cli may import every part of the product", async (t) => {
  const lines = ['export * from "../bridge/config.ts";', 'export * from "../federation/planes/x.ts";'];
  assert.deepEqual(await complaints(t, "src/lab/planted.ts", lines), []);
  assert.deepEqual(await complaints(t, "src/cli/planted.ts", lines), []);
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

test("time and randomness of the machine are refused in src", async (t) => {
  const found = await complaints(t, "src/bridge/planted.ts", [...AMBIENT, "export const h = new Date(5);"]);
  assert.deepEqual(
    found,
    AMBIENT.map((_, index) => `${index + 1} plugin`),
  );
});

test("time and randomness of the machine are allowed in the clock's file and in tests", async (t) => {
  assert.deepEqual(await complaints(t, "src/domain/clock.ts", AMBIENT), []);
  assert.deepEqual(await complaints(t, "tests/unit/planted.test.ts", AMBIENT), []);
});
