// One re-admission: its records on the branch say that it was opened and completed; a folder below the state folder, how
// far this machine is. Opening retires what was pinned, and records the approval, in one commit that opens no plane.
// Invariants: only a partner whose planes are all closed is re-admitted, and once at a time; a plane is proved once, after
// those before it; no plane is opened while a removal runs, and one that was begun since ends it; secrets are references.

import { isDeepStrictEqual } from "node:util";
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { AgentName, Sha256Digest } from "../../domain/identifier-fields.ts";
import { type Json, jsonText } from "../../domain/json.ts";
import { shellWord } from "../../domain/printable.ts";
import { GitRevision, Identifier, Instant } from "../../records/format/fields.ts";
import { CardIdentity } from "../../rendered-files/agents-file.ts";
import { DeclaredClientId } from "../../rendered-files/issuer-clients.ts";
import type { YamlEdit } from "../../runtime/edit-yaml.ts";
import { RegistrySecretReference } from "../../runtime/secrets.ts";
import { refuse, refuseRetired } from "../agents/identity-rules.ts";
import { changeBase } from "../change/change-base.ts";
import { commitChange } from "../change/commit-change.ts";
import { brokenByText } from "../offboarding/private-record/content-rules.ts";
import { openRunWith } from "../offboarding/run/run-file.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import {
  READMISSIONS,
  type ReadmissionRecord,
  RoomsChoice,
  readmissionRecordPath,
  readmissionRecordsIn,
} from "../registry/committed-records.ts";
import { findPartner, isRemoved, type PartnerEntry, type Registry, retireAll } from "../registry/partner.ts";
import { ServerKeyId } from "../registry/retired-identities.ts";
import { retiredIn } from "../registry/retired-identities-checks.ts";
import type { Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";
import { type PlaneStep, READMISSION } from "../workflow/procedures.ts";

const Stage = z.strictObject({
  revision: GitRevision,
  proved_at: Instant.nullable(),
  evidence: z.array(Sha256Digest),
  not_applicable: z.array(Identifier).default([]),
});
type Stage = z.output<typeof Stage>;

const TouchedRoom = z.strictObject({
  room: Identifier,
  /** `kept`: closed, and still there; `replaced`, `gone`: it does not come back. */
  state: z.enum(["kept", "replaced", "gone"]),
  replacement: Identifier.nullable(),
  /** Whether the partner's server has learned of its users' bans, without which they can never join again. */
  repairable: z.enum(["yes", "no", "unknown"]),
});
export type TouchedRoom = z.output<typeof TouchedRoom>;

export const Progress = z.strictObject({
  version: z.literal(1),
  rooms: RoomsChoice.nullable(),
  /** Rooms that the partner was closed out of, as they were found before step 2; null before. */
  touched: z.array(TouchedRoom).nullable(),
  /** A plane that is absent was not opened yet. */
  stages: z.partialRecord(z.enum(PLANE_NAMES), Stage),
});

export type Readmission = Readonly<ReturnType<typeof readmissionOf>>;

function readmissionOf(
  opened: ReadmissionRecord,
  completedAt: string | null,
  progress: z.output<typeof Progress> = { version: 1, rooms: null, touched: null, stages: {} },
) {
  const { rooms, touched, stages } = progress;
  const { readmission: id, server_name: partner, timestamp: openedAt } = opened;
  return { opened, id, partner, openedAt, rooms, touched, stages, completedAt, done: completedAt !== null };
}

const FOLDER = "readmission";
export const readmissionFile = (id: string, name = "progress.json"): string => `${FOLDER}/${id}/${name}`;

export function saveReadmission(state: StateFolder, readmission: Readmission): Readmission {
  const { id, rooms, touched, stages } = readmission;
  state.write(readmissionFile(id), { version: 1, rooms, touched, stages });
  return readmission;
}

export const saveStage = (state: StateFolder, readmission: Readmission, plane: PlaneName, stage: Stage) =>
  saveReadmission(state, { ...readmission, stages: { ...readmission.stages, [plane]: stage } });

type Who = Pick<PartnerEntry["partner"], "serverName" | "azp">;

/** The one that was opened with the partner's client, which none reuses; else the last by its time: a clock may be set back. */
async function lastReadmission(context: Federation, revision: Revision, { serverName, azp }: Who) {
  const { repository, state } = context;
  const theirs = readmissionRecordsIn((await repository.read(revision, [READMISSIONS])).values())
    .filter(({ server_name }) => server_name === serverName)
    .sort((left, right) => (left.timestamp < right.timestamp ? -1 : 1));
  const all = theirs.filter(({ act }) => act === "opened");
  const opened = all.findLast((one) => one.azp === azp) ?? all.at(-1);
  if (opened === undefined) return undefined;
  const { readmission: id } = opened;
  const completed = theirs.find(({ act, readmission }) => act === "completed" && readmission === id);
  return readmissionOf(opened, completed?.timestamp ?? null, state.read(Progress, readmissionFile(id)));
}

/** @throws DrawbridgeError `usage` when none was opened */
export async function requireReadmission(context: Federation, revision: Revision, partner: Who) {
  const found = await lastReadmission(context, revision, partner);
  if (found !== undefined) return found;
  const hint = "Open one: drawbridge readmission open PARTNER --approval REFERENCE --new-identities FILE.";
  throw new DrawbridgeError("usage", `no re-admission of ${partner.serverName} was opened`, { hint });
}

/** The step of the first plane that is not proved to be open yet; undefined after the last, and once the end is recorded. */
export const currentStep = ({ stages, done }: Readmission): PlaneStep | undefined =>
  done ? undefined : READMISSION.steps.find(({ plane }) => stages[plane]?.proved_at == null);

/** @param kept as `refuse` takes it. @throws DrawbridgeError `guard_refused` while a removal of the partner has not ended */
export function refuseWhileRemoving(
  state: StateFolder,
  { name, partner }: PartnerEntry,
  kept?: string,
): void {
  const run = openRunWith(state, partner.serverName);
  if (run !== undefined)
    throw refuse("removal_open", `the removal ${run.run} of ${name} has not ended`, kept);
}

/** Whether a removal has closed every plane since: it retires the client. Times do not say it, because a clock may be set back. */
export const isOvertaken = ({ opened }: Readmission, { partner }: PartnerEntry): boolean =>
  partner.retired.clients.includes(opened.azp);

type Opening = Readonly<{ partner: string; approval: string; identities: NewIdentities }>;

/** `isNew`: whether this call opened it. @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function openReadmission(context: Federation, options: Opening) {
  const { state, clock, onWait } = context;
  if (!Identifier.safeParse(options.approval).success) {
    const hint = "Name where the approval is filed, such as CHG-2041: visible characters, at most 512.";
    throw new DrawbridgeError("usage", "the approval is no reference", { hint });
  }
  const [broken] = brokenByText(options.approval);
  if (broken !== undefined)
    throw new DrawbridgeError("usage", `--approval ${broken.message}`, { hint: broken.hint });
  const work = async () => {
    const { registry, head } = await changeBase(context);
    const entry = findPartner(registry, options.partner);
    const last = await lastReadmission(context, head, entry.partner);
    // One that has proved a plane is over once all planes are closed again; so is one that a later removal has ended.
    const hasBegun = last !== undefined && currentStep(last) !== READMISSION.steps[0];
    const isOver = last === undefined || (hasBegun && isRemoved(entry.partner)) || isOvertaken(last, entry);
    if (isOver) return commitOpening(context, options);
    const isApproved = last.opened.approval === options.approval;
    const isPinned = last.opened.new_identities === newIdentitiesDigest(options.identities);
    if (isApproved && isPinned) return { readmission: last, isNew: false };
    if (!isApproved && last.done) return commitOpening(context, options);
    const next = `drawbridge readmission next ${shellWord(options.partner)}`;
    const what = isApproved
      ? `the re-admission of ${last.partner} was opened with other identities`
      : `a re-admission of ${last.partner} is open, with another approval`;
    const pin = last.done
      ? "Pin another key with drawbridge agent pin."
      : `Go on with what was pinned (${next}), and change a pin with drawbridge agent pin.`;
    const hint = isApproved ? pin : `Go on with it: ${next}.`;
    throw new DrawbridgeError("usage", what, { hint: `${hint} Nothing was changed.` });
  };
  return state.locked("readmission", clock, work, onWait);
}

async function commitOpening(context: Federation, { partner: named, approval, identities }: Opening) {
  const id = context.random.bytes(16).toString("hex");
  const at = timestamp(context.clock.now());
  let record: ReadmissionRecord | undefined;
  await commitChange(context, {
    reason: "drawbridge: readmission",
    propose: (base) => {
      const entry = findPartner(base.registry, named);
      const { serverName, planes } = entry.partner;
      const open = PLANE_NAMES.filter((plane) => planes[plane] === "open");
      if (open.length > 0) {
        const are = `${open.join(", ")} ${open.length === 1 ? "is" : "are"}`;
        throw refuse("not_removed", `${entry.name} is not removed: ${are} declared open`);
      }
      refuseWhileRemoving(context.state, entry);
      const { cardKeys, clients, serverKeys } = retireAll(base.registry, entry.partner);
      const keyIds = retiredIn(base.registry, entry.file, cardKeys).map(({ keyId }) => keyId);
      record = {
        ...{ schema: "svc.federation.readmission.v1", act: "opened", readmission: id },
        ...{ server_name: serverName, azp: identities.azp, approval },
        ...{ new_identities: newIdentitiesDigest(identities), git_revision: base.head, timestamp: at },
        ...{ rooms: null, rooms_replaced: 0, planes: [] },
        retired: { card_keys: keyIds, clients, server_keys: serverKeys },
      };
      const records = new Map([[readmissionRecordPath(record), jsonText(record)]]);
      const message = `Open the re-admission of ${serverName}\n\nEverything pinned before is retired; no plane is opened.\n\nReadmission: ${id}\n`;
      const edits = newIdentityEdits(base.registry, entry, identities);
      return { file: entry.file, edits, message, records };
    },
  });
  if (record === undefined) throw new DrawbridgeError("internal", "a re-admission was not committed");
  return { readmission: readmissionOf(record, null), isNew: true };
}

/** Published as docs/reference/schemas/readmission-identities.schema.json. */
export const NewIdentities = z.strictObject({
  version: z.literal(1),
  azp: DeclaredClientId,
  /** Of that client; needed where the partner may invoke agents here. */
  clientSecret: RegistrySecretReference.optional(),
  serverKeys: z.array(ServerKeyId).default([]),
  /** The partner's agents that our bridge carries, by their name here. One that is left out stays without a pin. */
  agents: z
    .record(
      AgentName,
      z.strictObject({
        cardIdentity: CardIdentity,
        clientId: z.string().min(1).max(255).optional(),
        clientSecret: RegistrySecretReference.optional(),
      }),
    )
    .default({}),
});
export type NewIdentities = z.output<typeof NewIdentities>;

const newIdentitiesDigest = (identities: NewIdentities): string =>
  sha256Tagged(canonicalize(plain(identities) as Json));

/** Retires all that a partner's file pins, and puts the new identities in. @throws DrawbridgeError `guard_refused` */
function newIdentityEdits(registry: Registry, entry: PartnerEntry, identities: NewIdentities) {
  const { partner } = entry;
  const retired = retireAll(registry, partner);
  if (retired.clients.includes(identities.azp))
    throw refuse("retired_client", `${identities.azp} was this partner's client before its removal`);
  if (partner.gateway !== undefined && identities.clientSecret === undefined)
    throw refuse("fresh_secret", `${entry.name} may invoke agents here, and its new client names no secret`);
  if (isSameSecret(partner.gateway?.clientSecret, identities.clientSecret))
    throw refuse("fresh_secret", `the new client of ${entry.name} names the secret of the one before`);
  for (const id of identities.serverKeys) {
    if (retired.serverKeys.includes(id))
      throw refuse("retired_key", `${id} was this partner's server key before its removal`);
  }
  const cardKeys = retiredIn(registry, entry.file, retired.cardKeys);
  const retiring = { path: ["retired"], value: plain({ ...retired, cardKeys }) };
  const edits: YamlEdit[] = [retiring, { path: ["azp"], value: identities.azp }];
  if (partner.contained) edits.push({ path: ["contained"], value: false });
  const { server, card } = partner.keyIds;
  if (server.length > 0 || identities.serverKeys.length > 0) {
    edits.push({ path: ["keyIds", "server"], value: identities.serverKeys });
  }
  const signers = Object.values(identities.agents).map(({ cardIdentity }) => cardIdentity.keyId);
  if (card.length > 0) edits.push({ path: ["keyIds", "card"], value: [...new Set(signers)] });
  if (partner.gateway !== undefined) {
    edits.push({ path: ["gateway", "clientSecret"], value: identities.clientSecret });
  }
  for (const [agent, entryOfAgent] of Object.entries(partner.card.consumes)) {
    const path = ["card", "consumes", agent];
    const given = Object.hasOwn(identities.agents, agent) ? identities.agents[agent] : undefined;
    if (given === undefined) {
      edits.push({ path: [...path, "cardIdentity"], value: undefined });
      continue;
    }
    refuseRetired(registry, given.cardIdentity, retired.cardKeys);
    edits.push({ path: [...path, "cardIdentity"], value: plain(given.cardIdentity) });
    if (entryOfAgent.credentials === undefined) continue;
    const { clientId, clientSecret } = given;
    const before = entryOfAgent.credentials.clientSecret;
    if (clientId !== undefined && isSameSecret(before, clientSecret ?? before))
      throw refuse("fresh_secret", `our new client for ${agent} names the secret of the one before`);
    const at = [...path, "credentials"];
    if (clientId !== undefined) edits.push({ path: [...at, "clientId"], value: clientId });
    if (clientSecret !== undefined) edits.push({ path: [...at, "clientSecret"], value: clientSecret });
  }
  const { consumes } = partner.card;
  const unknown = Object.keys(identities.agents).find((agent) => !Object.hasOwn(consumes, agent));
  if (unknown !== undefined) throw refuse("unknown_agent", `${entry.name} consumes no agent ${unknown}`);
  return edits;
}

type Secret = RegistrySecretReference | undefined;

/** A reference has one form: no path of one names another's file in other words. */
const isSameSecret = (before: Secret, now: Secret) => before !== undefined && isDeepStrictEqual(before, now);

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
