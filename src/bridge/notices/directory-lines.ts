// The agents of this deployment as the directory notice lists them.
// Invariant: an agent counts as available only by a decision on record for the pin it has now; nothing is
// fetched to answer `!agents`.
import { type AgentDirectory, isPinned } from "../agents/directory.ts";
import type { TargetLedger } from "../ledger/types.ts";
import type { DirectoryLine } from "./texts.ts";

export async function directoryLines(
  agents: Pick<AgentDirectory, "current">,
  targets: Pick<TargetLedger, "target">,
): Promise<readonly DirectoryLine[]> {
  const { byGhost } = await agents.current();
  return await Promise.all(
    [...byGhost.values()].map(async ({ ghost, agentId, entry, fingerprint }) => {
      const record = await targets.target(ghost);
      const verified = record?.trust === "verified" && record.targetFingerprint === fingerprint;
      return { ghost, name: entry.displayName ?? agentId, available: isPinned(entry) && verified };
    }),
  );
}
