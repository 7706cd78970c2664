// docs/reference/behaviours.md: each behaviour the product promises, with the tests that prove it.
// Made from the names of the tests, which end with the IDs of the behaviours they prove as tags
// (`… [DEL-1] [DEL-3]`). Invariant: a behaviour listed here without a test fails the check.
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { counted } from "../src/domain/printable.ts";
import { ROOT } from "./run-program.ts";

/** What each ID stands for. An ID enters this list when what it promises is built. */
const BEHAVIOURS: Readonly<Record<string, string>> = {
  "INT-1":
    "Only the homeserver's token drives the bridge; no token is 401, a wrong one 403, and nothing is written.",
  "INT-2":
    "Every (event, ghost) pair of a transaction, the fact that its events were handled, and the SHA-256 of its exact body are committed before 200.",
  "INT-3":
    "A repeated transaction writes nothing; the same ID with another body admits what is new. What an event asks is decided once, with the facts of that moment, also after a restart.",
  "INT-4": "What exceeds a room's or the global capacity ends in a terminal `denied` row.",
  "INT-5":
    "Anything but 2xx is answered only to bad credentials, to a malformed body, or when the database cannot commit.",
  "INT-6":
    "Mentions, direct rooms, replies and threads trigger, by text or a file; edits, notices, marked messages and ghosts never; a redaction cancels and clears.",
  "INT-7": "A malformed event is recorded and skipped; the others of its transaction are taken.",
  "INT-8":
    "What the homeserver loses when it stops is caught up once it is there again, in its order, and taken once.",
  "DEL-1":
    "One row a pair, for ever; a room's delegations are dispatched in order, under a lease with a fence.",
  "DEL-2":
    "Mapping, trust, sender and limiter are checked again, in this order, before each call of an agent.",
  "DEL-3": "The answer is recorded before it is sent; content is cleared at the terminal transition.",
  "DEL-4": "An answer is sent under a stored transaction ID, as the ghost's device, once.",
  "DEL-5": "When trust is lost while an agent works, following stops and the room is told.",
  "DEL-6":
    "An agent may ask back: the answer of who asked goes on in the same task. Who asked can cancel. Files go to agents that may get them, and come from agents.",
  "DEL-7":
    "A2A 1.0 by JSON-RPC and HTTP+JSON, streams, 0.3 peers; an accepted task is found again before anything is sent twice.",
  "DEL-8":
    "Tokens by OAuth client credentials, cached until shortly before they expire, refreshed once on 401.",
  "DEL-9": "Several processes share a database; a stale holder's write is refused by the statement itself.",
  "DEL-10":
    "Nobody is stopped by somebody else: capacity is shared out by room, server and agent, and every delegation ends.",
  "OPS-1":
    "An operator lists and explains delegations, intake envelopes and rooms, and cancels or retries them while bridges run.",
  "OPS-2":
    "Every alarm and every query of the dashboard reads metrics that exist, and every alarm has a runbook; traces carry no content.",
  "OPS-3":
    "Several bridges follow a replicated database when its primary is killed: nothing acknowledged is lost, nothing is repeated.",
  "AGT-1": "agents.yaml says who has a ghost, whose card is pinned and who may ask; it is reloaded live.",
  "AGT-2": "A target is verified or quarantined; each change is audited.",
  "AGT-3": "A card is accepted only with an ES256 signature by the pinned key over its canonical form.",
  "AGT-4":
    "A hostile agent (endless, huge, slow, malformed, steering elsewhere) costs only itself: bounded bytes, parts and time.",
  "REG-1":
    "One file a partner says what admits it; unknown keys and anything that looks like a secret are refused.",
  "PLN-1":
    "Transport: whitelist and key servers are rendered, applied by a restart within limits, and proven by a signed request.",
  "PLN-2":
    "Rooms: members leave first, then the ACL (before them where more could come meanwhile), whose enforcement is checked at home and at every retained server, and at home again at each drift check.",
  "PLN-3":
    "Border: a whole, valid policy decides at the next callback; a refused one changes nothing; without any, everything is denied. Each says why.",
  "PLN-4": "Cards: a withdrawn card is 404, and a revoked pin quarantines the target.",
  "PLN-5":
    "Client, quota and route: a token, the exact `azp`, a quota a client, a disabled client, everything else 404.",
  "GIT-1":
    "Every plane is rendered into a repository and applied from it; drift is shown and never kept silently.",
  "CON-1": "A partner is contained and restored by one command each, with one record an act.",
  "EVD-1":
    "An evidence pack holds digests, identifiers and times of the three streams, and states its limits.",
  "ABU-1": "An abuse report refers to events and never quotes them; `contain` leads to containment.",
  "CHK-1": "The registry, its renders and containment are checked without any server.",
  "OFF-1":
    "The private record of a removal lies outside version control, and refuses secrets, content and personal contacts by rules with names.",
  "OFF-2":
    "A stage is stated only when its exit condition was observed to hold, and signed by both organisations, who share nothing but files.",
  "OFF-3":
    "The record of a removal is complete in six parts, signed by both, bound by digest to its evidence, and verified offline, also by others' tools.",
  "OFF-4": "A removal is probed from outside, as the partner and by a neutral third server.",
  "OFF-5":
    "A record is judged again from its evidence by the table of conditions that whoever signs uses: nothing is proved without the probes, subjects, answers and times that show it.",
  "RDM-1":
    "A removed partner comes back as a new one: in order, with fresh identities, each plane observed to be open, the rooms by choice.",
  "PRT-1":
    "One agent's identity is rotated, pinned or withdrawn under guards; planes 1 to 3 stay as they are, the old identity fails, the new one verifies.",
  "NOT-1": "The bridge's notices are content-free, bounded, and never repeated after a crash.",
  "AUD-1": "Audit records are content-free by schema, durable, and written once.",
  "AUD-2":
    "What people and agents say is found in no log, metric or audit record, nor in the bridge's database.",
  "CRA-2":
    "Kills at random instants under load, from a seed that repeats them, are judged from outside the product: nothing is lost or repeated.",
  "CRA-3":
    "A reference model says what the ledger's tables hold after each step of random histories, with crashes between statements; it finds planted mistakes.",
  "ENC-1": "Encrypted rooms are refused, with one notice.",
  "ENC-2":
    "Each ghost has one device with keys, cross-signed, which a new process loads and never makes anew.",
  "ENC-3":
    "An event whose key is missing becomes one row without content, committed before the transaction is acknowledged.",
  "ENC-4":
    "Events without keys are charged to shares of their own, a room's and a sender's, before acknowledgement; beyond them they are denied.",
  "ENC-5":
    "What an encrypted event asks is derived from the event fetched again (kept for a moment where no machine was open), as ordinary delegations; what finds no capacity then is denied.",
  "ENC-6":
    "A missing key is requested within bounds; a key that never comes ends the wait with one audit record, and one notice an episode.",
  "ENC-7":
    "What is said in an encrypted room is encrypted when it is sent, under its stored transaction ID, and stored nowhere so.",
  "ENC-8":
    "Keys that the homeserver's transactions lost are caught up, within bounds, and never room events with them.",
  "ENC-9":
    "An encrypted event is believed when its sender owns the device it came from, the policy trusts that device, and it is no replay.",
  "ENC-10":
    "A key that comes late, within the wait, is used in the order of the room. Sessions that are not used any more are deleted.",
  "CRA-1":
    "The bridge may be killed at any of fifteen boundaries, again and again: what was asked ends once, in the room, at the agent and in the audit.",
  "NEG-1": "The organisation that nobody admits is refused at every door.",
  "ADO-1": "What nobody manages is reported as unmanaged, and never as closed.",
  "LAB-1":
    "One command brings up three organisations on real servers and runs the proof; another ends exactly that.",
};

const FILES_SHOWN = 3;
const PAGE = join(ROOT, "docs", "reference", "behaviours.md");
const TEST = /\b(?:test|it|describe)\(\s*(["'`])((?:\\.|(?!\1).)*)\1/gs;
const TAG = /\s*\[([A-Z]{3}-\d+)\]/g;

/** The files of the tests whose names carry an ID, by it; each as often as it has such tests. */
function testsById(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const file of globSync("tests/**/*.test.ts", { cwd: ROOT }).sort()) {
    for (const match of readFileSync(join(ROOT, file), "utf8").matchAll(TEST)) {
      const name = (match[2] ?? "").replaceAll(/\\(.)/g, "$1");
      for (const [, id = ""] of name.matchAll(TAG)) {
        found.set(id, [...(found.get(id) ?? []), file]);
      }
    }
  }
  return found;
}

/** The three files that prove the most of one behaviour, each with its number of tests, and how many more there are. */
function proofs(tests: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const file of tests) counts.set(file, (counts.get(file) ?? 0) + 1);
  const files = [...counts].sort(([, left], [, right]) => right - left);
  const shown = files.slice(0, FILES_SHOWN).map(([file, count]) => {
    return `[${file.replace("tests/", "").replace(".test.ts", "")}](../../${file}) ${count}`;
  });
  const left = files.length - shown.length;
  return `${shown.join(", ")}${left > 0 ? ` and ${counted(left, "more file")}` : ""}`;
}

function renderPage(tests: ReturnType<typeof testsById>): string {
  return [
    "# Behaviours and their proofs",
    "",
    "One line per behaviour: its ID, what is promised, and the test files that prove the most of it with the number of their tests. The tests",
    "carry the ID as a tag at the end of their names, which finds the others. Generated by `./task check --update`. `unit` needs no server, `integration` runs on a real",
    "PostgreSQL (`./task test`), `lab` on real Synapse, Envoy and the whole lab (`./task test:lab`), `crash` kills the processes",
    "that it tests (`./task test:crash-recovery`), `failover` the primary of a replicated database (`./task test:failover`). What random",
    "kills do is no test file: see [random faults](chaos.md).",
    "",
    "| ID | promise | proof |",
    "|---|---|---|",
    ...Object.entries(BEHAVIOURS).map(
      ([id, promise]) => `| ${id} | ${promise} | ${proofs(tests.get(id) ?? [])} |`,
    ),
    "",
  ].join("\n");
}

/** What is wrong with the page; with `update`, only what an update cannot repair. */
export function compareBehaviours(update: boolean): string[] {
  const tests = testsById();
  const problems = Object.keys(BEHAVIOURS)
    .filter((id) => !tests.has(id))
    .map((id) => `${id} is promised, but no test carries its tag`);
  for (const id of tests.keys()) {
    if (!(id in BEHAVIOURS))
      problems.push(`a test proves ${id}, which tasks/published-behaviours.ts does not list`);
  }
  const page = renderPage(tests);
  if (update) writeFileSync(PAGE, page);
  else if (!globSync(PAGE).length || readFileSync(PAGE, "utf8") !== page) {
    problems.push("docs/reference/behaviours.md is not what the tests say; run ./task check --update");
  }
  return problems;
}
