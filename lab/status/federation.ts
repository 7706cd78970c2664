// What federation control of one organisation says and has applied, from its repository and its state folder.
// Invariant: looking changes nothing, and waits for nobody.
import { existsSync } from "node:fs";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { readRevision, registryOf } from "../../src/federation/reconcile/desired.ts";
import { RegistryError } from "../../src/federation/registry/problems.ts";
import { Repository, type Revision } from "../../src/federation/repository/repository.ts";
import { StateFolder } from "../../src/federation/state/folder.ts";
import { PartnerCache } from "../../src/federation/state/partner-cache.ts";
import { readHead, readPlane } from "../../src/federation/state/records.ts";
import { BRANCH } from "../configuration/control-repository.ts";
import { vantagesOf } from "../configuration/federation.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import type { FederationStatus } from "./schema.ts";

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

type BranchStatus = Pick<FederationStatus, "revision" | "accepted" | "containment" | "planes">;

async function branchStatus(repositoryPath: string, statePath: string): Promise<BranchStatus> {
  const planes = Object.fromEntries(PLANE_NAMES.map((plane) => [plane, null])) as BranchStatus["planes"];
  const nothing: BranchStatus = { revision: null, accepted: null, containment: [], planes };
  if (!existsSync(repositoryPath)) return nothing;
  const repository = await Repository.open(repositoryPath, BRANCH);
  const revision = await repository.head();
  if (revision === undefined) return nothing;
  const state = StateFolder.open(statePath, systemRandom);
  const accepted = readHead(state).accepted?.revision;
  return {
    revision,
    accepted: accepted ?? null,
    containment: await contained(
      repository,
      [revision, ...(accepted === undefined ? [] : [accepted])],
      state,
    ),
    planes: Object.fromEntries(
      PLANE_NAMES.map((plane) => [plane, planeStatus(state, plane)]),
    ) as typeof planes,
  };
}

/** By the first revision whose registry is valid: what is not is never taken up. */
async function contained(
  repository: Repository,
  revisions: readonly Revision[],
  state: StateFolder,
): Promise<BranchStatus["containment"]> {
  const cache = new PartnerCache(state);
  for (const revision of revisions) {
    try {
      const { partners } = registryOf(await readRevision(repository, revision, cache), cache);
      return partners
        .filter(({ partner }) => partner.contained)
        .map(({ name, partner }) => ({ partner: name, serverName: partner.serverName }));
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
    }
  }
  return [];
}

function planeStatus(state: StateFolder, plane: PlaneName): BranchStatus["planes"][PlaneName] {
  const { applied, looked } = readPlane(state, plane);
  if (applied === null) return null;
  const { revision, digest, outcome, reason, at } = applied;
  return { revision, digest, outcome, reason, at, drift: looked?.drift ?? null };
}

// Whether the registries are in force: what the reconcilers have recorded, compared with the branches.

const TIMEOUT_MS = 60_000;
const POLL_MS = 100;

/**
 * Waits until every plane of both organisations is as its branch says.
 * @throws DrawbridgeError `program_failed` when one is not in time
 */
export async function waitUntilReconciled(lab: Lab, clock: Clock, progress: Progress): Promise<void> {
  progress.doing("the reconcilers apply the registries");
  await Promise.all(COMPLETE_ORGANISATIONS.map((organisation) => waitFor(lab, organisation, clock)));
}

async function waitFor(lab: Lab, organisation: CompleteOrganisation, clock: Clock): Promise<void> {
  const deadline = clock.now() + TIMEOUT_MS;
  for (;;) {
    const status = await federationStatus(lab, organisation);
    const behind = planesBehind(status);
    if (behind.length === 0) return;
    if (clock.now() > deadline) {
      throw new DrawbridgeError(
        "program_failed",
        `the reconciler of ${organisation} has not brought ${behind.join(", ")} into force`,
        { hint: `See drawbridge federation status --config ${status.configFile}` },
      );
    }
    await clock.sleep(POLL_MS);
  }
}

/** Who is contained where, among the complete organisations. */
export async function containments(lab: Lab): Promise<{ at: CompleteOrganisation; partner: string }[]> {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (at) =>
      (await federationStatus(lab, at)).containment.map(({ partner }) => ({ at, partner })),
    ),
  );
  return found.flat();
}
