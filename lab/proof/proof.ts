// The proof at the end of fed:up: each organisation's person asks the other's agent, each passes the other's five
// planes, and org C is refused on every one of them.
import { PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import { type AskResult, ask } from "../ask/ask.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds, partnerOf } from "../organisations.ts";
import { type RoomForm, requireRoom, type Seed } from "../seed/seed-file.ts";
import { attemptEverything, isRefused, type Refusal } from "./outsider-attempts.ts";
import { type PartnerAccess, planesNotOpen, probeAsPartners } from "./partner-access.ts";

export interface Proof {
  /** By the organisation whose person asked; the agent asked is its partner's. */
  readonly asked: Readonly<Record<CompleteOrganisation, AskResult>>;
  /** Asked by a person of org B in the encrypted form of org A's room, with clients that encrypt. */
  readonly encrypted: AskResult;
  /** By the organisation that was probed as its partner. */
  readonly passages: PartnerAccess;
  readonly refusals: readonly Refusal[];
  /** What does not hold, as sentences; empty when everything holds. */
  readonly failures: readonly string[];
}

const ENCRYPTED_FROM = "org-b";

export async function prove(lab: Lab, seed: Seed): Promise<Proof> {
  const askIn = (from: CompleteOrganisation, form: RoomForm) => {
    const publisher = partnerOf(from);
    return ask({ lab, seed, from, publisher, room: requireRoom(seed, publisher, form) });
  };
  const asking = COMPLETE_ORGANISATIONS.map(async (from) => [from, await askIn(from, "plain")] as const);
  const [answers, passages, refusals] = await Promise.all([
    Promise.all(asking),
    probeAsPartners(lab, seed),
    attemptEverything(lab, seed),
  ]);
  const asked = Object.fromEntries(answers) as Proof["asked"];
  // After the others: a gateway's log tells one invocation of a caller from another by its time alone.
  const encrypted = await askIn(ENCRYPTED_FROM, "encrypted");
  const found = { asked, encrypted, passages, refusals };
  return { ...found, failures: failuresOf(found) };
}

/** The parts of a proof that do not hold, as sentences. */
export function failuresOf({ asked, encrypted, passages, refusals }: Omit<Proof, "failures">): string[] {
  const failures = COMPLETE_ORGANISATIONS.flatMap((from) => failuresOfAnswer(asked[from], from, from));
  failures.push(...failuresOfAnswer(encrypted, ENCRYPTED_FROM, `${ENCRYPTED_FROM} in the encrypted room`));
  for (const at of COMPLETE_ORGANISATIONS) {
    for (const plane of planesNotOpen(passages[at])) {
      failures.push(`${partnerOf(at)} does not pass plane ${PLANE_NUMBERS[plane]}, ${plane}, at ${at}`);
    }
  }
  for (const refusal of refusals) {
    if (isRefused(refusal)) continue;
    const { at, attempt, expected, received, layer } = refusal;
    const by = (name: string | undefined) => (layer === undefined ? "" : ` by ${name ?? "nobody known"}`);
    failures.push(
      `org-c at ${at}, ${attempt}: expected ${expected}${by(layer?.expected)}, received ${received}${by(layer?.answered)}`,
    );
  }
  return failures;
}

/** @param whom the asker, for people */
function failuresOfAnswer(result: AskResult, from: CompleteOrganisation, whom: string): string[] {
  const { audit, views, gateway, room } = result;
  if (audit.outcome !== "completed") {
    return [`the question of ${whom} ended ${audit.outcome}: ${audit.terminal_reason}`];
  }
  const failures: string[] = [];
  for (const viewer of COMPLETE_ORGANISATIONS) {
    const { text, encrypted } = views[viewer];
    if (text === null) failures.push(`the answer to ${whom} is not in ${viewer}'s room view`);
    else if (encrypted !== room.encrypted) {
      failures.push(`the answer to ${whom} came ${encrypted ? "" : "un"}encrypted to ${viewer}`);
    }
  }
  if (views["org-a"].text !== views["org-b"].text) {
    failures.push(`the two room views of the answer to ${whom} differ`);
  }
  if (gateway?.azp == null || !clientIds.isBridgeOf(from, gateway.azp)) {
    const bridge = clientIds.bridgeOf(from);
    failures.push(`the gateway of ${partnerOf(from)} did not see the azp ${bridge} for ${whom}`);
  }
  return failures;
}
