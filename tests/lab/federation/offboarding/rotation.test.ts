// One agent's key changes hands on a running lab, typed by both operators, while people ask: the publisher
// rotates, the consumer pins. Then whoever has the old key is tried, every guard, and the agent's withdrawal.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { parseDocument } from "yaml";
import { changeRegistry } from "../../../../lab/configuration/control-repository.ts";
import { agentName, serviceEndpoints } from "../../../../lab/endpoints.ts";
import { AGENT, COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../../../../lab/organisations.ts";
import { roomOf } from "../../../../lab/seed/seed-file.ts";
import { generateCardKey } from "../../../../src/cards/sign.ts";
import { importPinnedKey, verifyCard } from "../../../../src/cards/verify.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { GUARDS, type Guard } from "../../../../src/federation/agents/identity-rules.ts";
import { operatorGit } from "../../../support/control-repository.ts";
import { type Question, Questions } from "../../../support/lab-questions.ts";
import { eventually, LabSession } from "../../../support/lab-session.ts";
import { ROOT, run } from "../../../support/temporary.ts";

const lab = await LabSession.start();
after(() => lab.end());
for (const name of COMPLETE_ORGANISATIONS) await lab.unit("start", `${name}/reconciler`);
const questions = new Questions(lab);
await questions.plant();

const [A, B] = ["org-a", "org-b"] as const;
/** The name under which org A's bridge knows org B's agent. */
const REMOTE = agentName(A, B);
const paths = lab.lab.paths.organisation;
const keyFile = paths(B).agentKey;
const cardFile = join(paths(B).agent, "card.json");
const oldKey = readFileSync(keyFile, "utf8");
const oldCard = join(paths(A).federation, "card-of-the-first-key.json");

interface Result {
  readonly complete: boolean;
  readonly conditions: readonly { condition: string; verdict: string; found: string }[];
  readonly untouched: readonly { plane: string; before: string; after: string }[];
}

/** As the operator of an organisation types it. */
async function drawbridge(organisation: CompleteOrganisation, ...words: readonly string[]) {
  const { federation, federationConfig } = paths(organisation);
  const args = [join(ROOT, "src/cli/main.ts"), "agent", ...words, "--config", federationConfig, "--json"];
  return run(process.execPath, args, { cwd: federation });
}

async function ends(code: number, organisation: CompleteOrganisation, ...words: readonly string[]) {
  const ended = await drawbridge(organisation, ...words);
  assert.equal(ended.code, code, `${words.join(" ")}\n${ended.stdout}${ended.stderr}`);
  return JSON.parse(ended.stdout) as Result;
}

/** What is not met, with what was found. */
function open({ conditions }: Result): Record<string, string> {
  const left = conditions.filter(({ verdict }) => verdict !== "met");
  return Object.fromEntries(left.map(({ condition, verdict, found }) => [condition, `${verdict} ${found}`]));
}

const rotate = (keyId: string, ...more: readonly string[]) =>
  ["rotate", AGENT, "--key", keyFile, "--card", cardFile, "--key-id", keyId, ...more] as const;
const pin = (jwk: string, ...more: readonly string[]) => ["pin", B, REMOTE, "--jwk", jwk, ...more] as const;

/** What the publisher hands over: the public keys of its agent, by another way than the card. */
function handOver(): string {
  const text = operatorGit(paths(B).controlRepository, "show", "main:rendered/card/card-keys.json");
  const file = join(paths(A).federation, "public-keys-of-org-b.json");
  writeFileSync(file, JSON.stringify(JSON.parse(text).agents[AGENT]));
  return file;
}

/** The agent signs with this key ID from now on. */
async function signWith(keyId: string): Promise<void> {
  const { agentConfig } = paths(B);
  const document = parseDocument(readFileSync(agentConfig, "utf8"));
  document.setIn(["signing", "keyId"], keyId);
  writeFileSync(agentConfig, document.toString({ lineWidth: 0 }));
  await lab.unit("restart", `${B}/agent`);
}

async function served(): Promise<Uint8Array> {
  return new Uint8Array(await (await fetch(serviceEndpoints(lab.lab, B).cardUrl)).arrayBuffer());
}

async function verdictOf(key: string, keyId: string): Promise<string> {
  const verdict = await verifyCard(await served(), [await importPinnedKey(keyId, JSON.parse(key))]);
  return verdict.accepted ? "accepted" : verdict.reason;
}

/** Org A's bridge decides about org B's agent anew, and says so. */
async function decidedAnew(reason: string): Promise<void> {
  const decisions = () =>
    readFileSync(paths(A).auditFile, "utf8")
      .split("\n")
      .filter((line) => line.includes("svc.agent_card.v1"))
      .map((line) => JSON.parse(line) as { reason: string; target: { agent: string } })
      .filter(({ target }) => target.agent === REMOTE);
  await lab.unit("restart", `${A}/bridge`);
  await eventually(`the bridge says ${reason}`, async () => decisions().at(-1)?.reason === reason);
}

/** Everything of planes 1 to 3 that is rendered, and that the real parts have. */
async function planesOneToThree(): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of COMPLETE_ORGANISATIONS) {
    const { controlRepository, transportFile, policyFile } = paths(name);
    for (const plane of ["transport", "rooms", "border"]) {
      const tree = operatorGit(controlRepository, "ls-tree", "-r", "main", `rendered/${plane}/`);
      found[`${name} rendered/${plane}`] = sha256Tagged(tree);
    }
    found[`${name} whitelist`] = sha256Tagged(readFileSync(transportFile));
    found[`${name} policy`] = sha256Tagged(readFileSync(policyFile));
    const room = encodeURIComponent(roomOf(lab.seed, name)?.roomId ?? "");
    const acl = await questions.personOf(name).call("GET", `/rooms/${room}/state/m.room.server_acl/`);
    found[`${name} acl`] = sha256Tagged(JSON.stringify(acl));
    found[`${name} homeserver`] = String((await lab.processOf(`${name}/homeserver`)).pid);
  }
  return found;
}

/** People who go on asking, one question after the other in several rooms, until they are told to stop. */
class Asking {
  readonly asked: Question[] = [];
  readonly #stopped = new AbortController();
  readonly #done: Promise<void>;

  constructor(rooms: readonly RoomId[], from: CompleteOrganisation, publisher: CompleteOrganisation) {
    this.#done = (async () => {
      for (let n = 0; !this.#stopped.signal.aborted; n++) {
        const room = rooms[n % rooms.length];
        if (room !== undefined) this.asked.push(...(await questions.ask([room], from, { publisher })));
        await systemClock.sleep(300);
      }
    })();
  }

  async more(count: number): Promise<void> {
    const from = this.asked.length;
    await eventually("more questions", async () => this.asked.length >= from + count);
  }

  /** What became of them, once each has ended. Whoever was not answered reads why in the room. */
  async stop(): Promise<Record<string, number>> {
    this.#stopped.abort();
    await this.#done;
    const rows = await questions.ended(this.asked);
    const counts: Record<string, number> = {};
    const refused: Question[] = [];
    const answered: Question[] = [];
    for (const [index, { state, terminal_reason: reason }] of rows.entries()) {
      const question = this.asked[index] ?? assert.fail();
      (state === "completed" ? answered : refused).push(question);
      counts[`${state} ${reason}`] = (counts[`${state} ${reason}`] ?? 0) + 1;
    }
    await questions.answeredOnce(answered);
    for (const question of refused) {
      // Once a room within ten minutes.
      const notices = await eventually("a notice", async () => {
        const said = await questions.noticesIn(question);
        return said.length > 0 && said;
      });
      assert.ok(
        notices.some((text) => /identity of this agent is not verified at the moment/.test(text)),
        notices.join("\n"),
      );
      assert.deepEqual(await questions.repliesTo(question), []);
    }
    return counts;
  }
}

describe("rotation of an agent's key", () => {
  it("a rotation and the consumer's pin lose no question meanwhile [PRT-1]", async (t) => {
    const before = await planesOneToThree();
    writeFileSync(cardFile, await served());
    writeFileSync(oldCard, await served());
    const rotated = new Asking(await questions.rooms(3, A, B), A, B);
    const other = new Asking(await questions.rooms(2, B, A), B, A);
    await rotated.more(3);

    const first = await ends(5, B, ...rotate("org-b-card-2"));
    assert.deepEqual(open(first), {
      new_identity_verifies: "not_met new_identity on docs-qa: closed (card key_not_pinned)",
      old_key_not_served: "not_met served_by_old_pin on docs-qa: open (card card_verified)",
    });
    await signWith("org-b-card-2");
    const second = await ends(0, B, ...rotate("org-b-card-2"));
    for (const { untouched } of [first, second]) {
      assert.deepEqual(
        untouched.map(({ plane }) => plane),
        ["transport", "rooms", "border"],
      );
      assert.ok(untouched.every((one) => one.before === one.after));
    }
    assert.equal(await verdictOf(readFileSync(keyFile, "utf8"), "org-b-card-2"), "accepted");
    assert.equal(await verdictOf(oldKey, "org-b-card-1"), "key_not_pinned");

    await rotated.more(2);
    await decidedAnew("agent_card_untrusted");
    await rotated.more(4);
    const jwk = handOver();
    const unobserved = await ends(5, A, ...pin(jwk, "--replaces", "org-b-card-1"));
    assert.deepEqual(open(unobserved), {
      old_identity_fails: `unknown old_identity on ${REMOTE}: unknown (none no_card_of_the_old_key)`,
    });
    const pinned = await ends(0, A, ...pin(jwk, "--replaces", "org-b-card-1", "--old-card", oldCard));
    assert.deepEqual(open(pinned), {});
    await rotated.more(4);
    const became = { rotated: await rotated.stop(), other: await other.stop() };
    t.diagnostic(
      `org B's agent: ${JSON.stringify(became.rotated)}; org A's: ${JSON.stringify(became.other)}`,
    );
    assert.ok((became.rotated["completed answered"] ?? 0) >= 6);
    assert.ok((became.rotated["denied agent_card_untrusted"] ?? 0) >= 2);
    assert.deepEqual(Object.keys(became.other), ["completed answered"], "the other agent is not interrupted");
    assert.deepEqual(await planesOneToThree(), before);
  });

  it("a card by the old key is refused under its own key ID and under the new one [PRT-1]", async () => {
    const key = readFileSync(keyFile, "utf8");
    for (const [keyId, reason] of [
      ["org-b-card-1", "key_not_pinned"],
      ["org-b-card-2", "signature_invalid"],
    ] as const) {
      writeFileSync(keyFile, oldKey, { mode: 0o600 });
      await signWith(keyId);
      assert.equal(await verdictOf(key, "org-b-card-2"), reason);
      await decidedAnew("agent_card_untrusted");
      const [room] = await questions.rooms(1, A, B);
      const asked = await questions.ask(room === undefined ? [] : [room], A);
      await questions.refusedWithNotice(asked, /identity of this agent is not verified at the moment/);
      writeFileSync(keyFile, key, { mode: 0o600 });
      await signWith("org-b-card-2");
      await decidedAnew("agent_card_verified");
      const again = await questions.ask(room === undefined ? [] : [room], A);
      await questions.answeredOnce(again);
    }
  });

  it("a second rotation is proved by the card that the first pin has kept [PRT-1]", async () => {
    await ends(5, B, ...rotate("org-b-card-3"));
    await signWith("org-b-card-3");
    await ends(0, B, ...rotate("org-b-card-3"));
    const pinned = await ends(0, A, ...pin(handOver(), "--replaces", "org-b-card-2"));
    assert.ok(
      pinned.conditions.some(
        ({ condition, found }) => condition === "old_identity_fails" && found.includes("key_not_pinned"),
      ),
    );
  });

  it("every guard of a rotation refuses by its name, and changes nothing [PRT-1]", async () => {
    const repositories = COMPLETE_ORGANISATIONS.map((name) => paths(name).controlRepository);
    await changeRegistry(lab.lab, B, "Offer an agent that has no key yet", (registry) => {
      const file = "registry/organisation.yaml";
      const document = parseDocument(registry.get(file) ?? "");
      document.setIn(["agents", "keyless"], {
        ...{ upstream: "http://127.0.0.1:9", cardPath: "/agents/keyless/card.json" },
        ...{ invokePath: "/api/a2a/keyless", publish: "never" },
      });
      return new Map([...registry, [file, document.toString({ lineWidth: 0 })]]);
    });
    const heads = () => repositories.map((path) => operatorGit(path, "rev-parse", "main"));
    const before = heads();
    const key = readFileSync(keyFile, "utf8");
    const refused = async (guard: Guard, organisation: CompleteOrganisation, ...words: readonly string[]) => {
      const ended = await drawbridge(organisation, ...words);
      assert.equal(ended.code, 4, `${guard}: ${ended.stdout}${ended.stderr}`);
      assert.ok(
        ended.stderr.includes(`; nothing was changed [${guard}]\nhint: ${GUARDS[guard]}`),
        ended.stderr,
      );
      assert.deepEqual(heads(), before);
    };
    const elsewhere = join(paths(B).directory, "elsewhere");
    mkdirSync(elsewhere);
    const file = (name: string, text: string) => {
      writeFileSync(join(elsewhere, name), text, { mode: 0o600 });
      return join(elsewhere, name);
    };
    const fresh = (await generateCardKey("org-b-card-4")).privateJwk;

    renameSync(keyFile, `${keyFile}.away`);
    await refused("missing_key", B, ...rotate("org-b-card-4"));
    writeFileSync(keyFile, fresh, { mode: 0o600 });
    await refused("other_key", B, ...rotate("org-b-card-4"));
    renameSync(`${keyFile}.away`, keyFile);
    writeFileSync(`${keyFile}.next`, fresh, { mode: 0o600 });
    await refused("staged_key", B, ...rotate("org-b-card-4"));
    rmSync(`${keyFile}.next`);
    await refused("pinned_jwk", B, ...rotate("org-b-card-4", "--new-key", file("same.jwk", key)));
    await refused("retired_key", B, ...rotate("org-b-card-4", "--new-key", file("old.jwk", oldKey)));
    await refused("retired_key", B, ...rotate("org-b-card-1"));
    mkdirSync(join(elsewhere, ".git"));
    const tracked = file("tracked.jwk", fresh);
    await refused("in_version_control", B, ...rotate("org-b-card-4", "--new-key", tracked));
    await refused("nothing_to_rotate", B, "rotate", "keyless", ...rotate("keyless-1").slice(2));

    await refused("private_jwk", A, ...pin(tracked));
    const { d: _private, ...open } = JSON.parse(fresh);
    await refused("pinned_jwk", A, ...pin(file("new.jwk", JSON.stringify(open))));
    const { d: _secret, ...gone } = JSON.parse(oldKey);
    const old = file("gone.jwk", JSON.stringify({ ...gone, kid: "org-b-card-1" }));
    await refused("retired_key", A, ...pin(old, "--replaces", "org-b-card-3"));
    assert.equal(readFileSync(keyFile, "utf8"), key);
  });

  it("a withdrawal from one partner stops no other agent [PRT-1]", async () => {
    const before = await planesOneToThree();
    const roomsOf = (from: CompleteOrganisation, publisher: CompleteOrganisation) =>
      questions.rooms(1, from, publisher);
    const [remote, own, theirs] = [await roomsOf(A, B), await roomsOf(A, A), await roomsOf(B, A)];
    await questions.answeredOnce(await questions.ask(remote, A));
    assert.equal((await ends(0, A, "withdraw", B, REMOTE)).complete, true);
    await questions.refusedWithNotice(await questions.ask(remote, A), /no longer offered here/);
    await questions.answeredOnce(await questions.ask(own, A, { publisher: A }));
    await questions.answeredOnce(await questions.ask(theirs, B));

    // Ours, for the partner alone: our own people ask it as before.
    assert.equal((await ends(0, A, "withdraw", B, AGENT)).complete, true);
    const asked = await questions.ask(theirs, B);
    const [row] = await questions.ended(asked);
    assert.notEqual(row?.state, "completed");
    await questions.answeredOnce(await questions.ask(own, A, { publisher: A }));
    assert.deepEqual(await planesOneToThree(), before);
  });
});
