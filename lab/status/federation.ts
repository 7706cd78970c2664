// What federation control of one organisation declares and has applied, from its repository and its state folder.
// Invariant: reading the status changes nothing.
import { existsSync } from "node:fs";
import { parse } from "yaml";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { counterpartyIn, listRuns } from "../../src/federation/offboarding/run/run-file.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { readRevision, registryOf } from "../../src/federation/reconcile/desired-state.ts";
import { READMISSIONS, readmissionRecordsIn } from "../../src/federation/registry/committed-records.ts";
import { isRemoved, Partner, type PartnerEntry } from "../../src/federation/registry/partner.ts";
import { RegistryError } from "../../src/federation/registry/problems.ts";
import { Repository, type Revision } from "../../src/federation/repository/repository.ts";
import { openStateFolder, type StateFolder } from "../../src/federation/state/folder.ts";
import { PartnerCache } from "../../src/federation/state/partner-cache.ts";
import { readHead, readPlane } from "../../src/federation/state/plane-records.ts";
import { BRANCH } from "../configuration/control-repository.ts";
import { vantagesOf } from "../configuration/federation.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import type { FederationStatus } from "./schema.ts";

const RECONCILED = { timeoutMs: 60_000, everyMs: 100 };

export async function federationStatus(
  lab: Lab,
  organisation: CompleteOrganisation,
): Promise<FederationStatus> {
  const paths = lab.paths.organisation(organisation);
  return {
    configFile: paths.federationConfig,
    repository: paths.controlRepository,
    branch: BRANCH,
    ...(await branchStatus(paths.controlRepository, paths.federationState)),
    stateDirectory: paths.federationState,
    probeFiles: Object.fromEntries(
      vantagesOf(lab, organisation).map((as) => [as, paths.probeFile(as)]),
    ) as FederationStatus["probeFiles"],
    border: {
      statusUrl: `${homeserverEndpoints(lab, organisation).clientUrl}/_synapse/client/drawbridge/v1/border`,
      statusTokenFile: paths.borderStatusToken,
      policyFile: paths.policyFile,
      violationsFile: paths.violationsFile,
    },
    transportFile: paths.transportFile,
    publicationFile: paths.publicationFile,
    invocationFile: paths.invocationFile,
    gatewayStateFile: paths.gatewayState,
  };
}

/** Planes that are not in force as the branch says. */
export function planesBehind({ planes, revision }: FederationStatus): string[] {
  return Object.entries(planes).flatMap(([name, plane]) =>
    plane?.outcome === "in_force" && plane.revision === revision ? [] : [name],
  );
}

type BranchStatus = Pick<
  FederationStatus,
  "revision" | "accepted" | "containment" | "removed" | "unfinished" | "planes"
>;

async function branchStatus(repositoryPath: string, statePath: string): Promise<BranchStatus> {
  const planes = Object.fromEntries(PLANE_NAMES.map((plane) => [plane, null])) as BranchStatus["planes"];
  const none = { containment: [], removed: [], unfinished: [] };
  const nothing: BranchStatus = { revision: null, accepted: null, ...none, planes };
  if (!existsSync(repositoryPath)) return nothing;
  const repository = await Repository.open(repositoryPath, BRANCH);
  const revision = await repository.head();
  if (revision === undefined) return nothing;
  const state = openStateFolder(statePath, SOURCES.random);
  const accepted = readHead(state).accepted?.revision;
  const partners = await partnersIn(
    repository,
    [revision, ...(accepted === undefined ? [] : [accepted])],
    state,
  );
  const named = (isWanted: (partner: Partner) => boolean) =>
    partners
      .filter(({ partner }) => isWanted(partner))
      .map(({ name, partner }) => ({ partner: name, serverName: partner.serverName }));
  return {
    revision,
    accepted: accepted ?? null,
    containment: named(({ contained }) => contained),
    removed: named(isRemoved),
    unfinished: [
      ...listRuns(state)
        .filter(({ ended }) => ended === null)
        .map((run) => ({ what: "removal" as const, serverName: counterpartyIn(run), since: run.opened_at })),
      ...(await openReadmissions(repository, revision, partners)),
    ],
    planes: Object.fromEntries(
      PLANE_NAMES.map((plane) => [plane, planeStatus(state, plane)]),
    ) as typeof planes,
  };
}

/** Re-admissions with the partners' present clients that were not completed, and that no removal has ended since. */
async function openReadmissions(
  repository: Repository,
  revision: Revision,
  partners: readonly Pick<PartnerEntry, "partner">[],
) {
  const records = readmissionRecordsIn((await repository.read(revision, [READMISSIONS])).values());
  return partners.flatMap(({ partner }) => {
    const { serverName, azp } = partner;
    const theirs = records.filter((one) => one.server_name === serverName && one.azp === azp);
    const opened = theirs.find(({ act }) => act === "opened");
    const isEnded = theirs.some(({ act }) => act === "completed") || partner.retired.clients.includes(azp);
    if (opened === undefined || isEnded) return [];
    return [{ what: "re-admission" as const, serverName, since: opened.timestamp }];
  });
}

/** The partners of the first revision whose registry is valid: the reconciler accepts no other. */
async function partnersIn(repository: Repository, revisions: readonly Revision[], state: StateFolder) {
  const cache = new PartnerCache(state);
  for (const revision of revisions) {
    try {
      return registryOf(await readRevision(repository, revision, cache), cache).partners;
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
    }
  }
  return [];
}

function planeStatus(state: StateFolder, plane: PlaneName): BranchStatus["planes"][PlaneName] {
  const { applied, driftCheck } = readPlane(state, plane);
  if (applied === null) return null;
  const { revision, digest, outcome, reason, at } = applied;
  return { revision, digest, outcome, reason, at, drift: driftCheck?.differences ?? null };
}

/** An organisation's registry entry for the other one. */
export async function partnerEntry(lab: Lab, organisation: CompleteOrganisation): Promise<Partner> {
  const repository = await Repository.open(lab.paths.organisation(organisation).controlRepository, BRANCH);
  const file = `registry/partners/${partnerOf(organisation)}.yaml`;
  const files = await repository.read(await repository.requireHead(), [file]);
  const found = Partner.safeParse(parse(files.get(file) ?? ""));
  if (found.success) return found.data;
  throw new DrawbridgeError("config_invalid", `${organisation} has no valid ${file}`, {
    hint: "See drawbridge federation check.",
  });
}

/**
 * Waits until every plane of both organisations is as its branch says.
 * @throws DrawbridgeError `program_failed` when one is not in time
 */
export async function waitUntilReconciled(lab: Lab, progress: Progress): Promise<void> {
  progress.doing("the reconcilers apply the registries");
  await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (organisation) => {
      let behind: readonly string[] = [];
      const inForce = await pollFor(async () => {
        behind = planesBehind(await federationStatus(lab, organisation));
        return behind.length === 0 ? true : undefined;
      }, RECONCILED);
      if (inForce) return;
      throw new DrawbridgeError(
        "program_failed",
        `the reconciler of ${organisation} has not brought ${behind.join(", ")} into force`,
        {
          hint: `See drawbridge federation status --config ${lab.paths.organisation(organisation).federationConfig}`,
        },
      );
    }),
  );
}
