// Performs one operation of an order on a running lab, by the commands that operators type.
// Invariant: people accept their invitations where nobody contains anybody any more, because a border that is closed
// lets none in.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { PRIVATE, PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import { agentName, serviceEndpoints } from "../endpoints.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import { type CommandResult, commandFailed, Operator } from "../observe/operator.ts";
import { offboard } from "../offboard/offboard.ts";
import { AGENT, COMPLETE_ORGANISATIONS, type CompleteOrganisation, unitName } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { readmit } from "../readmit/readmit.ts";
import { acceptInvitations } from "../seed/memberships.ts";
import { seedRooms } from "../seed/rooms.ts";
import { readSeed, type Seed } from "../seed/seed-file.ts";
import { partnerEntry, waitUntilReconciled } from "../status/federation.ts";
import { supervisorClient } from "../supervisor/client.ts";
import { isOpen, type Operation, type Partnership } from "./operations.ts";

/** Something is left to do, such as a condition that the other side has to meet first. */
const INCOMPLETE = 5;
const SHOWN = { timeoutMs: 60_000, everyMs: 1_000 };

/**
 * @param promised how the two stand to one another afterwards
 * @throws DrawbridgeError `program_failed` when a command ends otherwise than the operation promises
 */
export async function perform(
  lab: Lab,
  operation: Operation,
  promised: Partnership,
  progress: Progress,
): Promise<void> {
  const { by } = operation;
  const scope = { lab, seed: seedOf(lab), org: by };
  switch (operation.act) {
    case "contain":
    case "restore":
      await changeContainment(lab, operation.act, by, promised, progress);
      return;
    case "rotate":
      await rotate(lab, by);
      return;
    case "remove": {
      const { kind, rooms } = operation;
      const removed = await offboard({ ...scope, kind, rooms }, progress);
      if (!removed.holds) throw failed("the removal does not hold", removed);
      return;
    }
    case "readmit": {
      const readmitted = await readmit({ ...scope, choice: operation.rooms }, progress);
      if (!readmitted.holds) throw failed("the re-admission does not hold", readmitted);
    }
  }
}

/** What the lab's people and rooms are now. */
export function seedOf(lab: Lab): Seed {
  const seed = readSeed(lab);
  if (seed === undefined) throw new TypeError("the lab has no people yet");
  return seed;
}

function failed(what: string, found: unknown): DrawbridgeError {
  return new DrawbridgeError("program_failed", `${what}: ${JSON.stringify(found)}`);
}

async function changeContainment(
  lab: Lab,
  act: "contain" | "restore",
  by: CompleteOrganisation,
  promised: Partnership,
  progress: Progress,
): Promise<void> {
  const operator = new Operator(lab, by);
  const words = ["federation", act, operator.counterparty, "--apply"];
  const result = await operator.run(words);
  // While the other side contains us, it takes no invitation in; the reconciler invites again later.
  const isHeldUp = act === "restore" && !isOpen(promised);
  // Rooms that the partner has made stay open where the registry has them listed, not replaced.
  const isListed = act === "contain" && (await partnerEntry(lab, by)).rooms.whenUnclosable === "list";
  if (result.code !== 0 && !(result.code === INCOMPLETE && (isHeldUp || isListed)))
    throw commandFailed(by, words, result);
  progress.done(`${by}: federation ${act} ${operator.counterparty}`);
  if (!isOpen(promised)) return;
  for (const name of COMPLETE_ORGANISATIONS) {
    await new Operator(lab, name).mustRun("reconcile", "--once");
  }
  await waitUntilReconciled(lab, progress);
  for (const from of COMPLETE_ORGANISATIONS) {
    await acceptInvitations(lab, seedOf(lab), new Operator(lab, from).counterparty, from);
  }
  await seedRooms(lab, progress);
  progress.done("people and ghosts are back in shared rooms");
}

/** The agent of `by` gets a new card key, and the partner pins it. */
async function rotate(lab: Lab, by: CompleteOrganisation): Promise<void> {
  const publisher = new Operator(lab, by);
  const consumer = new Operator(lab, publisher.counterparty);
  const { agent, agentConfig, agentKey } = lab.paths.organisation(by);
  const handedOver = join(lab.paths.organisation(consumer.organisation).federation, "handed-over");
  mkdirSync(handedOver, { recursive: true, mode: 0o700 });
  const keyId = `${by}-card-at-${SOURCES.clock.now()}`;
  const before = await served(lab, by);
  const [cardFile, oldCard] = [join(agent, "card.json"), join(handedOver, "old-card.json")];
  for (const file of [cardFile, oldCard]) writeWhole(file, before.text, PUBLIC);

  const words = ["agent", "rotate", AGENT, "--key", agentKey, "--card", cardFile, "--key-id", keyId];
  const first = await publisher.run(words);
  if (first.code !== 0 && first.code !== INCOMPLETE) throw commandFailed(by, words, first);
  const edit = { path: ["signing", "keyId"], value: keyId };
  writeWhole(agentConfig, editYaml(readFileSync(agentConfig, "utf8"), [edit]), PUBLIC);
  await supervisorClient(lab).execute({ action: "restart", unit: unitName(by, "agent") });
  await untilShown(publisher, words);

  const { d: _private, ...jwk } = JSON.parse(readFileSync(agentKey, "utf8"));
  const publicKey = join(handedOver, "public-key.json");
  writeWhole(publicKey, JSON.stringify({ ...jwk, kid: keyId }), PRIVATE);
  const remote = agentName(consumer.organisation, by);
  await untilShown(consumer, [
    ...["agent", "pin", by, remote, "--jwk", publicKey],
    ...["--replaces", before.keyId, "--old-card", oldCard],
  ]);
}

/** Repeats a command until what it waits for is shown. */
async function untilShown(operator: Operator, words: readonly string[]): Promise<void> {
  let last: CommandResult | undefined;
  const isShown = await pollFor(async () => {
    last = await operator.run(words);
    if (last.code !== 0 && last.code !== INCOMPLETE) throw commandFailed(operator.organisation, words, last);
    return last.code === 0 ? true : undefined;
  }, SHOWN);
  if (!isShown && last !== undefined) throw commandFailed(operator.organisation, words, last);
}

/** The card that an organisation's agent serves, and the ID of the key that has signed it. */
async function served(
  lab: Lab,
  organisation: CompleteOrganisation,
): Promise<{ readonly text: string; readonly keyId: string }> {
  const text = await (await fetch(serviceEndpoints(lab, organisation).cardUrl)).text();
  const [signature] = (JSON.parse(text) as { signatures: { protected: string }[] }).signatures;
  const header = JSON.parse(Buffer.from(signature?.protected ?? "", "base64url").toString("utf8"));
  return { text, keyId: String(header.kid) };
}
