// Hostile registry files end in clear errors: no crash, no hang, nobody admitted.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { RegistryError } from "../../../../src/federation/registry/problems.ts";
import { unicodeText } from "../../../support/arbitraries.ts";
import { harbourWith, registryFiles } from "../../../support/sample-files.ts";

const PARTNER = "registry/partners/hostile.yaml";
const ORGANISATION = "registry/organisation.yaml";
/** Far above what the largest of these files takes, far below what a person would wait. */
const HANG_MS = 5_000;

/** Loads the sample organisation with a hostile file; the error, or undefined when it loads. */
function attempt(path: string, text: string): RegistryError | undefined {
  const begun = process.cpuUsage();
  try {
    loadRegistry(harbourWith(new Map([[path, text]])));
    return undefined;
  } catch (error) {
    assert.ok(error instanceof RegistryError, `${error} for ${JSON.stringify(text.slice(0, 200))}`);
    for (const { file, line, hint } of error.problems) {
      assert.ok(file !== "" && line >= 1 && hint !== "");
    }
    return error;
  } finally {
    assert.ok(
      process.cpuUsage(begun).user / 1_000 < HANG_MS,
      `took too long: ${JSON.stringify(text.slice(0, 200))}`,
    );
  }
}

describe("loadRegistry on hostile input", () => {
  it("random bytes and mangled files are refused, or change nothing of what is valid [REG-1]", () => {
    const original = [...registryFiles()];
    const rendered = renderAll(loadRegistry(registryFiles()));
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes).toString("utf8")),
          unicodeText({ maxLength: 300 }),
          fc
            .tuple(fc.constantFrom(...original), fc.nat(), fc.nat(60), fc.string({ maxLength: 20 }))
            .map(([[, text], at, length, insert]) => {
              const from = at % text.length;
              return text.slice(0, from) + insert + text.slice(from + length);
            }),
        ),
        (text) => {
          attempt(PARTNER, text);
          attempt(ORGANISATION, text);
        },
      ),
      { numRuns: 150 },
    );
    assert.deepEqual(renderAll(loadRegistry(registryFiles())), rendered);
  });

  it("YAML made to exhaust the parser is refused quickly [REG-1]", () => {
    const bomb = ["a: &a [x,x,x,x,x,x,x,x,x]"];
    for (let level = 0; level < 8; level++) bomb.push(`l${level}: &l${level} [${"*a,".repeat(9)}]`);
    const hostile: Record<string, string> = {
      "aliases that multiply": bomb.join("\n"),
      "an alias of itself": "a: &a\n  b: *a\n",
      "ten thousand open brackets": "[".repeat(10_000),
      "ten thousand open braces": "{a: ".repeat(10_000),
      "deep blocks": Array.from({ length: 2_000 }, (_, depth) => `${" ".repeat(depth)}a:`).join("\n"),
      "deep lists on one line": `${"- ".repeat(10_000)}x`,
      "deep keys on one line": `${"? ".repeat(10_000)}x`,
      "two megabytes": `# ${"x".repeat(2_000_000)}`,
      "a long line without end": "a".repeat(900_000),
      "a long comment of near misses": `# ${"eyJ".repeat(100_000)}`,
      "a long comment of colons": `# ${"d: ".repeat(100_000)}`,
      "a long address": `issuer: ${"https://".repeat(40_000)}`,
      "many keys": Array.from({ length: 20_000 }, (_, index) => `key${index}: 1`).join("\n"),
      "one key many times": "version: 1\n".repeat(5_000),
      "huge numbers": "version: 1e400\ncontained: 99999999999999999999999999\n",
      "prototype keys": "__proto__: {contained: true}\nconstructor: {prototype: {}}\nversion: 1\n",
      "merge keys": "<<: {contained: true}\nversion: 1\n",
      tags: "version: !!js/function 'x'\nserverName: !!binary aGVsbG8=\n",
      "two documents": "version: 1\n---\nversion: 1\n",
      "a byte order mark in the middle": "version: 1\n\ufeffserverName: x.example\n",
      nothing: "",
      "a scalar": "hello",
      "a NUL": "version: 1\u0000",
      "control characters": "version: 1\n\u0007\u001b[31m: x\n",
    };
    for (const [what, text] of Object.entries(hostile)) {
      assert.ok(attempt(PARTNER, text), what);
      assert.ok(attempt(ORGANISATION, text), what);
    }
    assert.equal(({} as { contained?: unknown }).contained, undefined);
  });

  it("no message repeats a control character of a hostile file [REG-1]", () => {
    const error = attempt(PARTNER, 'version: 1\n"\\u001b[2Jgone\\u0007": true\n');
    assert.match(error?.message ?? assert.fail(), /^[\n -~]+$/);
  });
});
