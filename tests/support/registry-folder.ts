// Registries for tests: the sample organisation, as an operator would write it, and small ones made up.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

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
