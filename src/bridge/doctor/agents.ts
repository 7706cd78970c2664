// Whether each agent of agents.yaml could be asked now: its entry has a pin, and the card that its address serves
// is signed by the pinned key.
// Invariants: an agent counts as ok only when its card was fetched and verified here; each fetch has a time limit;
// nothing of an unverified card is printed.
import { resolve } from "node:path";
import { type Fetched, fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey } from "../../cards/pinned-keys.ts";
import { verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import { type AgentEntry, AgentsFile, mayBePrivate } from "../../rendered-files/agents-file.ts";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { isPinned } from "../agents/sender-policy.ts";
import type { BridgeConfig } from "../config.ts";
import { type Finding, failed, ill, notKnown, well } from "./finding.ts";

const CARD_TIMEOUT_MS = 5_000;
/** A file may name hundreds of agents. */
const CARDS_AT_ONCE = 16;

export async function examineAgents(config: BridgeConfig, clock: Clock): Promise<readonly Finding[]> {
  let entries: readonly (readonly [string, AgentEntry])[];
  try {
    entries = Object.entries(loadYaml(AgentsFile, resolve(config.directory, config.agentsFile)).agents);
  } catch (error) {
    return [failed("agents", error)];
  }
  if (entries.length === 0) {
    return [
      notKnown(
        "agents",
        "none in the file: nobody can be asked",
        "Add an agent to agents.yaml; where it is rendered from a registry, admit a partner or an agent of your own there.",
      ),
    ];
  }
  const problems: Finding[] = [];
  for (let from = 0; from < entries.length; from += CARDS_AT_ONCE) {
    const some = entries.slice(from, from + CARDS_AT_ONCE);
    const found = await Promise.all(some.map(([name, entry]) => examineAgent(name, entry, clock)));
    problems.push(...found.filter((one) => one !== undefined));
  }
  const good = entries.length - problems.length;
  const total = `${good === entries.length ? good : `${good} of ${entries.length}`} in the file`;
  const summary = well(
    "agents",
    `${total}, each with a card that was fetched now and is signed by its pinned key`,
  );
  return good === 0 ? problems : [summary, ...problems];
}

/** What stands in the way of asking an agent; undefined when nothing does. */
async function examineAgent(name: string, entry: AgentEntry, clock: Clock): Promise<Finding | undefined> {
  const label = `agent ${name}`;
  if (!isPinned(entry)) {
    return ill(
      label,
      "not pinned, so never asked",
      "Give it a cardIdentity, allowedServers and allowedSenders, or remove it.",
    );
  }
  const fetched = await fetchCard(entry.cardUrl, {
    clock,
    timeoutMs: CARD_TIMEOUT_MS,
    mayBePrivate: mayBePrivate(entry, entry.cardUrl),
  });
  if (!fetched.fetched && fetched.failure === "address_not_public") {
    return ill(
      label,
      `the host of ${entry.cardUrl} is at a private address`,
      "If it belongs there, list its origin in allowedOrigins; else the agent is not asked.",
    );
  }
  if (!fetched.fetched) {
    return ill(
      label,
      `no card at ${entry.cardUrl}: ${whyNot(fetched)}`,
      "Until it is served again the agent is not asked. Ask its operator whether it runs, whether the address is right, and whether your organisation is admitted there.",
    );
  }
  try {
    const { keyId, jwk } = entry.cardIdentity;
    const verdict = await verifyCard(fetched.bytes, [await importPinnedKey(keyId, jwk)]);
    if (verdict.accepted) return undefined;
    return ill(
      label,
      `the card at ${entry.cardUrl} does not verify against its pin: ${verdict.reason}`,
      "The agent is not asked. Ask its operator, by a way that you trust, which key signs the card now; pin no other.",
    );
  } catch (error) {
    return failed(label, error);
  }
}

function whyNot({ failure, status }: Extract<Fetched, { fetched: false }>): string {
  return status === undefined ? failure : `${failure}, status ${status}`;
}
