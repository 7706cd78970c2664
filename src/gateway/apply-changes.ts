// Brings changed files of the gateway into force. Invariants: nothing is put in force that Envoy's validation refuses; a
// file that cannot be used leaves its last good content in force and holds up no other file; of several changed files, all
// are taken together if they can be, else each by itself, the one that can close a partner out first; a content that
// Envoy has refused holds up no other.
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { DrawbridgeError } from "../domain/errors.ts";
import { FollowedFile } from "../rendered-files/gateway-files.ts";
import type { GatewayConfig } from "./config.ts";
import { applyLive, type EnvoyAdmin, orRefused, placeAll, placeFile, placeWatched } from "./envoy-files.ts";
import { validateFile } from "./envoy-process.ts";
import { type AccessRules, keepQuotas, mergeAccessRules } from "./merge-access-files.ts";
import { renderQuotaFile } from "./render/rate-limit.ts";
import { type RenderedGateway, render, TWIN_FILE } from "./render/render.ts";
import {
  fingerprint,
  PARSERS,
  type Readings,
  type RefusedFile,
  refused,
  type Sources,
} from "./source-files.ts";

export interface InForce {
  readonly sources: Sources;
  readonly intent: AccessRules;
  readonly rendered: RenderedGateway;
}

function needsRestart(current: GatewayConfig, next: GatewayConfig): string | undefined {
  for (const key of ["adminPort", "publicationFile", "invocationFile", "stateFile"] as const) {
    if (current[key] !== next[key]) return key;
  }
  for (const key of ["binary", "directory", "concurrency"] as const) {
    if (current.envoy[key] !== next.envoy[key]) return `envoy.${key}`;
  }
  return undefined;
}

/** Has Envoy validate what is rendered; nothing is in force yet. @throws ConfigError, DrawbridgeError */
export async function prepare(sources: Sources, current?: InForce): Promise<InForce> {
  const config = sources.gateway.value;
  const merged = mergeAccessRules(sources.publication, sources.invocation);
  const intent = current === undefined ? merged : keepQuotas(current.intent, merged);
  const { binary, directory } = config.envoy;
  const rendered = render(config, intent, directory);
  orRefused(config.accessLog, () => mkdirSync(dirname(config.accessLog), { recursive: true }));
  placeFile(directory, TWIN_FILE, rendered.files[TWIN_FILE] ?? "");
  await validateFile(binary, join(directory, TWIN_FILE));
  return { sources, intent, rendered };
}

/** The shared limiter's quotas, where this gateway is the one that writes them. */
export function placeQuotas({ sources, intent }: InForce): void {
  const { limiter } = sources.gateway.value;
  if (limiter.mode === "local" || limiter.quotaFile === undefined) return;
  placeWatched(limiter.quotaFile, renderQuotaFile(limiter.domain, intent.quotas));
}

async function bringIntoForce(current: InForce, sources: Sources, admin: EnvoyAdmin, signal: AbortSignal) {
  const key = needsRestart(current.sources.gateway.value, sources.gateway.value);
  if (key !== undefined) {
    const problem = `${sources.gateway.file}: ${key} cannot change while the gateway runs`;
    throw new DrawbridgeError("usage", problem, { hint: "Restart the gateway, or put the old value back." });
  }
  const next = await prepare(sources, current);
  const { directory } = current.sources.gateway.value.envoy;
  placeQuotas(next);
  try {
    await applyLive(directory, current.rendered, next.rendered, admin, signal);
  } catch (error) {
    // Envoy kept what it had; the files must say so too, or the next rename would bring the refused one back.
    try {
      placeAll(directory, current.rendered);
      placeQuotas(current);
    } catch (cause) {
      throw new Error("what Envoy has in force is not known: its files cannot be put back", { cause });
    }
    throw error;
  }
  return next;
}

/**
 * @param refusedBefore what is not tried again beside a new content, if Envoy has refused it and the new one can do without
 * @returns `refused`: files that are there and not in force, the first to be reported first
 */
export async function applyChanges(
  current: InForce,
  readings: Readings,
  refusedBefore: readonly RefusedFile[],
  admin: EnvoyAdmin,
  signal: AbortSignal,
): Promise<{ readonly inForce: InForce; readonly refused: readonly RefusedFile[] }> {
  const refusals = new Map<FollowedFile, RefusedFile>();
  const refuse = (name: FollowedFile, error: unknown) =>
    refusals.set(name, refused(name, readings[name].digest, error));
  const wanted: Partial<Sources> = {};
  for (const name of FollowedFile.options) {
    if (fingerprint(readings[name]) === current.sources[name].digest) continue;
    try {
      Object.assign(wanted, { [name]: PARSERS[name](readings[name]) });
    } catch (error) {
      refuse(name, error);
    }
  }
  const names = FollowedFile.options.filter((name) => wanted[name] !== undefined);
  let inForce = current;
  const attempt = async (chosen: readonly FollowedFile[]): Promise<boolean> => {
    const sources = { ...inForce.sources };
    for (const name of chosen) Object.assign(sources, { [name]: wanted[name] });
    try {
      inForce = await bringIntoForce(inForce, sources, admin, signal);
      for (const name of chosen) refusals.delete(name);
      return true;
    } catch (error) {
      for (const name of chosen) refuse(name, error);
      return false;
    }
  };
  const known = refusedBefore.filter(
    ({ file, digest, reason }) => reason === "refused_by_envoy" && digest === readings[file].digest,
  );
  const fresh = names.filter((name) => !known.some(({ file }) => file === name));
  if (fresh.length > 0 && fresh.length < names.length && (await attempt(fresh))) {
    for (const one of known) refusals.set(one.file, one);
  } else if (names.length > 0 && !(await attempt(names)) && names.length > 1) {
    for (const name of names) await attempt([name]);
  }
  return { inForce, refused: FollowedFile.options.flatMap((name) => refusals.get(name) ?? []) };
}
