// fed:up: brings the lab to running, whatever state it is in, and proves that it works.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Lab } from "../lab.ts";
import { labDirectory, labPaths } from "../layout.ts";
import { COMPLETE_ORGANISATIONS, partnerOf } from "../organisations.ts";
import { type Progress, paletteFor } from "../progress.ts";
import { prove } from "../proof/proof.ts";
import { renderProof } from "../proof/render.ts";
import { acceptInvitations } from "../seed/memberships.ts";
import { seedRooms } from "../seed/rooms.ts";
import { readSeed } from "../seed/seed-file.ts";
import { closedPartners } from "../status/closed-partners.ts";
import { waitUntilReconciled } from "../status/federation.ts";
import { castOf, ensureRunning, type Found } from "./lifecycle.ts";
import { FLAG, labName, parseOptions, withLockedLab } from "./options.ts";

const USAGE = `
Usage: ./task fed:up [--name LAB] [--with-witness] [--json]

Three organisations on real servers on this machine: starts them, or finds them running, or restarts programs that
have died; then has each of two ask the other's agent, and the third try to get in.

  --name LAB      a lab of its own beside others; "default" when absent
  --with-witness  with a fourth homeserver, org-d, which A and B both know: it shows what a third server
                  relays. A lab that runs gains it, and keeps it
  --json          print the proof as JSON
`;

const HEADLINES: Readonly<Record<Found, string>> = {
  started: "is running",
  running: "was running already",
  repaired: "had lost its supervisor; it is repaired and running",
};

export async function up(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { json: FLAG, "with-witness": FLAG });
  if (options === undefined) return 0;
  const name = labName(options);
  const paths = labPaths(labDirectory(name));
  return withLockedLab({ paths }, async (progress) => {
    const { lab, found } = await ensureRunning(name, paths, progress, options.flag("with-witness"));
    await waitUntilReconciled(lab, progress);
    if (found !== "running") progress.done("both registries are in force on all planes");
    const closed = await closedPartners(lab);
    const runs = `The lab ${name} runs${found === "running" ? " already" : ""}`;
    if (closed !== undefined) {
      progress.note(`${runs}; it is not proved while ${closed.facts.join(", ")}. To admit it again:`);
      for (const command of closed.commands) progress.note(`  ${command}`);
      return 1;
    }
    if (found === "running") progress.note(`${runs}; proving it once more.`);
    await acceptAll(lab, progress);
    const seeded = await seedRooms(lab, progress);
    progress.doing("asking, and being refused");
    const proof = await prove(lab, seeded);
    progress.done("the proof");
    const opening = {
      headline: `The lab "${name}" ${HEADLINES[found]}: ${castOf(lab)} on real servers.`,
      tookMs: progress.elapsedMs(),
    };
    process.stdout.write(
      options.flag("json")
        ? `${JSON.stringify({ found, tookMs: opening.tookMs, ...proof }, null, 2)}\n`
        : renderProof(lab, proof, opening, paletteFor(process.stdout)),
    );
    return proof.failures.length === 0 ? 0 : 1;
  });
}

/** Accepts the invitations that a restore leaves open, to shared rooms and to rooms that have replaced others. */
async function acceptAll(lab: Lab, progress: Progress): Promise<void> {
  const before = readSeed(lab);
  if (before === undefined) return;
  for (const from of COMPLETE_ORGANISATIONS) {
    progress.doing(`people accept invitations of ${from}`);
    try {
      const accepted = await acceptInvitations(lab, before, partnerOf(from), from);
      for (const user of new Set(accepted.map((one) => one.user))) {
        const rooms = accepted.filter((one) => one.user === user).map(({ room }) => room);
        progress.done(`${user} has accepted, and is back in ${rooms.join(", ")}`);
      }
    } catch (error) {
      // The shared rooms are seeded and proved next; an invitation to another room is only reported.
      if (!(error instanceof DrawbridgeError)) throw error;
      progress.note(error.message);
    }
  }
}
