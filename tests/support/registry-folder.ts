// Registries for tests: the sample organisation, as an operator would write it, and small ones made up.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { RegistryError, type RegistryProblem } from "../../src/federation/registry/problems.ts";

/** The sample organisation: tests/fixtures/federation/harbour. */
export const HARBOUR = fileURLToPath(new URL("../fixtures/federation/harbour/", import.meta.url));

/** Every file below a folder's registry/, by its path in the repository. */
export function registryFiles(directory = HARBOUR): Map<string, string> {
  return new Map(
    readdirSync(`${directory}/registry`, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const file = `${entry.parentPath}/${entry.name}`;
        return [file.slice(file.indexOf("registry/", directory.length)), readFileSync(file, "utf8")];
      }),
  );
}

/** The sample organisation with some of its files put in place of, or beside, the others. */
export function harbourWith(changes: ReadonlyMap<string, string | null>): Map<string, string> {
  const files = registryFiles();
  for (const [path, text] of changes) {
    if (text === null) files.delete(path);
    else files.set(path, text);
  }
  return files;
}

/** One file of the sample organisation with a line of text put before its line `line`. */
export function withLine(path: string, line: number, text: string): Map<string, string> {
  const lines = (registryFiles().get(path) ?? "").split("\n");
  lines.splice(line - 1, 0, text);
  return new Map([[path, lines.join("\n")]]);
}

/** One file of the sample organisation with a piece of its text replaced; the piece must be there. */
export function withText(path: string, from: string, to: string): Map<string, string> {
  const text = registryFiles().get(path) ?? "";
  if (!text.includes(from)) throw new TypeError(`${path} has no ${JSON.stringify(from)}`);
  return new Map([[path, text.replace(from, () => to)]]);
}

/** Everything wrong with the sample organisation after changes; empty when it loads. */
export function problemsOf(changes: ReadonlyMap<string, string | null>): readonly RegistryProblem[] {
  try {
    loadRegistry(harbourWith(changes));
    return [];
  } catch (error) {
    if (error instanceof RegistryError) return error.problems;
    throw error;
  }
}
