// One agent's identity, on a real repository: what is committed, what each guard refuses, and what is proved.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { importPinnedKey, verifyCard } from "../../../../src/cards/verify.ts";
import { readPublicIdentity } from "../../../../src/cli/lib/agent-identity.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { commitIdentity } from "../../../../src/federation/agents/commit-and-prove.ts";
import type { Guard } from "../../../../src/federation/agents/identity-rules.ts";
import { memoryFile, pinAgent } from "../../../../src/federation/agents/pin.ts";
import { type Rotation, rotateAgent, writeRotation } from "../../../../src/federation/agents/rotate.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { thumbprintOf } from "../../../../src/federation/registry/retired-identities.ts";
import { isIntact } from "../../../../src/records/format/evidence-item.ts";
import { changedPaths, LIGHTHOUSE, operatorGit } from "../../../support/control-repository.ts";
import {
  cardBy,
  cardKey,
  fingerprintOf,
  identities,
  type Key,
  ORGANISATION,
  WEATHER,
} from "../../../support/readmission.ts";
import { writeFile } from "../../../support/temporary.ts";

async function refusedBy(guard: Guard, work: () => Promise<unknown> | unknown): Promise<void> {
  await assert.rejects(
    async () => work(),
    (error) => {
      assert.ok(error instanceof DrawbridgeError, String(error));
      assert.equal(error.code, "guard_refused", error.message);
      assert.ok(error.message.endsWith(`[${guard}]`), error.message);
      assert.ok(error.hint);
      return true;
    },
  );
}

/** A new key of a partner's agent, pinned and proved, and what that wrote. */
async function pinnedAnew(t: TestContext) {
  const { federation, parts, weather, serve, decide } = await identities(t);
  const fresh = await cardKey("lighthouse-card-2");
  serve(await cardBy(fresh));
  decide({ accepted: true, fingerprint: fingerprintOf(fresh.identity) });
  const { mock } = t.mock.method(federation.state, "write");
  const options = { partner: "lighthouse", agent: WEATHER, identity: fresh.identity };
  const shown = { replaces: "lighthouse-card-1", oldCard: await cardBy(weather) };
  const result = await pinAgent(federation, parts, { ...options, ...shown });
  return { result, mock };
}

describe("changing an agent's identity", () => {
  it("a rotation deletes the old key, signs by the new one alone, and proves both [PRT-1]", async (t) => {
    const { federation, parts, rotation, own, card, keyFile, repository, registryText } = await identities(t);
    const before = await repository.requireHead();
    const result = await rotateAgent(federation, parts, rotation);
    assert.deepEqual([result.complete, result.committed], [true, true], JSON.stringify(result.conditions));
    assert.equal(operatorGit(repository.path, "rev-list", "--count", `${before}..main`), "1");

    const registry = loadRegistry(await repository.read(result.revision as never, ["registry"]));
    const [published, ...others] = registry.organisation.agents["docs-qa"]?.cardKeys ?? [];
    assert.ok(published && others.length === 0);
    assert.equal(published.keyId, "harbour-card-2");
    assert.deepEqual(
      registry.organisation.consumes["docs-qa"]?.cardIdentity,
      published,
      "our own pin follows",
    );
    assert.deepEqual(registry.organisation.retired.cardKeys, [
      { keyId: "harbour-card-1", thumbprint: thumbprintOf(own.identity.jwk) },
    ]);
    assert.match(await registryText(ORGANISATION), /^# What Harbour is and offers/);

    const [newPin, oldPin] = [
      await importPinnedKey(published.keyId, published.jwk),
      await importPinnedKey(own.identity.keyId, own.identity.jwk),
    ];
    assert.equal((await verifyCard(card(), [newPin])).accepted, true);
    assert.equal((await verifyCard(card(), [oldPin])).accepted, false, "no signature of the old key stays");
    assert.doesNotMatch(readFileSync(keyFile, "utf8"), new RegExp(own.identity.jwk.x));
    assert.equal(statSync(keyFile).mode & 0o777, 0o600);
    assert.equal(existsSync(`${keyFile}.next`), false);

    const again = await rotateAgent(federation, parts, rotation);
    assert.deepEqual(
      [again.complete, again.committed],
      [true, false],
      "the same command again changes nothing",
    );

    const by = (probe: string) => result.items.filter((item) => item.probe === probe);
    assert.deepEqual(
      by("old_identity").map(({ verdict, reason }) => [verdict, reason]),
      [
        ["closed", "key_not_pinned"],
        ["closed", "signature_invalid"],
      ],
      "the old card, and one that the old key signs in the new key's name",
    );
    assert.deepEqual(
      by("new_identity").map(({ verdict }) => verdict),
      ["open"],
    );
    assert.ok(result.items.every(isIntact));
  });

  it("a change of identity leaves planes 1 to 3 unchanged and states their digests in evidence [PRT-1]", async (t) => {
    const { federation, parts, rotation, repository } = await identities(t);
    const before = await repository.requireHead();
    const result = await rotateAgent(federation, parts, rotation);
    const changed = changedPaths(repository, before, result.revision as never);
    assert.deepEqual(
      changed.filter((path) => /\/(transport|rooms|border)\//.test(path)),
      [],
    );
    assert.ok(
      changed.includes("rendered/card/card-keys.json") && changed.includes("rendered/card/agents.yaml"),
    );
    assert.deepEqual(
      result.untouched.map(({ plane, before: old, after }) => [plane, old === after]),
      [
        ["transport", true],
        ["rooms", true],
        ["border", true],
      ],
    );
    assert.deepEqual(
      result.items.filter(({ probe }) => probe === "render_unchanged").map(({ plane }) => plane),
      ["transport", "rooms", "border"],
    );
  });

  it("guard planes_1_to_3_untouched refuses a change that reaches another plane, and commits nothing [PRT-1]", async (t) => {
    const { federation, repository } = await identities(t);
    const head = await repository.requireHead();
    const edits = [{ path: ["planes", "transport"], value: "closed" }];
    const propose = () => ({ file: LIGHTHOUSE, edits, message: "Close" });
    await refusedBy("planes_1_to_3_untouched", () =>
      commitIdentity(federation, { reason: "drawbridge: pin", propose }),
    );
    assert.equal(await repository.requireHead(), head);
  });

  it("a key or a card that is a link is refused: the old key would stay where it leads to [PRT-1]", async (t) => {
    const { federation, parts, rotation, own, keyFile, directory } = await identities(t);
    const real = join(directory, "real.jwk");
    renameSync(keyFile, real);
    symlinkSync(real, keyFile);
    await assert.rejects(
      rotateAgent(federation, parts, rotation),
      /docs-qa\.jwk is a link; nothing was changed/,
    );
    assert.equal(readFileSync(real, "utf8"), own.text);
  });

  it("a rotation that could not be committed keeps the old key, and the card as it is [PRT-1]", async (t) => {
    const { federation, parts, rotation, own, keyFile, directory, card, repository } = await identities(t);
    const [before, signed] = [await repository.requireHead(), card()];
    const allowedSignersFile = join(directory, "allowed");
    writeFile(allowedSignersFile, "");
    const signing = { allowedSignersFile, signedCommits: "every", trustedBase: before } as const;
    await assert.rejects(
      rotateAgent({ ...federation, signing }, parts, rotation),
      /signingKeyFile is not set; nothing was changed/,
    );
    assert.equal(readFileSync(keyFile, "utf8"), own.text);
    assert.deepEqual([await repository.requireHead(), card()], [before, signed]);
    assert.equal((await rotateAgent(federation, parts, rotation)).complete, true);
  });

  it("guard missing_key refuses a rotation without the private key while its public key is published [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile, repository } = await identities(t);
    const before = await repository.requireHead();
    rmSync(keyFile);
    await refusedBy("missing_key", () => rotateAgent(federation, parts, rotation));
    assert.equal(await repository.head(), before);
    assert.equal(existsSync(keyFile), false, "no key was made");

    const result = await rotateAgent(federation, parts, { ...rotation, isLost: true });
    assert.equal(result.complete, true, "unless it is said to be lost");
  });

  it("guard pinned_jwk refuses a new key that is pinned already, or whose ID is in use [PRT-1]", async (t) => {
    const { federation, parts, rotation, own, weather, directory, card } = await identities(t);
    const before = card();
    for (const [name, text] of [
      ["own", own.text],
      ["weather", weather.text],
    ] as const) {
      const newKeyFile = join(directory, "secrets", `${name}.jwk`);
      writeFile(newKeyFile, text, 0o600);
      await refusedBy("pinned_jwk", () => rotateAgent(federation, parts, { ...rotation, newKeyFile }));
    }
    const sameId = { ...rotation, keyId: "harbour-card-1" };
    await refusedBy("pinned_jwk", () => rotateAgent(federation, parts, sameId));
    assert.deepEqual(card(), before);
  });

  it("guard other_key refuses to rotate a private key that is not the published one [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile } = await identities(t);
    writeFile(keyFile, (await cardKey("stranger")).text, 0o600);
    await refusedBy("other_key", () => rotateAgent(federation, parts, rotation));
  });

  it("guard nothing_to_rotate refuses an agent without a public key [PRT-1]", async (t) => {
    const { federation, parts, rotation } = await identities(t);
    await refusedBy("nothing_to_rotate", () =>
      rotateAgent(federation, parts, { ...rotation, agent: "tide-tables" }),
    );
  });

  it("guard staged_key refuses to overwrite another key where the new key is staged [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile, repository, own } = await identities(t);
    const before = await repository.requireHead();
    const stranger = await cardKey("stranger");
    for (const text of [stranger.text, "not a key at all"]) {
      writeFile(`${keyFile}.next`, text, 0o600);
      await refusedBy("staged_key", () => rotateAgent(federation, parts, rotation));
      assert.equal(readFileSync(`${keyFile}.next`, "utf8"), text);
    }
    assert.equal(await repository.head(), before);
    assert.match(readFileSync(keyFile, "utf8"), new RegExp(own.identity.jwk.x), "the old key is still there");

    writeFile(`${keyFile}.next`, stranger.text, 0o600);
    const named = { ...rotation, newKeyFile: `${keyFile}.next` };
    const result = await rotateAgent(federation, parts, named);
    assert.equal(result.complete, true, "unless it is named");
    assert.match(readFileSync(keyFile, "utf8"), new RegExp(stranger.identity.jwk.x));
  });

  it("a rotation that was cut off as its new key was staged continues with that key, and signs by no other [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile, card, own } = await identities(t);
    const begun = async (key: Key, step: Rotation["step"] = "begun") =>
      writeRotation(federation.state, {
        ...{ version: 1, agent: "docs-qa", step },
        fresh: { keyId: rotation.keyId, jwk: { kty: "EC", crv: "P-256", ...key.identity.jwk } },
        old: [{ keyId: own.identity.keyId, jwk: { kty: "EC", crv: "P-256", ...own.identity.jwk } }],
        ...{
          old_cards: [card().toString("base64")],
          key_file: keyFile,
          card_file: rotation.cardFile,
        },
      });
    const cut = await cardKey(rotation.keyId);
    const [present, unsigned] = [readFileSync(keyFile, "utf8"), card()];
    await begun(cut, "cleared");
    writeFile(keyFile, (await cardKey("stranger")).text, 0o600);
    await assert.rejects(rotateAgent(federation, parts, rotation), { code: "secret_unavailable" });
    assert.deepEqual(card(), unsigned);
    writeFile(keyFile, present, 0o600);
    await begun(cut);
    writeFile(`${keyFile}.next`, (await cardKey("stranger")).text, 0o600);
    await refusedBy("staged_key", () => rotateAgent(federation, parts, rotation));
    writeFile(`${keyFile}.next`, cut.text, 0o600);
    const result = await rotateAgent(federation, parts, rotation);
    assert.equal(result.complete, true, JSON.stringify(result.conditions));
    assert.match(readFileSync(keyFile, "utf8"), new RegExp(cut.identity.jwk.x), "the key that was staged");
  });

  it("a rotation that was killed between its key's file and what is remembered of it goes on [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile } = await identities(t);
    const { state } = federation;
    const write = state.write.bind(state);
    state.write = (name, value) => {
      if (JSON.stringify(value).includes('"staged"')) throw new Error("killed");
      return write(name, value);
    };
    await assert.rejects(rotateAgent(federation, parts, rotation), /killed/);
    const staged = readFileSync(`${keyFile}.next`, "utf8");
    state.write = write;
    assert.equal((await rotateAgent(federation, parts, rotation)).complete, true);
    assert.equal(readFileSync(keyFile, "utf8"), staged);
  });

  it("a rotation goes on with its new key where the state folder is put back to before that came into its place [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile } = await identities(t);
    assert.equal((await rotateAgent(federation, parts, rotation)).complete, true);
    const fresh = readFileSync(keyFile, "utf8");
    const file = federation.state.file("agents", "rotate-docs-qa.json");
    writeFile(file, readFileSync(file, "utf8").replace(`"proved"`, `"staged"`), 0o600);
    assert.equal((await rotateAgent(federation, parts, rotation)).complete, true);
    assert.equal(readFileSync(keyFile, "utf8"), fresh);
  });

  it("a rotation of a lost key stays incomplete until a card of the old key is given [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile, cardFile, own } = await identities(t);
    rmSync(keyFile);
    const signed = await cardBy(own, "Handbook");
    const { signatures: _none, ...bare } = JSON.parse(signed.toString());
    writeFile(cardFile, JSON.stringify(bare));
    const lost = { ...rotation, isLost: true };
    const strangers = await cardBy(await cardKey("stranger"));
    await assert.rejects(rotateAgent(federation, parts, { ...lost, oldCard: strangers }), { code: "usage" });
    assert.equal(existsSync(`${keyFile}.next`), false, "nothing was begun");
    const first = await rotateAgent(federation, parts, lost);
    const unknown = first.conditions.filter(({ verdict }) => verdict !== "met");
    assert.deepEqual(
      unknown.map(({ condition, verdict, found }) => [condition, verdict, found]),
      [["old_identity_fails", "unknown", "old_identity on docs-qa: unknown (none no_card_of_the_old_key)"]],
    );
    await assert.rejects(rotateAgent(federation, parts, { ...lost, oldCard: strangers }), {
      code: "usage",
      message: /--old-card is not signed by the old key \(harbour-card-1\)/,
    });
    const shown = await rotateAgent(federation, parts, { ...lost, oldCard: signed });
    assert.equal(shown.complete, true);
  });

  it("guard in_version_control refuses a private key below a work tree [PRT-1]", async (t) => {
    const { federation, parts, rotation, keyFile, directory } = await identities(t);
    const newKeyFile = join(directory, "tree", "new.jwk");
    mkdirSync(join(directory, "tree", ".git"), { recursive: true });
    writeFile(newKeyFile, (await cardKey(rotation.keyId)).text, 0o600);
    await refusedBy("in_version_control", () => rotateAgent(federation, parts, { ...rotation, newKeyFile }));
    mkdirSync(join(dirname(keyFile), ".git"));
    await refusedBy("in_version_control", () => rotateAgent(federation, parts, rotation));
  });

  it("guard retired_key refuses a retired key at rotation, at pinning and in the registry [PRT-1]", async (t) => {
    const { federation, parts, rotation, own, weather, keyFile, directory, repository } = await identities(t);
    await rotateAgent(federation, parts, rotation);
    const again = join(directory, "secrets", "again.jwk");
    writeFile(again, own.text, 0o600);
    const back = { ...rotation, keyId: "harbour-card-3", newKeyFile: again };
    await refusedBy("retired_key", () => rotateAgent(federation, parts, back));

    const fresh = await cardKey("lighthouse-card-2");
    const replaces = "lighthouse-card-1";
    const pin = { partner: "lighthouse", agent: WEATHER };
    await pinAgent(federation, parts, { ...pin, identity: fresh.identity, replaces });
    await refusedBy("retired_key", () =>
      pinAgent(federation, parts, { ...pin, identity: weather.identity, replaces: "lighthouse-card-2" }),
    );
    const renamed = { keyId: "another-name", jwk: weather.identity.jwk };
    await refusedBy("retired_key", () =>
      pinAgent(federation, parts, { ...pin, identity: renamed, replaces: "lighthouse-card-2" }),
    );
    const reused = { keyId: replaces, jwk: (await cardKey("third")).identity.jwk };
    await refusedBy("retired_key", () =>
      pinAgent(federation, parts, { ...pin, identity: reused, replaces: "lighthouse-card-2" }),
    );
    assert.ok(existsSync(keyFile));
    assert.ok(await repository.head());
  });

  it("guard pinned_jwk refuses to replace a pin unless --replaces names the present key [PRT-1]", async (t) => {
    const { federation, parts, repository } = await identities(t);
    const before = await repository.requireHead();
    const { identity } = await cardKey("lighthouse-card-2");
    const pin = { partner: "lighthouse", agent: WEATHER, identity };
    await refusedBy("pinned_jwk", () => pinAgent(federation, parts, pin));
    await refusedBy("pinned_jwk", () =>
      pinAgent(federation, parts, { ...pin, replaces: "lighthouse-card-0" }),
    );
    assert.equal(await repository.head(), before);
  });

  it("guard private_jwk refuses a file that holds a private key [PRT-1]", async (t) => {
    const { directory } = await identities(t);
    const { text } = await cardKey("careless");
    const file = join(directory, "careless.jwk");
    writeFile(file, text);
    await refusedBy("private_jwk", () => readPublicIdentity(file, undefined));
    writeFile(file, `{"keys": [${text}]}`);
    await refusedBy("private_jwk", () => readPublicIdentity(file, undefined));
  });

  it("a pin is one commit, and is proved only when the bridge has verified that pin [PRT-1]", async (t) => {
    const { federation, parts, weather, serve, decide, repository, registryText } = await identities(t);
    const before = await repository.requireHead();
    const fresh = await cardKey("lighthouse-card-2");
    const options = {
      ...{ partner: "lighthouse", agent: WEATHER, identity: fresh.identity },
      replaces: "lighthouse-card-1",
    };
    const verdicts = ({ conditions }: Awaited<ReturnType<typeof pinAgent>>) =>
      Object.fromEntries(conditions.map(({ condition, verdict }) => [condition, verdict]));

    // The publisher still serves the old card: it fails against the new pin, and the target is quarantined.
    decide({ accepted: true, fingerprint: fingerprintOf(weather.identity) });
    const first = await pinAgent(federation, parts, options);
    assert.deepEqual(verdicts(first), {
      card_in_force: "met",
      old_identity_fails: "met",
      new_identity_verifies: "not_met",
      old_key_not_served: "not_met",
      bridge_has_verified: "unknown",
    });
    assert.deepEqual([first.complete, first.committed], [false, true]);

    // The same command again, once the publisher serves the new one.
    serve(await cardBy(fresh));
    decide({ accepted: true, fingerprint: fingerprintOf(fresh.identity) });
    const second = await pinAgent(federation, parts, options);
    assert.deepEqual([second.complete, second.committed], [true, false], JSON.stringify(second.conditions));
    assert.ok(verdicts(second)["old_identity_fails"] === "met", "what the old key signed is remembered");
    assert.equal(operatorGit(repository.path, "rev-list", "--count", `${before}..main`), "1");
    const text = await registryText(LIGHTHOUSE);
    assert.match(text, /^# Admitted on every plane\.\n/);
    const { partner } =
      loadRegistry(await repository.read(second.revision as never, ["registry"])).partners[1] ??
      assert.fail();
    assert.deepEqual(partner.keyIds.card, ["lighthouse-card-2"]);
    assert.deepEqual(partner.retired.cardKeys, [
      { keyId: "lighthouse-card-1", thumbprint: thumbprintOf(weather.identity.jwk) },
    ]);
  });

  it("a pin after the publisher's rotation stays incomplete until a card of the old key is observed to fail [PRT-1]", async (t) => {
    const { federation, parts, weather, serve, decide } = await identities(t);
    const pin = async (key: Key, replaces: string, oldCard?: Buffer, partner = "lighthouse") => {
      const options = { partner, agent: WEATHER, identity: key.identity, replaces, oldCard };
      const { complete, conditions } = await pinAgent(federation, parts, options);
      const [old] = conditions.filter(({ condition }) => condition === "old_identity_fails");
      return [complete, old?.verdict, old?.found];
    };
    const publish = async (key: Key) => {
      serve(await cardBy(key));
      decide({ accepted: true, fingerprint: fingerprintOf(key.identity) });
    };
    const second = await cardKey("lighthouse-card-2");
    await publish(second);
    const unobserved = [
      false,
      "unknown",
      `old_identity on ${WEATHER}: unknown (none no_card_of_the_old_key)`,
    ];
    assert.deepEqual(await pin(second, "lighthouse-card-1"), unobserved);
    const again = await pin(second, "lighthouse-card-1", undefined, "matrix.lighthouse.example:8448");
    assert.deepEqual(again, unobserved, "and it stays so, by whichever name the partner is called");
    const strangers = await cardBy(await cardKey("lighthouse-card-1"));
    assert.deepEqual(
      await pin(second, "lighthouse-card-1", strangers),
      unobserved,
      "another's card proves nothing",
    );
    const shown = await pin(second, "lighthouse-card-1", await cardBy(weather));
    assert.deepEqual(shown, [true, "met", "key_not_pinned"]);

    // What the second pin has verified is kept, so that a third needs nothing to be shown.
    const third = await cardKey("lighthouse-card-3");
    await publish(third);
    assert.deepEqual(await pin(third, "lighthouse-card-2"), [true, "met", "key_not_pinned"]);
  });

  it("a proved pin forgets the old key and keeps the new key's card in one write [PRT-1]", async (t) => {
    const { result, mock } = await pinnedAnew(t);
    assert.ok(result.complete);
    const written = mock.calls.flatMap(({ arguments: [name, value] }) => {
      const { old, last_card } = value as { old: unknown; last_card: unknown };
      return name.startsWith("agents/pin-") ? [[old === null, last_card === null]] : [];
    });
    assert.deepEqual(written.slice(-2), [
      [false, true],
      [true, false],
    ]);
  });

  it("a pin forgets what it rests on only when the evidence of that is on the disk [PRT-1]", async (t) => {
    const { result, mock } = await pinnedAnew(t);
    const { evidence } = result;
    const kept = JSON.parse(readFileSync(evidence, "utf8"));
    assert.ok(kept.complete && kept.items.some(({ probe }: { probe: string }) => probe === "old_identity"));
    const own = mock.calls.map(({ arguments: [name] }) => name).filter((name) => name.startsWith("agents/"));
    assert.ok(evidence.endsWith(own.at(-2) ?? "none"), own.join());
    assert.match(own.at(-1) ?? "", /^agents\/pin-/);
  });

  it("a pin that was cut off right after its commit knows which key it replaced [PRT-1]", async (t) => {
    const { federation, parts, weather, serve, decide } = await identities(t);
    const fresh = await cardKey("lighthouse-card-2");
    serve(await cardBy(fresh));
    decide({ accepted: true, fingerprint: fingerprintOf(fresh.identity) });
    const options = { partner: "lighthouse", agent: WEATHER, identity: fresh.identity };
    const advance = federation.repository.advance.bind(federation.repository);
    const cutOff: typeof advance = async (...args) => assert.fail(`moved: ${await advance(...args)}`);
    t.mock.method(federation.repository, "advance", cutOff, { times: 1 });
    await assert.rejects(
      pinAgent(federation, parts, { ...options, replaces: "lighthouse-card-1" }),
      /moved: true/,
    );

    const { complete, conditions } = await pinAgent(federation, parts, options);
    const [old] = conditions.filter(({ condition }) => condition === "old_identity_fails");
    assert.deepEqual([complete, old?.verdict], [false, "unknown"]);
    const shown = await pinAgent(federation, parts, { ...options, oldCard: await cardBy(weather) });
    assert.equal(shown.complete, true, JSON.stringify(shown.conditions));
  });

  it("two pins never remember their cards in one file [PRT-1]", () => {
    assert.notEqual(memoryFile("a.test-b", "c"), memoryFile("a.test", "b-c"));
  });

  it("a card that cannot be fetched proves nothing [PRT-1]", async (t) => {
    const { federation, parts, serveNothing } = await identities(t);
    serveNothing();
    const { identity } = await cardKey("lighthouse-card-2");
    const options = { partner: "lighthouse", agent: WEATHER, identity, replaces: "lighthouse-card-1" };
    const result = await pinAgent(federation, parts, options);
    assert.equal(result.complete, false);
    assert.equal(result.items.find(({ probe }) => probe === "new_identity")?.verdict, "unknown");
  });
});
