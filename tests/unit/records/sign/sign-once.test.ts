// However often and wherever it is killed, an organisation states a thing once, and signs it once.
import assert from "node:assert/strict";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { DsseEnvelope } from "../../../../src/records/format/dsse-envelope.ts";
import { byDigest, type OwnRemoval, stagesIn } from "../../../../src/records/sign/export-and-import.ts";
import {
  countersignOnce,
  type Kept,
  signOnce,
  stageStatement,
} from "../../../../src/records/sign/sign-statements.ts";
import {
  itemsOf,
  keptAt,
  type Party,
  party,
  RUN,
  removalOf,
  signStatement,
  stageInput,
} from "../../../support/removal.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const A = party("a.test");
const B = party("b.test");
const ITEMS = itemsOf("a.test", "b.test", "a2a_stop");

const ownRemoval = ({ name }: Party): OwnRemoval => ({
  run: RUN,
  kind: "full",
  remover: "a.test",
  partner: "b.test",
  self: name,
  parties: [A.trusted, B.trusted],
});

/** Another statement each time, as the clock would make it. */
function maker() {
  let made = 0;
  const {
    schema: _,
    position: __,
    ...input
  } = stageInput(RUN, "a.test", "b.test", { organisation: "a.test", stage: "a2a_stop" }, ITEMS);
  return {
    make: () => stageStatement({ ...input, attested: [`time_${++made}`], previous: null }, byDigest(ITEMS)),
    count: () => made,
  };
}

/** A place that can be killed: before what is written is there, or right after. */
function killable() {
  const written: string[] = [];
  const kept = (killAt: number, isThereAfterwards: boolean): Kept => {
    let writes = 0;
    return {
      read: () => written.at(-1),
      write: (text) => {
        const dies = ++writes === killAt;
        if (!dies || isThereAfterwards) written.push(text);
        if (dies) throw new Error("killed");
      },
    };
  };
  return { written, kept };
}

const refused = (reason: string) => (error: unknown) =>
  error instanceof Error && error.message.includes(reason);

describe("signOnce and countersignOnce", () => {
  it("a stage is stated once and one signature is handed out when signing is killed at any moment [OFF-2]", async () => {
    for (const killAt of [1, 2]) {
      for (const isThere of [false, true]) {
        const { make, count } = maker();
        const { written, kept } = killable();
        await assert.rejects(signOnce(kept(killAt, isThere), make, ownRemoval(A), A.signer), /killed/);
        const first = await signOnce(kept(0, true), make, ownRemoval(A), A.signer);
        const again = await signOnce(kept(0, true), make, ownRemoval(A), A.signer);
        assert.deepEqual(again, first);
        assert.equal(first.signatures.length, 1);
        assert.equal(new Set(written.map((text) => (JSON.parse(text) as DsseEnvelope).payload)).size, 1);
        assert.equal(
          count(),
          killAt === 1 && !isThere ? 2 : 1,
          "only a statement that was lost is made anew",
        );
      }
    }
  });

  it("a statement is on disk before the signer receives it, and stays when the signer fails [OFF-2]", async (t) => {
    const file = join(temporaryFolder(t), "a2a_stop.json");
    const { make, count } = maker();
    const broken = {
      keyId: A.signer.keyId,
      sign: async () => {
        assert.deepEqual(JSON.parse(keptAt(file).read() ?? "").signatures, []);
        throw new Error("no token inserted");
      },
    };
    await assert.rejects(signOnce(keptAt(file), make, ownRemoval(A), broken), /no token inserted/);
    const envelope = await signOnce(keptAt(file), make, ownRemoval(A), A.signer);
    assert.equal(count(), 1);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(JSON.parse(keptAt(file).read() ?? ""), envelope);
    // Nor does a new key make a second signature.
    const { signer } = party("a.test");
    assert.deepEqual(await signOnce(keptAt(file), make, ownRemoval(A), signer), envelope);
  });

  it("one countersignature is handed out when countersigning is killed at any moment [OFF-2]", async () => {
    const envelope = await signStatement(maker().make(), A.signer);
    const held = { envelopes: [envelope], evidence: ITEMS };
    for (const isThere of [false, true]) {
      const { written, kept } = killable();
      await assert.rejects(
        countersignOnce(kept(1, isThere), envelope, ownRemoval(B), held, B.signer),
        /killed/,
      );
      const first = await countersignOnce(kept(0, true), envelope, ownRemoval(B), held, B.signer);
      assert.deepEqual(await countersignOnce(kept(0, true), envelope, ownRemoval(B), held, B.signer), first);
      assert.equal(first.signatures.length, 2);
      assert.equal(written.length, 1);
      const { make } = maker();
      make();
      const other = await signStatement(make(), A.signer);
      await assert.rejects(
        countersignOnce(kept(0, true), other, ownRemoval(B), { ...held, envelopes: [other] }, B.signer),
        refused("statement_conflicts"),
      );
    }
  });

  it("what was signed with a key that is withdrawn since is refused with a hint, and kept [OFF-2]", async () => {
    const later = (removal: OwnRemoval, own: Party) => ({
      ...removal,
      parties: removal.parties.map((one) => (one.organisation === own.name ? own.trusted : one)),
    });
    const withdrawn = { code: "record_refused", hint: /old key beside the new one/ };
    const stated = killable();
    const envelope = await signOnce(stated.kept(0, true), maker().make, ownRemoval(A), A.signer);
    const [newA, newB] = [party("a.test"), party("b.test")];
    const byNewKey = later(ownRemoval(A), newA);
    await assert.rejects(signOnce(stated.kept(0, true), maker().make, byNewKey, newA.signer), withdrawn);
    const signed = killable();
    const held = { envelopes: [envelope], evidence: ITEMS };
    await countersignOnce(signed.kept(0, true), envelope, ownRemoval(B), held, B.signer);
    const countersigner = later(ownRemoval(B), newB);
    await assert.rejects(
      countersignOnce(signed.kept(0, true), envelope, countersigner, held, newB.signer),
      withdrawn,
    );
    assert.deepEqual([stated.written.length, signed.written.length], [2, 1]);
  });

  it("nothing is signed or kept by a key that the trust file does not name, with a hint [OFF-2]", async () => {
    const unknown = { code: "config_invalid", hint: /offboarding\.signingKey/ };
    const { written, kept } = killable();
    const { signer } = party("a.test");
    await assert.rejects(signOnce(kept(0, true), maker().make, ownRemoval(A), signer), unknown);
    const envelope = await signOnce(killable().kept(0, true), maker().make, ownRemoval(A), A.signer);
    const held = { envelopes: [envelope], evidence: ITEMS };
    await assert.rejects(countersignOnce(kept(0, true), envelope, ownRemoval(B), held, signer), unknown);
    assert.deepEqual(written, []);
  });

  it("a statement of another organisation is neither signed nor kept [OFF-2]", async () => {
    const { make } = maker();
    const { written, kept } = killable();
    await assert.rejects(
      signOnce(kept(0, true), make, ownRemoval(B), B.signer),
      refused("states_for_another"),
    );
    const otherRun = { ...ownRemoval(A), run: "f".repeat(32) };
    await assert.rejects(signOnce(kept(0, true), make, otherRun, A.signer), refused("other_run"));
    const whole = await removalOf(A, B);
    const completion = () => whole.completion as unknown as ReturnType<typeof make>;
    await assert.rejects(
      signOnce(kept(0, true), completion, ownRemoval(B), B.signer),
      refused("states_for_another"),
    );
    const another = party("a.test");
    const keys = [...A.trusted.keys, ...another.trusted.keys];
    const withBoth = { ...ownRemoval(A), parties: [{ ...A.trusted, keys }, B.trusted] };
    await assert.rejects(
      signOnce(kept(0, true), completion, withBoth, another.signer),
      refused("key_not_attested"),
    );
    assert.deepEqual(written, []);
    const signed = await signOnce(kept(0, true), completion, ownRemoval(A), A.signer);
    assert.equal(stagesIn([signed]).size, 0);
  });

  it("a damaged statement is reported, never replaced by a second one", async (t) => {
    const file = join(temporaryFolder(t), "a2a_stop.json");
    const { make, count } = maker();
    for (const text of ["", "{", "[]", '{"payload":"e30=","payloadType":"x","signatures":[]}']) {
      writeFileSync(file, text);
      await assert.rejects(signOnce(keptAt(file), make, ownRemoval(A), A.signer), {
        code: "state_unreadable",
      });
      assert.equal(keptAt(file).read(), text);
    }
    assert.equal(count(), 0);
  });
});
