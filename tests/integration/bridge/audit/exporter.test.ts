import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import * as z from "zod";
import { type AuditExporterOptions, createAuditExporter } from "../../../../src/bridge/audit/exporter.ts";
import {
  AgentCardAudit,
  DelegationAudit,
  EncryptedIntakeAudit,
} from "../../../../src/bridge/audit/records.ts";
import type { AuditOutbox } from "../../../../src/bridge/ledger/ledger.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { AgentId, ServerName } from "../../../../src/domain/identifiers.ts";
import { BUCKET, ghost, job, type LedgerFixture, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const AuditRecord = z.discriminatedUnion("schema", [DelegationAudit, AgentCardAudit, EncryptedIntakeAudit]);
const DIGEST = `sha256:${"a".repeat(64)}`;

async function someDelegations({ ledger, admit, claim }: LedgerFixture, count: number): Promise<void> {
  await admit(
    Array.from({ length: count }, (_, n) => job(`q${n}`, { room: room(`r${n}`), targetFingerprint: DIGEST })),
  );
  for (const one of await claim({ limit: count })) {
    await ledger.delegations.beginDispatch(one.lease, { ...BUCKET, burst: 9_999 }, T0);
    await ledger.delegations.finish(
      one.lease,
      { state: "failed", stage: "dispatch", reason: "agent_refused" },
      T0,
    );
  }
}

function auditFile(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-audit-"));
  t.after(() => rmSync(directory, { recursive: true }));
  return join(directory, "audit.jsonl");
}

function exporter(
  { ledger }: Pick<LedgerFixture, "ledger">,
  file: string,
  more: Partial<AuditExporterOptions> = {},
): ReturnType<typeof createAuditExporter> {
  const log = pino({ level: "silent" });
  return createAuditExporter({
    outbox: ledger.audit,
    clock: systemClock,
    log,
    file,
    isTurn: () => true,
    ...more,
  });
}

const ids = (file: string) =>
  readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => (JSON.parse(line) as { audit_id: string }).audit_id);

describe("audit records and their export", () => {
  it("audit records of the ledger match the published schemas [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    await someDelegations(fixture, 2);
    await fixture.admit([job("denied", { targetFingerprint: DIGEST })], {
      capacity: { roomQueue: 0, globalQueue: 0 },
    });
    const target = {
      ghost: ghost(),
      agentId: "docs" as AgentId,
      targetFingerprint: DIGEST,
      cardDigest: DIGEST,
      agentVersion: "1.2.3",
      keyId: "key-1",
      origin: "127.0.0.1:8080" as ServerName,
      checkedAt: T0,
    };
    assert.equal(await fixture.ledger.targets.record({ ...target, trust: "verified" }), "recorded");
    assert.equal(
      await fixture.ledger.targets.record({ ...target, trust: "verified", checkedAt: T0 + 1 }),
      "unchanged",
    );
    assert.equal(
      await fixture.ledger.targets.record({
        ...target,
        trust: "quarantined",
        cardDigest: undefined,
        keyId: undefined,
      }),
      "recorded",
    );
    const records = (await fixture.rows("SELECT record FROM bridge_audit ORDER BY id")).map(
      (row) => row["record"],
    );
    assert.equal(records.length, 5);
    for (const record of records) AuditRecord.parse(record);
    assert.deepEqual(
      records
        .slice(3)
        .map((record) => AgentCardAudit.parse(record))
        .map(({ outcome, reason }) => [outcome, reason]),
      [
        ["accepted", "agent_card_verified"],
        ["rejected", "agent_card_untrusted"],
      ],
    );
  });

  it("no field of an audit record can hold free text [AUD-1]", () => {
    const sentence = "anything a person might write in a room";
    const check = (schema: z.ZodType, path: string): void => {
      if (schema instanceof z.ZodObject) {
        for (const [key, field] of Object.entries(schema.shape)) check(field as z.ZodType, `${path}.${key}`);
        return;
      }
      assert.equal(schema.safeParse(sentence).success, false, `${path} takes a sentence`);
    };
    check(DelegationAudit, "svc.delegation.v1");
    check(AgentCardAudit, "svc.agent_card.v1");
    check(EncryptedIntakeAudit, "svc.encrypted_intake.v1");
    assert.equal(AgentCardAudit.safeParse({ note: sentence }).success, false);
  });

  it("each record is in the file once, even after a crash between writing and marking [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 5);
    const first = exporter(fixture, file);
    await first.round();
    await first.close();
    assert.equal(ids(file).length, 5);
    // The process died after the file was synced, before the rows were marked.
    await fixture.pool.query("UPDATE bridge_audit SET exported_at = NULL WHERE id > 3");
    const second = exporter(fixture, file);
    await second.round();
    await second.close();
    assert.equal(ids(file).length, 5);
    assert.equal(new Set(ids(file)).size, 5);
    assert.deepEqual(await fixture.rows("SELECT 1 FROM bridge_audit WHERE exported_at IS NULL"), []);
  });

  it("a line that a crash cut off is removed and written whole [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 2);
    const first = exporter(fixture, file);
    await first.round();
    await first.close();
    const whole = readFileSync(file, "utf8");
    appendFileSync(file, '{"audit_id":"99","schema":"svc.dele');
    await fixture.admit([job("late", { room: room("late"), targetFingerprint: DIGEST })], {
      capacity: { roomQueue: 0, globalQueue: 0 },
    });
    const second = exporter(fixture, file);
    await second.round();
    await second.close();
    assert.ok(readFileSync(file, "utf8").startsWith(whole));
    assert.equal(ids(file).length, 3);
  });

  it("each record is in the file once when its turn went to another process that died before marking [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 4);
    const [third = assert.fail()] = await fixture.rows(
      "SELECT id, record FROM bridge_audit ORDER BY id OFFSET 2",
    );
    await fixture.pool.query("UPDATE bridge_audit SET exported_at = now() WHERE id >= $1", [third["id"]]);
    let isTurn = true;
    const first = exporter(fixture, file, { isTurn: () => isTurn });
    await first.round();
    isTurn = false;
    await first.round();
    await fixture.pool.query("UPDATE bridge_audit SET exported_at = NULL WHERE id >= $1", [third["id"]]);
    // What the other process has written: one record whole, and a part of the next one.
    const { id, record } = third as { id: string; record: object };
    appendFileSync(file, `${JSON.stringify({ audit_id: id, ...record })}\n{"audit_id":"`);
    isTurn = true;
    await first.round();
    await first.close();
    assert.deepEqual([ids(file).length, new Set(ids(file)).size], [4, 4]);
  });

  it("a record that was written and not marked is known in later rounds too, though others come before it [AUD-1]", async (t) => {
    const file = auditFile(t);
    const rowOf = (id: number) => ({ id: String(id), record: {} });
    const rounds = [[2, 3], [1, 2], [3]];
    const outbox: AuditOutbox = {
      ...({} as AuditOutbox),
      export: async (_limit, write) => {
        const records = (rounds.shift() ?? []).map(rowOf);
        await write(records);
        if (rounds.length === 2) throw new Error("the rows could not be marked");
        return records;
      },
    };
    const one = exporter({ ledger: { audit: outbox } as LedgerFixture["ledger"] }, file);
    await assert.rejects(one.round());
    await one.round();
    await one.round();
    await one.close();
    assert.deepEqual(ids(file), ["2", "3", "1"]);
  });

  it("each record is in the file once, on a line of its own, when the disk was full in the middle of a batch [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 5);
    const one = exporter(fixture, file);
    const probe = await open(file, "a");
    await probe.close();
    const handles: Pick<FileHandle, "appendFile"> = Object.getPrototypeOf(probe);
    const full = t.mock.method(handles, "appendFile", async function (this: FileHandle, lines: string) {
      await this.write(lines.slice(0, lines.length * 0.7));
      throw Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    });
    await assert.rejects(one.round(), { code: "ENOSPC" });
    full.mock.restore();
    await one.round();
    await one.close();
    assert.deepEqual(ids(file), ["1", "2", "3", "4", "5"]);
  });

  it("no record is marked exported before the file was synced [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 2);
    const one = exporter(fixture, file);
    const probe = await open(file, "a");
    await probe.close();
    const handles: Pick<FileHandle, "datasync"> = Object.getPrototypeOf(probe);
    const failing = t.mock.method(handles, "datasync", async () => {
      throw Object.assign(new Error("i/o error"), { code: "EIO" });
    });
    await assert.rejects(one.round(), { code: "EIO" });
    failing.mock.restore();
    const unmarked = "SELECT 1 FROM bridge_audit WHERE exported_at IS NULL";
    assert.equal((await fixture.rows(unmarked)).length, 2);
    await one.round();
    await one.close();
    assert.deepEqual([ids(file), await fixture.rows(unmarked)], [["1", "2"], []]);
  });

  it("a new record is exported though the file has an older one with its ID, after a backup was put back [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const file = auditFile(t);
    await someDelegations(fixture, 2);
    const first = exporter(fixture, file);
    await first.round();
    await first.close();
    await fixture.rows("DELETE FROM bridge_audit WHERE id = 2");
    await fixture.rows("SELECT setval('bridge_audit_id_seq', 1)");
    await fixture.admit([job("new")], { capacity: { roomQueue: 0, globalQueue: 0 } });
    const second = exporter(fixture, file);
    await second.round();
    await second.close();
    assert.deepEqual(ids(file), ["1", "2", "2"]);
    assert.match(readFileSync(file, "utf8"), /"event_id":"\$new"/);
  });

  it("records wait in the database when the file cannot be written [AUD-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    await someDelegations(fixture, 1);
    const folder = auditFile(t);
    mkdirSync(folder);
    await assert.rejects(exporter(fixture, folder).round());
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_audit WHERE exported_at IS NULL")).length, 1);
  });
});
