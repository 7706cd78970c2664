// The seeded proof: each organisation's person asks the other's agent; each passes the other's five planes,
// and org C is stopped on every one of them.
import type { Clock, Random } from "../../src/domain/clock.ts";
import { PLANE_NUMBERS } from "../../src/federation/plane-order.ts";
import { type AskResult, ask } from "../ask/ask.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  partnerOf,
  TRAITS,
} from "../organisations.ts";
import { type RoomForm, roomOf, type Seed } from "../seed/seed.ts";
import { attemptEverything, isRefused, type Refusal } from "./outsider-attempts.ts";
import { lookAsPartners, type Passages, planesNotPassed } from "./partner-access.ts";

export interface Proof {
  /** By the organisation whose person asked; the agent asked is its partner's. */
  readonly asked: Readonly<Record<CompleteOrganisation, AskResult>>;
  /** Asked by a person of org B in the encrypted form of org A's room, with clients that encrypt. */
  readonly encrypted: AskResult;
  /** By the organisation that was looked at, as its partner. */
  readonly passages: Passages;
  readonly refusals: readonly Refusal[];
  /** What does not hold, as sentences; empty when all is as it should be. */
  readonly failures: readonly string[];
}

const ANSWER_TIMEOUT_MS = 60_000;
const ENCRYPTED_FROM = "org-b";

export async function prove(
  lab: Lab,
  seed: Seed,
  sources: { readonly clock: Clock; readonly random: Random },
): Promise<Proof> {
  const askIn = async (from: CompleteOrganisation, form: RoomForm) => {
    const publisher = partnerOf(from);
    const room = roomOf(seed, publisher, form);
    if (room === undefined) throw new TypeError(`${publisher} has no room`);
    return await ask(
      {
        lab,
        seed,
        from,
        ghost: ghostFor(lab, from, publisher),
        bridgeOf: from,
        publisher,
        room,
        question: TRAITS[publisher].sampleQuestion,
        timeoutMs: ANSWER_TIMEOUT_MS,
      },
      sources,
    );
  };
  const asking = COMPLETE_ORGANISATIONS.map(async (from) => [from, await askIn(from, "plain")] as const);
  const [answers, passages, refusals] = await Promise.all([
    Promise.all(asking),
    lookAsPartners(lab, seed, sources),
    attemptEverything(lab, seed, sources),
  ]);
  const asked = Object.fromEntries(answers) as Proof["asked"];
  // After the others: a gateway's log tells one invocation of a caller from another by its time alone.
  const encrypted = await askIn(ENCRYPTED_FROM, "encrypted");
  const found = { asked, encrypted, passages, refusals };
  return { ...found, failures: failuresOf(found) };
}

/** What of a proof does not hold, as sentences. */
export function failuresOf({ asked, encrypted, passages, refusals }: Omit<Proof, "failures">): string[] {
  const failures = COMPLETE_ORGANISATIONS.flatMap((from) => failuresOfAnswer(asked[from], from, from));
  failures.push(...failuresOfAnswer(encrypted, ENCRYPTED_FROM, `${ENCRYPTED_FROM} in the encrypted room`));
  for (const at of COMPLETE_ORGANISATIONS) {
    for (const plane of planesNotPassed(passages[at])) {
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

/** @param whom whose question it was, for people */
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
