// A rendered file at the place where a real part reads it: put there, and compared with what was put there.
// Invariants: the file is whole at every instant; one that says the right thing already is not touched, so
// that nobody who watches it reloads for nothing; a difference is reported by digest, never by text; a pipe or a
// device in its place is replaced and never waited for.
import { chmodSync, statSync } from "node:fs";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { type FollowedFile, GatewayState } from "../../rendered-files/gateway-files.ts";
import { readIfPresent, writeWhole } from "../../runtime/write-file.ts";

/**
 * Brings a file to a text and a mode.
 * @returns whether its text changed
 * @throws DrawbridgeError `config_invalid` when a folder is in the way
 */
export function applyFile(target: string, text: string, mode: number): boolean {
  if (kindOf(target) === "folder") {
    throw new DrawbridgeError("config_invalid", `${target} is a folder, where a file is to be`, {
      hint: "Move the folder away, or correct the path in federation.yaml.",
    });
  }
  if (standingText(target) !== text) {
    writeWhole(target, text, mode);
    return true;
  }
  if ((statSync(target).mode & 0o777) !== mode) chmodSync(target, mode);
  return false;
}

/** The kind of file at a path, links followed. */
function kindOf(path: string): "file" | "folder" | "other" | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return undefined;
  return stat.isFile() ? "file" : stat.isDirectory() ? "folder" : "other";
}

/** The text at a target; empty for anything but a file, undefined when there is nothing. */
export function standingText(target: string): string | undefined {
  const kind = kindOf(target);
  return kind === "folder" || kind === "other" ? "" : readIfPresent(target);
}

/** How a target differs from the text that was written there; spread into a plane's `Drift`. */
export interface FileDrift {
  /** The target's path. */
  readonly subject: string;
  readonly kind: "edited" | "missing";
  /** SHA-256, tagged, of the target's text; null when there is no file. */
  readonly found: string | null;
  /** The reconciler keeps a copy of this file before it is overwritten; absent for anything but a file. */
  readonly file?: string;
}

/** Compares a target with the text that should stand there. */
export function fileDrift(target: string, desiredText: string): FileDrift | undefined {
  const kind = kindOf(target);
  if (kind === "folder" || kind === "other") return { subject: target, kind: "edited", found: null };
  const text = readIfPresent(target);
  if (text === undefined) return { subject: target, kind: "missing", found: null, file: target };
  if (text === desiredText) return undefined;
  return { subject: target, kind: "edited", found: sha256Tagged(text), file: target };
}

// What the gateway says it has in force (state.json), as planes 4 and 5 wait for it.
// Invariant: a file counts as in force only when the gateway itself names the digest of its bytes; that it was
// written says nothing.

const POLL_MS = 20;
/** Envoy validates, then loads three files one after the other, and waits for the issuer's keys at most once. */
const IN_FORCE_WITHIN_MS = 20_000;
/** A gateway that has not written its state for so long does not run. */
const RUNNING_WITHIN_MS = 3_000;

/** The gateway's state; undefined while none runs. */
export function readGatewayState(file: string): GatewayState | undefined {
  return GatewayState.safeParse(parseJson(readIfPresent(file) ?? "")).data;
}

export interface Awaited {
  /** Path of state.json. */
  readonly stateFile: string;
  readonly file: Exclude<FollowedFile, "gateway">;
  /** What was written for the gateway to load. */
  readonly text: string;
}

/**
 * Waits until the gateway has a file in force.
 * @returns false when no gateway runs
 * @throws DrawbridgeError `gateway_refused` when it refuses the file, or does not take it up in time
 */
export async function untilInForce({ stateFile, file, text }: Awaited, clock: Clock): Promise<boolean> {
  const digest = sha256Tagged(text);
  const begun = clock.now();
  for (;;) {
    const state = readGatewayState(stateFile);
    if (state?.[file] === digest) return true;
    const refused = state?.refused;
    if (refused?.file === file && refused.digest === digest) {
      throw refusal(`the gateway refuses its ${file} file: ${refused.reason}`);
    }
    const waited = clock.now() - begun;
    if (state === undefined && waited >= RUNNING_WITHIN_MS) return false;
    if (waited >= IN_FORCE_WITHIN_MS) throw refusal(`the gateway does not load its ${file} file`);
    await clock.sleep(POLL_MS);
  }
}

/** For a drift check that needs a running gateway. */
export function gatewayNotRunning(): DrawbridgeError {
  return new DrawbridgeError(
    "not_running",
    "no gateway is running, so the files that it has in force are unknown",
    { hint: "Start the gateway." },
  );
}

function refusal(what: string): DrawbridgeError {
  return new DrawbridgeError("gateway_refused", what, {
    hint: "The gateway's log says why at config_refused; what it served before is still in force.",
  });
}
