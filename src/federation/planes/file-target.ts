// A rendered file at the place where a real part reads it. Invariants: the file is whole at every instant; one that
// says the right thing already is not touched; a difference is reported by digest, never by text; a pipe or a device
// in its place is replaced and never waited for.
import { chmodSync, statSync } from "node:fs";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { type FollowedFile, GatewayState } from "../../rendered-files/gateway-files.ts";
import { readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import type { Drift } from "./plane.ts";

/** Whether the text changed. @throws DrawbridgeError `config_invalid` when a folder is in the way */
export function applyFile(target: string, text: string, mode: number): boolean {
  if (statSync(target, { throwIfNoEntry: false })?.isDirectory()) {
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

function isNoFile(target: string): boolean {
  return statSync(target, { throwIfNoEntry: false })?.isFile() === false;
}

/** The text at a target; empty for anything but a file, undefined when there is nothing. */
export function standingText(target: string): string | undefined {
  return isNoFile(target) ? "" : readIfPresent(target);
}

export function fileDrift(target: string, desiredText: string): Omit<Drift, "plane"> | undefined {
  if (isNoFile(target)) return { subject: target, kind: "edited", found: null };
  const text = readIfPresent(target);
  if (text === undefined) return { subject: target, kind: "missing", found: null, file: target };
  if (text === desiredText) return undefined;
  return { subject: target, kind: "edited", found: sha256Tagged(text), file: target };
}

// What the gateway says it has in force (state.json), as planes 4 and 5 wait for it.
// Invariant: a file counts as in force only when the gateway itself names the digest of its bytes.

const POLL_MS = 20;
/** Envoy validates, then loads three files one after the other, and waits for the issuer's keys at most once. */
const IN_FORCE_WITHIN_MS = 20_000;
/** A gateway that has not written its state for so long does not run. */
const RUNNING_WITHIN_MS = 3_000;

export function readGatewayState(file: string): GatewayState | undefined {
  return GatewayState.safeParse(parseJson(readIfPresent(file) ?? "")).data;
}

/** False when no gateway runs. @throws DrawbridgeError `gateway_refused` when it refuses the file or is late */
export async function untilInForce(
  stateFile: string,
  file: Exclude<FollowedFile, "gateway">,
  text: string,
  clock: Clock,
): Promise<boolean> {
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

function refusal(what: string): DrawbridgeError {
  return new DrawbridgeError("gateway_refused", what, {
    hint: "The gateway's log says why at config_refused; what it served before is still in force.",
  });
}
