// A whole removal of one organisation by another, stated and signed by both, and forgeries of it. Its evidence is that of a
// real removal: what the probes of the lab's two organisations found in each stage, with no content and no key in it
// (tests/fixtures/records/removal-evidence.json). The forgeries are signed with the keys of both organisations: what a
// signature cannot show is what they are for.
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { canonicalize } from "../../src/domain/canonical-json.ts";
import { sha256, sha256Tagged } from "../../src/domain/digest.ts";
import type { Circumstances } from "../../src/records/conditions/condition.ts";
import type { DsseEnvelope } from "../../src/records/format/dsse-envelope.ts";
import { readPublicKey } from "../../src/records/format/ecdsa-p256.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
  isOfPurge,
  OWNER_WORD,
} from "../../src/records/format/evidence-item.ts";
import type { Scope } from "../../src/records/format/fields.ts";
import {
  PLANE_OF_STAGE,
  positionOf,
  type StageName,
  statementOrder,
} from "../../src/records/format/removal-stages.ts";
import {
  COMPLETION_PREDICATE_TYPE,
  type CompletionPredicate,
  type CompletionStatement,
  fileText,
  type OutOfReachEntry,
  type RecordFile,
  STAGE_PREDICATE_TYPE,
  STATEMENT_TYPE,
  type StagePredicate,
  type StageStatement,
  type Statement,
  statementDigest,
  subjectsOf,
  unsigned,
} from "../../src/records/format/statements.ts";
import type { Trust, TrustedParty } from "../../src/records/format/trust.ts";
import type { Kept } from "../../src/records/sign/sign-statements.ts";
import { addSignature, type Signer } from "../../src/records/sign/signer.ts";
import { evidenceOf, revisionsOf } from "../../src/records/verify/verify-completion.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";

export interface RealStage {
  readonly opened_at: string;
  readonly closed_at: string;
  readonly revision: string | null;
  readonly render: string | null;
  readonly scope: Scope;
  readonly out_of_reach: readonly Pick<OutOfReachEntry, "subject" | "reason">[];
  readonly attested: readonly string[];
  readonly items: readonly EvidenceItem[];
}

type Side = Readonly<Record<StageName, RealStage>>;
export interface RealRemoval {
  readonly remover: string;
  readonly partner: string;
  readonly at_remover: Side;
  readonly at_partner: Side;
}

export const REAL: RealRemoval = JSON.parse(
  readFileSync(new URL("../fixtures/records/removal-evidence.json", import.meta.url), "utf8"),
);

/** In what a stage of the remover's, or of the partner's, was observed. */
export function circumstancesOf(
  side: "at_remover" | "at_partner",
  stage: StageName,
  change: Partial<Circumstances> = {},
): Circumstances {
  const { remover, partner } = REAL;
  const { scope, opened_at, closed_at, revision, render, out_of_reach } = REAL[side][stage];
  const [organisation, other] = side === "at_remover" ? [remover, partner] : [partner, remover];
  return {
    ...{ organisation, partner: other, plane: PLANE_OF_STAGE[stage], scope },
    ...{ from: opened_at, until: closed_at, revision, render },
    outOfReach: new Set(out_of_reach.map(({ subject }) => subject)),
    ...change,
  };
}

/** A scope with nothing in it but the homeserver. */
export const NO_SCOPE: Scope = {
  ...{ parts: ["homeserver"], client: "client", applicants: [], agents: [], pins: [] },
  ...{ rooms: null, policy: null, started_at: null },
};

export function signStatement(statement: Statement<unknown>, signer: Signer): Promise<DsseEnvelope> {
  return addSignature(unsigned(statement), signer);
}

export function keptAt(file: string): Kept {
  return { read: () => readIfPresent(file), write: (text) => writeWhole(file, text, PRIVATE) };
}

export interface Party {
  readonly name: string;
  readonly trusted: TrustedParty;
  readonly signer: Signer;
  readonly privateKey: KeyObject;
  /** SubjectPublicKeyInfo. */
  readonly pem: string;
}

/**
 * An organisation with a new key. What it has signed it does not sign again, and a signature that was verified over the
 * same bytes is not computed anew: most of a forged record is as it was.
 */
export function party(name: string): Party {
  const signatures = new Map<string, Buffer>();
  const verified = new Map<string, boolean>();
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const pem = publicKey.export({ type: "spki", format: "pem" }).toString();
  const key = readPublicKey(pem, "test");
  return {
    name,
    privateKey,
    pem,
    trusted: {
      organisation: name,
      keys: [
        {
          keyId: key.keyId,
          verifies: (data, signature) => {
            const call = `${sha256(data).toString("hex")} ${Buffer.from(signature).toString("hex")}`;
            const answer = verified.get(call) ?? key.verifies(data, signature);
            verified.set(call, answer);
            return answer;
          },
        },
      ],
    },
    signer: {
      keyId: key.keyId,
      sign: async (data) => {
        const digest = sha256(data).toString("hex");
        const signature =
          signatures.get(digest) ?? sign("sha256", data, { key: privateKey, dsaEncoding: "der" });
        signatures.set(digest, signature);
        return signature;
      },
    },
  };
}

export const RUN = "0123456789abcdef0123456789abcdef";
const START = Date.parse("2026-11-21T09:00:00.000Z");

/** Minutes after the removal began. */
export function minute(count: number): string {
  return new Date(START + count * 60_000).toISOString();
}

export interface Changes {
  readonly run?: string;
  /** The real items of each stage. */
  readonly items?: (
    items: readonly EvidenceItem[],
    organisation: string,
    stage: StageName,
  ) => readonly EvidenceItem[];
  /** Each item, before it is sealed. */
  readonly item?: (item: EvidenceItemBody, organisation: string, stage: StageName) => EvidenceItemBody;
  /** Each stage's predicate, before it is chained. */
  readonly stage?: (predicate: StagePredicate) => StagePredicate;
  /** Each stage's statement, chained; the completion binds what comes out. */
  readonly stated?: (statement: StageStatement) => StageStatement;
  readonly completion?: (predicate: CompletionPredicate) => CompletionPredicate;
  readonly completed?: (statement: CompletionStatement) => CompletionStatement;
  /** The whole file, after everything was signed. */
  readonly file?: (file: RecordFile) => unknown;
}

export interface Removal {
  readonly file: RecordFile;
  readonly bytes: Buffer;
  readonly trust: Trust;
  readonly stages: readonly StageStatement[];
  readonly completion: CompletionStatement;
}

/** Rooms of each kind: left by our people, and kept with an ACL. More would only slow the tests down. */
const ROOMS_MAX = 2;

/** What stands in the fixture, as it would stand in a record of these two. */
function realStage(organisation: string, stage: StageName) {
  const real = REAL[organisation === "a.test" ? "at_remover" : "at_partner"][stage];
  const all = real.scope.rooms ?? [];
  const isLeft = (room: string) =>
    real.items.some(({ probe, subject }) => probe === "room_left" && subject === room);
  const rooms = [
    ...all.filter(isLeft).slice(0, ROOMS_MAX / 2),
    ...all.filter((one) => !isLeft(one)).slice(0, ROOMS_MAX / 2),
  ];
  const isAbout = ({ subject, verdict }: EvidenceItem) =>
    verdict !== "unknown" && (subject?.startsWith("!") !== true || rooms.includes(subject));
  const scope = real.scope.rooms === null ? real.scope : { ...real.scope, rooms: rooms.sort() };
  return { ...real, scope, items: real.items.filter(isAbout) };
}

/** The real evidence of a stage, about these organisations and at the time of this removal. */
export function itemsOf(
  organisation: string,
  other: string,
  stage: StageName,
  { item: change = (item) => item, items: choose = (items) => items }: Changes = {},
): readonly EvidenceItem[] {
  const { items, opened_at } = realStage(organisation, stage);
  const shift = Date.parse(minute(positionOf(stage) * 10)) - Date.parse(opened_at);
  const [own, theirs] =
    organisation === "a.test" ? [REAL.remover, REAL.partner] : [REAL.partner, REAL.remover];
  const named = new Map([
    [own, organisation],
    [theirs, other],
  ]);
  return choose(items, organisation, stage).map(({ digest: _, ...body }) =>
    sealed(
      change(
        {
          ...body,
          partner: other,
          subject: named.get(body.subject ?? "") ?? body.subject,
          at: new Date(Date.parse(body.at) + shift).toISOString(),
        },
        organisation,
        stage,
      ),
    ),
  );
}

/** The items made so far: those that a forgery leaves as they are, are not made again. */
const sealedItems = new Map<string, EvidenceItem>();

function sealed(body: EvidenceItemBody): EvidenceItem {
  const text = JSON.stringify(body);
  const item = sealedItems.get(text) ?? evidenceItem(body);
  sealedItems.set(text, item);
  return item;
}

/** What an organisation may truthfully state about a stage. */
export function stageInput(
  run: string,
  remover: string,
  partner: string,
  { organisation, stage }: { readonly organisation: string; readonly stage: StageName },
  items: readonly EvidenceItem[],
): Omit<StagePredicate, "previous"> {
  const from = positionOf(stage) * 10;
  const { revision, render, scope } = realStage(organisation, stage);
  return {
    schema: "svc.federation.offboarding_stage.v1",
    run,
    kind: "full",
    remover,
    partner,
    organisation,
    stage,
    position: positionOf(stage),
    ...{ revision, render, scope },
    evidence: [...new Set(items.map(({ digest }) => digest))].sort(),
    out_of_reach: [],
    attested:
      stage === "data_duties"
        ? [
            "backups_expire_by:2027-02-21",
            "retention:kept:2033-11-21",
            "check:federation",
            `${OWNER_WORD}change-owner-7`,
          ]
        : [],
    opened_at: minute(from),
    closed_at: minute(from + 5),
  };
}

/** What the owners add at the end. */
export function completionInput(run: string, first: Party, second: Party, purged: readonly string[]) {
  const [remover, partner] = [first.name, second.name];
  const both = [remover, partner];
  return {
    run,
    kind: "full",
    remover,
    partner,
    trigger: "contract_end",
    attestations: [first, second].map(({ name, signer }) => ({
      organisation: name,
      owner: "change-owner-7",
      key_id: signer.keyId,
      attested_at: minute(70),
    })),
    references: { change: "CHG-2026-118", rollback: "CHG-2026-118/rollback" },
    static_tests: both.map((organisation) => ({
      organisation,
      command: "check:federation",
      passed: true as const,
      at: minute(5),
    })),
    duties: {
      purge: { state: "done", evidence: [...purged], waiver: null },
      retention: { state: "kept", until: "2033-11-21" },
      backup_expiry: { state: "attested", by: "2027-02-21" },
      replicated_history: "not_retracted",
    },
    residual: {
      rooms: [{ room: "!room:a.test", events: 118 }],
      device_keys: null,
      tokens_live_until: minute(20),
      third_servers: [{ server: "w.test", rooms: 1 }],
    },
    out_of_reach: [],
    readmission: { possible: true, owner: "partner-manager", conditions: ["new_contract"] },
    completed_at: minute(80),
  } satisfies Omit<CompletionPredicate, "schema" | "revisions" | "stages" | "evidence">;
}

/** A record, and what was changed in it; without changes it is whole. */
export async function removalOf(remover: Party, partner: Party, changes: Changes = {}): Promise<Removal> {
  const run = changes.run ?? RUN;
  const evidence: EvidenceItem[] = [];
  const previous = new Map<string, StageStatement>();
  const stages: StageStatement[] = [];
  for (const slot of statementOrder(remover.name, partner.name)) {
    const other = slot.organisation === remover.name ? partner.name : remover.name;
    const items = itemsOf(slot.organisation, other, slot.stage, changes);
    evidence.push(...items);
    const before = previous.get(slot.organisation);
    const input = stageInput(run, remover.name, partner.name, slot, items);
    const plain = { ...input, previous: before === undefined ? null : statementDigest(before) };
    const predicate = changes.stage?.(plain) ?? plain;
    const statement = {
      _type: STATEMENT_TYPE,
      subject: subjectsOf(predicate),
      predicateType: STAGE_PREDICATE_TYPE,
      predicate,
    } as const;
    const stated = changes.stated?.(statement) ?? statement;
    previous.set(slot.organisation, stated);
    stages.push(stated);
  }
  const duties = stages.find(
    ({ predicate }) => predicate.stage === "data_duties" && predicate.organisation === remover.name,
  );
  const purged = evidence.filter((one) => isOfPurge(one) && duties?.predicate.evidence.includes(one.digest));
  const plain: CompletionPredicate = {
    schema: "svc.federation.offboarding_completion.v1",
    ...completionInput(run, remover, partner, [...new Set(purged.map(({ digest }) => digest))].sort()),
    revisions: revisionsOf(stages),
    stages: stages.map((stage) => ({
      organisation: stage.predicate.organisation,
      stage: stage.predicate.stage,
      statement: statementDigest(stage),
    })),
    evidence: [...evidenceOf(stages)].sort(),
  };
  const predicate = changes.completion?.(plain) ?? plain;
  const statement = {
    _type: STATEMENT_TYPE,
    subject: subjectsOf(predicate),
    predicateType: COMPLETION_PREDICATE_TYPE,
    predicate,
  } as const;
  const completion = changes.completed?.(statement) ?? statement;
  const file: RecordFile = {
    schema: "svc.federation.offboarding_record.v1",
    completion: await bySigners(completion, [remover, partner]),
    stages: await Promise.all(stages.map((stage) => bySigners(stage, [remover, partner]))),
    evidence: [...new Map(evidence.map((item) => [item.digest, item])).values()].sort((left, right) =>
      left.digest < right.digest ? -1 : 1,
    ),
  };
  const bytes = Buffer.from(fileText(changes.file?.(file) ?? file), "utf8");
  const trust = { parties: [remover.trusted, partner.trusted] };
  return { file, bytes, trust, stages, completion };
}

/** A statement as these organisations would sign it. */
export async function bySigners(
  statement: Statement<unknown>,
  [first, ...others]: readonly [Party, ...Party[]] | readonly Party[],
): Promise<DsseEnvelope> {
  if (first === undefined) throw new Error("somebody must sign");
  let envelope = await signStatement(statement, first.signer);
  for (const other of others) envelope = await addSignature(envelope, other.signer);
  return envelope;
}

/** An item whose digest is again that of its fields. */
export function resealed({ digest: _, ...body }: EvidenceItem): EvidenceItem {
  return { ...body, digest: sha256Tagged(canonicalize(body)) };
}
