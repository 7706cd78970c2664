// What every command and the reconciler work with: a deployment's repository, state and planes.
import { resolve } from "node:path";
import type { Clock, Random } from "../../domain/clock.ts";
import type { Part } from "../../records/format/fields.ts";
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../plane-order.ts";
import { type PlaneRuntimes, planeRuntimes } from "../planes/runtimes.ts";
import type { SigningPolicy } from "../repository/commit-signatures.ts";
import { parseRevision, Repository } from "../repository/repository.ts";
import { openStateFolder } from "../state/folder.ts";
import { PartnerCache } from "../state/partner-cache.ts";
import type { Applied, DriftRecord, Refusal } from "../state/plane-records.ts";

export const timestamp = (ms: number): string => new Date(ms).toISOString();

/** The one context of every procedure. */
export type Federation = Readonly<Awaited<ReturnType<typeof openFederation>>>;

interface OpenOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly reporter: Reporter;
  /** Called once, when another change of this machine is waited for. */
  readonly onWait?: () => void;
  readonly planes?: PlaneRuntimes;
}

/** Makes nothing but the state folder. @throws DrawbridgeError `repository_unusable`, `config_unreadable`, `secret_unavailable` */
export async function openFederation(config: FederationConfig, options: OpenOptions) {
  const { clock, random, reporter, onWait, planes = planeRuntimes(config, clock) } = options;
  const { repository, directory } = config;
  const below = (path: string | undefined) => (path === undefined ? undefined : resolve(directory, path));
  const allowedSignersFile = below(repository.allowedSignersFile);
  const { signedCommits } = repository;
  const trustedBase = parseRevision(repository.trustedBase);
  /** Which commits must be signed, and by whom; undefined: any commit is accepted. */
  const signing: SigningPolicy | undefined =
    allowedSignersFile === undefined ? undefined : { allowedSignersFile, signedCommits, trustedBase };
  /** The programs that this organisation runs: about any other, nothing is known. */
  const parts: readonly Part[] = [
    "homeserver",
    ...(config.card === undefined ? [] : (["bridge"] as const)),
    ...(config.gateway === undefined ? [] : (["gateway"] as const)),
  ];
  const state = openStateFolder(resolve(directory, config.state), random);
  return {
    ...{ config, clock, random, reporter, onWait, planes, parts, signing, state },
    repository: await Repository.open(resolve(directory, repository.path), repository.branch),
    cache: new PartnerCache(state),
    author: repository.author,
    signingKeyFile: below(repository.signingKeyFile),
  };
}

// What the reconciler reports while it works: to a log, or to a person who waits.
// Invariant: content-free: revisions, digests, planes, reasons, codes, identifiers.

type Ended = Omit<Applied, "at" | "firstAt" | "attempts"> & { durationMs: number };

export type ReconcileEvent =
  /** `order` is of the planes; null where one plane alone is applied. */
  | Readonly<{ event: "head_accepted"; revision: string; order: "closing" | "opening" | null }>
  /** The branch's head is not accepted; the last good revision stays in force, or none was ever accepted. */
  | Readonly<{ event: "head_refused"; revision: string | null; inForce: string | null } & Refusal>
  | Readonly<{ event: "plane_begun"; plane: PlaneName; revision: string }>
  | Readonly<{ event: "plane_ended"; plane: PlaneName; changed: boolean; hint: string | null } & Ended>
  | Readonly<{ event: "plane_waits"; plane: PlaneName }>
  | Readonly<{ event: "drift"; record: DriftRecord }>
  | Readonly<{ event: "drift_unknown"; plane: PlaneName; code: string }>
  | Readonly<{ event: "state_damaged"; file: string }>;

export interface Reporter {
  event(event: ReconcileEvent): void;
  note(plane: PlaneName, text: string): void;
}
