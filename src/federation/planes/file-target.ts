// A rendered file at the place where a real part reads it. Invariants: the file is whole at every instant; one that
// says the right thing already is not touched; a difference is reported by digest, never by text; a pipe or a device
// in its place is replaced and never waited for.
import { chmodSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseJson } from "../../domain/json.ts";
import { type FollowedFile, GatewayState } from "../../rendered-files/gateway-files.ts";
import { PUBLIC, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import type { FederationConfig } from "../config.ts";
import { type DesiredPlane, type Drift, type Note, type PartOutcome, renderedText } from "./plane.ts";

/** Whether the text changed. @throws DrawbridgeError `config_invalid` when a folder is in the way */
export function applyFile(target: string, text: string): boolean {
  if (statSync(target, { throwIfNoEntry: false })?.isDirectory()) {
    const hint = "Move the folder away, or correct the path in federation.yaml.";
    throw new DrawbridgeError("config_invalid", `${target} is a folder, where a file is to be`, { hint });
  }
  if (standingText(target) !== text) {
    writeWhole(target, text, PUBLIC);
    return true;
  }
  if ((statSync(target).mode & 0o777) !== PUBLIC) chmodSync(target, PUBLIC);
  return false;
}

const isNoFile = (target: string): boolean => statSync(target, { throwIfNoEntry: false })?.isFile() === false;

/** The text at a target; empty for anything but a file, undefined when there is nothing. */
export function standingText(target: string): string | undefined {
  return isNoFile(target) ? "" : readIfPresent(target);
}

export function fileDrift(target: string, desiredText: string): Drift | undefined {
  if (isNoFile(target)) return { subject: target, kind: "edited", found: null };
  const text = readIfPresent(target);
  if (text === undefined) return { subject: target, kind: "missing", found: null, file: target };
  if (text === desiredText) return undefined;
  return { subject: target, kind: "edited", found: sha256Tagged(text), file: target };
}

/** A rendered file (`path` is below `rendered/`) that a program follows at `target`, and what the program says of it. */
export interface ProgramFile {
  readonly path: string;
  readonly target: string;
  readonly name: string;
  /** Digest of the file in force; undefined when the program does not run. */
  digest(): Promise<string | undefined>;
  /** @returns false when the program does not run. @throws DrawbridgeError when it refuses the file or is late */
  untilInForce(text: string): Promise<boolean>;
  /** Why the plane waits when the program does not run. */
  readonly absent: string;
}

export async function applyProgramFile(file: ProgramFile, text: string, note: Note): Promise<PartOutcome> {
  const changed = applyFile(file.target, text);
  if (!(await file.untilInForce(text))) return { changed, deferred: file.absent };
  note(`${file.name} ${sha256Tagged(text)} is in force`);
  return { changed };
}

type Others = () => Promise<readonly Drift[]>;

/** Drift of these files, and of other parts; what is known is reported also when the rest cannot be known. */
export async function programDrift(files: readonly ProgramFile[], desired: DesiredPlane, others?: Others) {
  const found: Drift[] = [];
  let absent: ProgramFile | undefined;
  for (const file of files) {
    const text = renderedText(desired, file.path);
    const drift = fileDrift(file.target, text);
    if (drift !== undefined) {
      found.push(drift);
      continue;
    }
    const digest = await file.digest();
    if (digest === undefined) absent ??= file;
    else if (digest !== sha256Tagged(text))
      found.push({ subject: file.name, kind: "not_in_force", found: digest });
  }
  try {
    found.push(...((await others?.()) ?? []));
  } catch (error) {
    if (found.length === 0) throw error;
  }
  if (found.length > 0 || absent === undefined) return found;
  throw new DrawbridgeError("not_running", `the program that reads the ${absent.name} file is not running`, {
    hint: `Start the program that reads ${absent.target}.`,
  });
}

const POLL_MS = 20;
/** Envoy validates, then loads three files one after the other, and waits for the issuer's keys at most once. */
const IN_FORCE_WITHIN_MS = 20_000;
/** A gateway that has not written its state for so long does not run. */
const RUNNING_WITHIN_MS = 3_000;

export function gatewayState(file: string): GatewayState | undefined {
  return GatewayState.safeParse(parseJson(readIfPresent(file) ?? "")).data;
}

type Name = Exclude<FollowedFile, "gateway">;
type Gateway = NonNullable<FederationConfig["gateway"]>;

/** A file of the gateway. It counts as in force only when the gateway itself names its digest (state.json). */
export function gatewayFile(name: Name, path: string, gateway: Gateway, directory: string, clock: Clock) {
  const stateFile = resolve(directory, gateway.stateFile);
  const refusal = (what: string) =>
    new DrawbridgeError("gateway_refused", what, {
      hint: "The gateway's log says why at config_refused; what it served before is still in force.",
    });
  return {
    ...{ name, path, target: resolve(directory, gateway[`${name}File`]), absent: "gateway_not_running" },
    digest: async () => gatewayState(stateFile)?.[name],
    async untilInForce(text) {
      const digest = sha256Tagged(text);
      for (const begun = clock.now(); ; await clock.sleep(POLL_MS)) {
        const state = gatewayState(stateFile);
        if (state?.[name] === digest) return true;
        const refused = state?.refused;
        if (refused?.file === name && refused.digest === digest)
          throw refusal(`the gateway refuses its ${name} file: ${refused.reason}`);
        const waited = clock.now() - begun;
        if (state === undefined && waited >= RUNNING_WITHIN_MS) return false;
        if (waited >= IN_FORCE_WITHIN_MS) throw refusal(`the gateway does not load its ${name} file`);
      }
    },
  } satisfies ProgramFile;
}
