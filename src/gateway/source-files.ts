// The three files that a gateway follows: its own, which cards are public, and who may call.
// Invariants: content counts, not the time stamp, so that a rename, a symbolic link swap and an edit in place are all
// noticed, and each new content is reported once, or until it was taken up; its digest is what the state file reports;
// bytes that are not UTF-8, or more than 16 MiB of them, are refused before anything parses them.
import { isUtf8 } from "node:buffer";
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
import { type Backoff, backoffMs } from "../runtime/backoff.ts";
import { ConfigError, parseYaml } from "../runtime/load-yaml.ts";
import { parseGatewayConfig } from "./config.ts";

const MAX_BYTES = 16 * 1_024 * 1_024;

/** The three files where each can be used, as far as it can be judged by itself. */
export type Sources = { readonly [Name in FollowedFile]: ReturnType<(typeof PARSERS)[Name]> };

/** A file as it was read: without a digest when it cannot be taken, for the reason that `bytes` is then. */
export interface Reading {
  readonly file: string;
  readonly bytes: Buffer | "unreadable" | "larger than 16 MiB";
  readonly digest: string | null;
}

export type RefusedFile = ReturnType<typeof refused>;

function read(file: string): Reading {
  try {
    if (statSync(file).size > MAX_BYTES) return { file, bytes: "larger than 16 MiB", digest: null };
    const bytes = readFileSync(file);
    return { file, bytes, digest: sha256Tagged(bytes) };
  } catch {
    return { file, bytes: "unreadable", digest: null };
  }
}

/** Equal for equal content: the digest, or what stands in the way of one. */
export const fingerprint = ({ bytes, digest }: Reading): string => digest ?? String(bytes);

/** @throws DrawbridgeError `config_unreadable`, ConfigError */
function textOf({ file, bytes }: Reading): string {
  if (bytes === "unreadable") {
    throw new DrawbridgeError("config_unreadable", `cannot read ${file}`, {
      hint: "Check the path and that this user may read the file.",
    });
  }
  if (typeof bytes !== "string" && isUtf8(bytes)) return new TextDecoder().decode(bytes);
  const message = typeof bytes === "string" ? bytes : "not UTF-8";
  throw new ConfigError(file, [{ line: 1, path: "", message }]);
}

function parse<T>(reading: Reading, parseText: (text: string, file: string) => T) {
  const { file, digest } = reading;
  const text = textOf(reading);
  return { file, text, digest: digest ?? "", value: parseText(text, file) };
}

export const PARSERS = {
  gateway: (reading: Reading) => parse(reading, parseGatewayConfig),
  publication: (reading: Reading) => parse(reading, (text, file) => parseYaml(PublicationFile, text, file)),
  invocation: (reading: Reading) => parse(reading, (text, file) => parseYaml(InvocationFile, text, file)),
};

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
export function refused(file: FollowedFile, digest: string | null, error: unknown) {
  if (!(error instanceof DrawbridgeError)) throw error;
  const reason: RefusalReason = REASONS[error.code] ?? "needs_restart";
  return { file, digest, reason, error };
}

/** A revocation waits for it at most. */
const POLL_INTERVAL_MS = 100;
/**
 * A revocation that Envoy did not take, because of a lack of memory for one, must not wait for another change; what it will
 * never take holds up a new content for as long as one more try takes.
 */
const RETRY: Backoff = { firstMs: 5_000, maxMs: 60_000 };

export type Readings = Readonly<Record<FollowedFile, Reading>>;

/**
 * Calls `onChange` for each new content of these files until the signal aborts, one call at a time.
 * @param onChange returns whether it is to be called again in a while, though nothing changes
 */
export async function followFiles(
  { gateway, publication, invocation }: Sources,
  onChange: (readings: Readings) => Promise<boolean>,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  let reported = [gateway, publication, invocation].map(({ digest }) => digest).join();
  let tries = 0;
  let retryAt = Number.POSITIVE_INFINITY;
  while (!signal.aborted) {
    const readings = {
      gateway: read(gateway.file),
      publication: read(publication.file),
      invocation: read(invocation.file),
    };
    const found = Object.values(readings).map(fingerprint).join();
    const isNew = found !== reported;
    if (isNew || clock.now() >= retryAt) {
      tries = isNew ? 0 : tries + 1;
      reported = found;
      const isAgain = await onChange(readings);
      const nextAt = clock.now() + backoffMs(RETRY, tries);
      // A new content puts off no try that is due.
      retryAt = isAgain ? (isNew ? Math.min(retryAt, nextAt) : nextAt) : Number.POSITIVE_INFINITY;
    }
    await clock.sleep(POLL_INTERVAL_MS, signal).catch(() => undefined);
  }
}
