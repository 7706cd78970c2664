// Goldens: what is rendered is compared, byte for byte, with a file in tests/goldens.
// Invariant: goldens are written only when asked for (UPDATE_GOLDENS=1, `./task test --update`), never in CI.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
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

/**
 * Asserts that `actual` is the content of tests/goldens/`name`.
 * @param name a path below tests/goldens, such as `gateway/listener.yaml`; of a page of the documentation it begins with `../../docs/`
 */
export function assertGolden(name: string, actual: string): void {
  const file = new URL(name, GOLDENS);
  const golden = readGolden(file);
  if (golden === actual) return;
  if (process.env["UPDATE_GOLDENS"] === "1" && process.env["CI"] !== "true") {
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
