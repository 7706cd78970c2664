// The three files that a gateway follows: its own, which cards are public, and who may call. Each new content is
// reported once. Invariants: content counts, not the time stamp, so that a rename, a symbolic link swap and an edit in
// place are all noticed; a file is taken as the bytes it holds, whose digest is what the state file reports; bytes that
// are not UTF-8, or more than 16 MiB of them, are refused before anything parses them.
import { readFileSync, statSync } from "node:fs";
import type { Clock } from "../domain/clock.ts";
import { sha256Tagged } from "../domain/digest.ts";
import { DrawbridgeError, type ErrorCode } from "../domain/errors.ts";
import {
  type FollowedFile,
  InvocationFile,
  PublicationFile,
  type RefusalReason,
} from "../rendered-files/gateway-files.ts";
import { ConfigError, parseYaml } from "../runtime/load-yaml.ts";
import { type GatewayConfig, parseGatewayConfig } from "./config.ts";
import type { ParsedFile } from "./merge-access-files.ts";

const MAX_BYTES = 16 * 1_024 * 1_024;

/** A file that can be used, as far as it can be judged by itself. */
export interface Source<T> extends ParsedFile<T> {
  readonly digest: string;
}

export interface Sources {
  readonly gateway: Source<GatewayConfig>;
  readonly publication: Source<PublicationFile>;
  readonly invocation: Source<InvocationFile>;
}

/** A file's bytes as they were read, or that it could not be. */
export interface Reading {
  readonly file: string;
  /** null when there is nothing to read. */
  readonly bytes: Buffer | null;
  readonly digest: string | null;
}

/** A file that is not used, and why. */
export interface RefusedFile {
  readonly file: FollowedFile;
  readonly digest: string | null;
  readonly reason: RefusalReason;
  readonly error: DrawbridgeError;
}

function read(file: string): Reading {
  try {
    if (statSync(file).size > MAX_BYTES) return { file, bytes: Buffer.alloc(0), digest: null };
    const bytes = readFileSync(file);
    return { file, bytes, digest: sha256Tagged(bytes) };
  } catch {
    return { file, bytes: null, digest: null };
  }
}

/** Equal for equal content: the digest, or what stands in the way of one. */
export function fingerprint({ bytes, digest }: Reading): string {
  return digest ?? (bytes === null ? "unreadable" : "too large");
}

/** @throws DrawbridgeError `config_unreadable`, ConfigError */
function textOf({ file, bytes, digest }: Reading): string {
  if (bytes === null) {
    throw new DrawbridgeError("config_unreadable", `cannot read ${file}`, {
      hint: "Check the path and that this user may read the file.",
    });
  }
  const problem = (message: string) => new ConfigError(file, [{ line: 1, path: "", message }]);
  if (digest === null) throw problem("larger than 16 MiB");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw problem("not UTF-8");
  }
}

function parse<T>(reading: Reading, parseText: (text: string, file: string) => T): Source<T> {
  const text = textOf(reading);
  return { file: reading.file, text, digest: reading.digest ?? "", value: parseText(text, reading.file) };
}

export const PARSERS = {
  gateway: (reading: Reading) => parse(reading, parseGatewayConfig),
  publication: (reading: Reading) => parse(reading, (text, file) => parseYaml(PublicationFile, text, file)),
  invocation: (reading: Reading) => parse(reading, (text, file) => parseYaml(InvocationFile, text, file)),
} as const;

/** @throws ConfigError, DrawbridgeError `config_unreadable` */
export function loadSources(configFile: string): Sources {
  const gateway = PARSERS.gateway(read(configFile));
  return {
    gateway,
    publication: PARSERS.publication(read(gateway.value.publicationFile)),
    invocation: PARSERS.invocation(read(gateway.value.invocationFile)),
  };
}

const REASONS: Partial<Record<ErrorCode, RefusalReason>> = {
  config_unreadable: "unreadable",
  config_invalid: "invalid",
  program_failed: "refused_by_envoy",
};

/** Why a file was refused, from what was thrown; anything but an operator's error is thrown on. */
export function refused(file: FollowedFile, digest: string | null, error: unknown): RefusedFile {
  if (!(error instanceof DrawbridgeError)) throw error;
  return { file, digest, reason: REASONS[error.code] ?? "needs_restart", error };
}

/** A revocation waits for it at most. */
const POLL_INTERVAL_MS = 100;

/** What the files hold. */
export type Readings = Readonly<Record<FollowedFile, Reading>>;

/** Calls `onChange` for each new content of these files until the signal aborts, one call at a time. */
export async function followFiles(
  { gateway, publication, invocation }: Sources,
  onChange: (readings: Readings) => Promise<void>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  let reported = [gateway, publication, invocation].map(({ digest }) => digest).join();
  while (!signal.aborted) {
    const readings = {
      gateway: read(gateway.file),
      publication: read(publication.file),
      invocation: read(invocation.file),
    };
    const found = Object.values(readings).map(fingerprint).join();
    if (found !== reported) {
      reported = found;
      await onChange(readings);
    }
    // An abort ends the wait, and so the loop.
    await clock.sleep(POLL_INTERVAL_MS, signal).catch(() => undefined);
  }
}
