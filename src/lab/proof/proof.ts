// The seeded proof: each organisation's person asks the other's agent; each passes the other's five planes,
// and org C is stopped on every one of them.
import type { Clock, Random } from "../../domain/clock.ts";
import { PLANE_NUMBERS } from "../../federation/planes/names.ts";
import { ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  partnerOf,
  TRAITS,
} from "../organisations.ts";
import { roomOf, type Seed } from "../seed/seed.ts";
import { type AskResult, ask } from "./ask.ts";
import { lookAsPartners, type Passages, planesNotPassed } from "./passages.ts";
import { attemptEverything, isRefused, type Refusal } from "./refusals.ts";

export interface Proof {
  /** By the organisation whose person asked; the agent asked is its partner's. */
  readonly asked: Readonly<Record<CompleteOrganisation, AskResult>>;
  /** By the organisation that was looked at, as its partner. */
  readonly passages: Passages;
  readonly refusals: readonly Refusal[];
  /** What does not hold, as sentences; empty when all is as it should be. */
  readonly failures: readonly string[];
}

const ANSWER_TIMEOUT_MS = 60_000;

export async function prove(
  lab: Lab,
  seed: Seed,
  sources: { readonly clock: Clock; readonly random: Random },
): Promise<Proof> {
  const asking = COMPLETE_ORGANISATIONS.map(async (from) => {
    const publisher = partnerOf(from);
    const room = roomOf(seed, publisher);
    if (room === undefined) throw new TypeError(`${publisher} has no room`);
    const result = await ask(
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
    return [from, result] as const;
  });
  const [answers, passages, refusals] = await Promise.all([
    Promise.all(asking),
    lookAsPartners(lab, seed, sources),
    attemptEverything(lab, seed, sources),
  ]);
  const asked = Object.fromEntries(answers) as Proof["asked"];
  const found = { asked, passages, refusals };
  return { ...found, failures: failuresOf(found) };
}

/** What of a proof does not hold, as sentences. */
export function failuresOf({ asked, passages, refusals }: Omit<Proof, "failures">): string[] {
  const failures: string[] = [];
  for (const from of COMPLETE_ORGANISATIONS) {
    const { audit, views, gateway } = asked[from];
    const publisher = partnerOf(from);
    if (audit.outcome !== "completed") {
      failures.push(`the question of ${from} ended ${audit.outcome}: ${audit.terminal_reason}`);
      continue;
    }
    for (const viewer of COMPLETE_ORGANISATIONS) {
      if (views[viewer].text === null) failures.push(`the answer to ${from} is not in ${viewer}'s room view`);
    }
    if (views["org-a"].text !== views["org-b"].text) {
      failures.push(`the two room views of the answer to ${from} differ`);
    }
    if (gateway?.azp == null || !clientIds.isBridgeOf(from, gateway.azp)) {
      failures.push(`the gateway of ${publisher} did not see the azp ${clientIds.bridgeOf(from)}`);
    }
  }
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
