// Goldens: what is rendered is compared, byte for byte, with a file in tests/goldens.
// Invariant: goldens are written only when asked for (UPDATE_GOLDENS=1, `./task test --update`), never in CI.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const GOLDENS = new URL("../goldens/", import.meta.url);

function readGolden(file: URL): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

const UPDATES = process.env["UPDATE_GOLDENS"] === "1" && process.env["CI"] !== "true";

/**
 * Asserts that these are the files of tests/goldens/`folder`, all of them: one that is no longer rendered fails.
 * @param files by their path below the folder
 */
export function assertGoldens(folder: string, files: Iterable<readonly [path: string, text: string]>): void {
  const rendered = new Map(files);
  for (const [path, text] of rendered) assertGolden(`${folder}/${path}`, text);
  const root = fileURLToPath(new URL(folder, GOLDENS));
  const stale = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .filter((path) => !rendered.has(path));
  if (UPDATES) for (const path of stale) rmSync(join(root, path));
  else assert.deepEqual(stale, [], `nothing renders these files of tests/goldens/${folder}`);
}

/**
 * Asserts that `actual` is the content of tests/goldens/`name`.
 * @param name a path below tests/goldens, such as `gateway/listener.yaml`; of a page of the documentation it begins with `../../docs/`
 */
export function assertGolden(name: string, actual: string): void {
  const file = new URL(name, GOLDENS);
  const golden = readGolden(file);
  if (golden === actual) return;
  if (UPDATES) {
    mkdirSync(dirname(fileURLToPath(file)), { recursive: true });
    writeFileSync(file, actual);
    return;
  }
  const hint = `if the change is meant, run: ./task test --update, and look at the difference`;
  assert.equal(
    actual,
    golden ?? "",
    `tests/goldens/${name} ${golden === undefined ? "is missing" : "differs"}; ${hint}`,
  );
}
