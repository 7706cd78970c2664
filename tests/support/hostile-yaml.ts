// Files that somebody hostile, or something broken, could put where configuration is read.
import fc from "fast-check";
import { unicodeText } from "./arbitraries.ts";

const ALIASES = `a: &a [x, x, x, x, x, x, x, x, x]\n${Array.from(
  { length: 8 },
  (_, i) =>
    `${String.fromCharCode(98 + i)}: &${String.fromCharCode(98 + i)} [${Array(9)
      .fill(`*${String.fromCharCode(97 + i)}`)
      .join(", ")}]`,
).join("\n")}\n`;

/** By name, each of them unusable for any of the gateway's and issuer's files. */
export const HOSTILE: readonly (readonly [name: string, content: string | Buffer])[] = [
  ["nothing", ""],
  ["NUL bytes", Buffer.alloc(64)],
  ["not UTF-8", Buffer.from([0x76, 0xff, 0xfe, 0xc3, 0x28])],
  ["UTF-16", Buffer.from("\ufeffversion: 1\n", "utf16le")],
  ["an alias bomb", ALIASES],
  ["an alias", "version: 1\nagents: &a {}\ncards: *a\n"],
  ["nested by the thousand", `version: ${"[".repeat(20_000)}${"]".repeat(20_000)}\n`],
  ["nested maps by the thousand", `${"a: {".repeat(5_000)}${"}".repeat(5_000)}\n`],
  ["a duplicate key", "version: 1\nversion: 1\n"],
  ["__proto__", "version: 1\n__proto__: {clients: [x]}\nconstructor: {}\n"],
  [
    "a prototype among agents",
    "version: 1\nagents: {__proto__: {}}\ncards: {__proto__: {}}\nclients: [{__proto__: 1}]\n",
  ],
  ["a merge key", "version: 1\n<<: {agents: {}}\n"],
  ["a tag", "version: !!js/function 'function () {}'\n"],
  ["two documents", "version: 1\n---\nversion: 1\n"],
  ["a list", "- 1\n- 2\n"],
  ["a scalar", "no\n"],
  ["a pattern for a client", "version: 1\nagents: {a: {clients: ['*']}}\ncards: 1\nclients: ['*']\n"],
  ["cut off in the middle", "version: 1\nagents:\n  docs-qa:\n    upstream: http://127.0.0"],
  ["a million lines", "x\n".repeat(1_000_000)],
];

/** Random bytes, random text, and YAML of random values. */
export const anyFile: fc.Arbitrary<Buffer> = fc.oneof(
  fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes)),
  unicodeText({ maxLength: 400 }).map((text) => Buffer.from(text)),
  fc.json({ maxDepth: 4 }).map((text) => Buffer.from(text)),
  fc
    .record({
      version: fc.oneof(fc.constant(1), fc.anything({ maxDepth: 1 })),
      agents: fc.jsonValue({ maxDepth: 3 }),
      cards: fc.jsonValue({ maxDepth: 3 }),
      clients: fc.jsonValue({ maxDepth: 3 }),
      quotas: fc.jsonValue({ maxDepth: 3 }),
    })
    .map((value) =>
      Buffer.from(JSON.stringify(value, (_, v) => (typeof v === "bigint" ? String(v) : v)) ?? ""),
    ),
);
