// The reference of the bridge's configuration names every setting with the default that the code has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { BridgeConfigFile } from "../../../src/bridge/config.ts";
import { parseDurationMs } from "../../../src/domain/duration.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";
import { ROOT } from "../../support/temporary.ts";

const page = readFileSync(`${ROOT}/docs/reference/configuration.md`, "utf8");
/** What only the operator can say, and nothing else. */
const REQUIRED = `
version: 1
homeserver: {serverName: example.org, url: "http://127.0.0.1:8008"}
appservice: {url: "http://127.0.0.1:1", asToken: {file: a}, hsToken: {file: h}}
listen: {port: 1}
observe: {port: 2}
database: {url: {env: DATABASE_URL}}
contentKeys: {file: k}
`;

/** The rows of a section's table: the keys of each with their defaults, by full path. */
function settings(heading: string, prefix: string): Map<string, string> {
  const [, section = ""] = page.split(`\n## ${heading}\n`);
  const rows = section.slice(0, section.indexOf("\n## ")).matchAll(/^\| (`[^|]+) \| ([^|]+) \|/gm);
  const found = new Map<string, string>();
  for (const [, keys = "", cell = ""] of rows) {
    const names = [...keys.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name);
    const defaults = names.length > 1 && cell.includes(", ") ? cell.split(", ") : names.map(() => cell);
    const [first = ""] = names;
    for (const [index, name] of names.entries()) {
      const path = name.startsWith(".") ? `${first.slice(0, first.lastIndexOf("."))}${name}` : name;
      found.set(`${prefix}${path}`, (defaults[index] ?? "").replaceAll("`", ""));
    }
  }
  return found;
}

const listed = new Map([
  ...settings("The bridge", ""),
  ...settings("Encrypted rooms", "encryption."),
  ...settings("How long rows are kept", "retention."),
  ...settings("Limits of the bridge", "limits."),
]);

/** The settings of a schema by their paths; a section of settings is no setting itself. */
function pathsOf(schema: unknown, path: string): string[] {
  let inner = schema as { shape?: object; unwrap?: () => unknown; def?: { type?: string } };
  while (inner.shape === undefined && inner.unwrap !== undefined && inner.def?.type !== "array") {
    inner = inner.unwrap() as typeof inner;
  }
  if (inner.shape === undefined || listed.has(path)) return [path];
  return Object.entries(inner.shape).flatMap(([name, value]) =>
    pathsOf(value, path === "" ? name : `${path}.${name}`),
  );
}

const SIZES: Readonly<Record<string, number>> = { KiB: 1_024, MiB: 1_024 ** 2 };

function defaultIn(cell: string): unknown {
  if (cell === "true" || cell === "false") return cell === "true";
  const [, amount, unit] = /^([0-9]+) ([KM]iB)$/.exec(cell) ?? [];
  if (amount !== undefined) return Number(amount) * (SIZES[unit ?? ""] ?? Number.NaN);
  if (/^[0-9,]+$/.test(cell)) return Number(cell.replaceAll(",", ""));
  return parseDurationMs(cell) ?? cell;
}

describe("the reference of the bridge's configuration", () => {
  it("it lists every setting of bridge.yaml, and no other", () => {
    const { version: _, ...sections } = BridgeConfigFile.shape;
    const paths = Object.entries(sections).flatMap(([name, schema]) => pathsOf(schema, name));
    assert.deepEqual([...listed.keys()].toSorted(), paths.toSorted());
  });

  it("each default is the one of the code", () => {
    const config: unknown = parseYaml(BridgeConfigFile, REQUIRED, "bridge.yaml");
    let compared = 0;
    for (const [path, cell] of listed) {
      const value = path
        .split(".")
        .reduce((part: unknown, name) => (part as Record<string, unknown> | undefined)?.[name], config);
      if (value === undefined || /^required$|^none/.test(cell)) {
        const isSaid = /^(?:required|none|no limit|standard output|a quarter of |required unless )/.test(
          cell,
        );
        assert.ok(isSaid, `${path}: ${cell}`);
        continue;
      }
      compared += 1;
      assert.equal(defaultIn(cell), value, path);
    }
    assert.ok(compared > 40, `${compared} were compared`);
  });
});
