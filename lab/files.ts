// The lab's JSON, secret and configuration files.
// Invariants: a file is whole or absent, never half written; a secret is readable by this user alone and is made once;
// configuration that was edited by hand is not overwritten.
import * as z from "zod";
import { systemRandom } from "../src/domain/clock.ts";
import { sha256Tagged } from "../src/domain/digest.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { editYaml } from "../src/runtime/edit-yaml.ts";
import { PRIVATE, PUBLIC, readIfPresent, writeWhole } from "../src/runtime/write-file.ts";

export function writeJson(file: string, value: unknown): void {
  writeWhole(file, `${JSON.stringify(value, null, 2)}\n`, PRIVATE);
}

/**
 * Reads one of the lab's own JSON files; undefined when there is none.
 * @throws DrawbridgeError `config_invalid` when it is not what the lab writes
 */
export function readJson<Schema extends z.ZodType>(
  schema: Schema,
  file: string,
): z.output<Schema> | undefined {
  const text = readIfPresent(file);
  if (text === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new DrawbridgeError("config_invalid", `${file} is damaged, or of another version of the lab`, {
    hint: "Start afresh: ./task fed:down --purge, then ./task fed:up.",
  });
}

/** The text of a secret file, made by `make` if it is not there yet. */
export async function keepSecret(
  file: string,
  make: () => string | Promise<string> = randomSecret,
): Promise<string> {
  const found = readIfPresent(file);
  if (found !== undefined && found.trim() !== "") return found.trim();
  const made = await make();
  writeWhole(file, `${made}\n`, PRIVATE);
  return made.trim();
}

/** A secret of 256 bits, in characters that no format needs to quote. */
function randomSecret(): string {
  return systemRandom.bytes(32).toString("base64url");
}

export interface ConfigurationFile {
  readonly file: string;
  readonly text: string;
  readonly mode: number;
}

/** The digest of what was written into each file; `changed`: of what an act of the lab has made of it since. */
const Manifest = z.record(z.string(), z.union([z.string(), z.strictObject({ changed: z.string() })]));

/** Changes a configuration file as an operator would by hand, for good, so that it is not reported as edited. */
export function changeConfiguration(
  file: string,
  path: readonly string[],
  value: unknown,
  manifestFile: string,
): void {
  const text = editYaml(readIfPresent(file) ?? "", [{ path, value }]);
  writeWhole(file, text, PUBLIC);
  writeJson(manifestFile, { ...readJson(Manifest, manifestFile), [file]: { changed: sha256Tagged(text) } });
}

/**
 * Writes configuration, and records its digests.
 * @returns the files that were edited since, and were therefore left as they are
 */
export function writeConfiguration(files: readonly ConfigurationFile[], manifestFile: string): string[] {
  const before = readJson(Manifest, manifestFile) ?? {};
  const after = { ...before };
  const edited: string[] = [];
  for (const { file, text, mode } of files) {
    const onDisk = readIfPresent(file);
    const wrote = before[file];
    if (typeof wrote === "object" && onDisk !== undefined) {
      if (sha256Tagged(onDisk) !== wrote.changed) edited.push(file);
      continue;
    }
    if (onDisk !== undefined && onDisk !== text && wrote !== undefined && sha256Tagged(onDisk) !== wrote) {
      edited.push(file);
      after[file] = wrote;
      continue;
    }
    if (onDisk !== text) writeWhole(file, text, mode);
    after[file] = sha256Tagged(text);
  }
  writeJson(manifestFile, after);
  return edited;
}
