// Whether the registries are in force: what the reconcilers have recorded, compared with the branches.
import type { Clock } from "../src/domain/clock.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import type { Lab } from "./lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "./organisations.ts";
import type { Progress } from "./progress.ts";
import { federationStatus, planesBehind } from "./status/federation.ts";

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
