// What the gateway says it has in force (state.json), as planes 4 and 5 wait for it.
// Invariant: a file counts as in force only when the gateway itself names the digest of its bytes; that it was
// written says nothing.

import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { type FollowedFile, GatewayState } from "../../rendered-files/gateway-state.ts";
import { readIfPresent } from "../../runtime/write-file.ts";

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
    {
      hint: "Start the gateway.",
    },
  );
}

function refusal(what: string): DrawbridgeError {
  return new DrawbridgeError("gateway_refused", what, {
    hint: "The gateway's log says why at config_refused; what it served before is still in force.",
  });
}
