// The publisher's side: an agent's card gets a new signing key.
// Invariants: the old private key is deleted before a card that the new one has signed is written; the public key in the
// registry, our own pins and the retired list change in one commit; a kill at any instant leads to the same end, with one new
// key and one commit; it is complete only when the old identity was observed to fail and the new one to verify; a private
// key is never shown, and is written to the key's file alone, and beside it on the way there, with mode 0600.
import { createPrivateKey, createPublicKey } from "node:crypto";
import { chmodSync, lstatSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import * as z from "zod";
import { CARD_BYTES_MAX } from "../../cards/reject-reasons.ts";
import { generateCardKey, importSigningKey, signCard } from "../../cards/sign.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { isObject, membersOf } from "../../domain/json.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { CardIdentity } from "../../rendered-files/agents-file.ts";
import { versionControlProblems } from "../../runtime/private-file-location.ts";
import { readInput } from "../../runtime/read-input.ts";
import { flushFolder, PRIVATE, PUBLIC, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import { type ChangeBase, changeBase } from "../change/change-base.ts";
import type { Proposal } from "../change/commit-change.ts";
import type { Federation } from "../reconcile/context.ts";
import { ORGANISATION_FILE } from "../registry/organisation.ts";
import type { Registry } from "../registry/partner.ts";
import { retiredKeyOf, thumbprintOf, withCardKeys } from "../registry/retired-identities.ts";
import type { StateFolder } from "../state/folder.ts";
import { ROTATE } from "../workflow/procedures.ts";
import { type AgentParts, cardItems, commitIdentity, isSignedBy, proveIdentity } from "./commit-and-prove.ts";
import { cardIdentityOf, guardRotation, refuse } from "./identity-rules.ts";

export interface RotateOptions {
  readonly agent: string;
  /** Where the agent reads its private key; the new one comes into its place. */
  readonly keyFile: string;
  readonly cardFile: string;
  readonly keyId: string;
  readonly newKeyFile?: string | undefined;
  readonly isLost: boolean;
  /** A card that the old key has signed, for when neither the key nor such a card is at hand. */
  readonly oldCard?: Uint8Array | undefined;
  /** Where the card is served; undefined: the card is not fetched, and the proof rests on the file. */
  readonly cardUrl: (registry: Registry, config: Federation["config"]) => string | undefined;
}

/** Rotates, or goes on with it. @throws DrawbridgeError `usage`, `guard_refused`, `card_rejected`, `head_refused` */
export async function rotateAgent(context: Federation, parts: AgentParts, options: RotateOptions) {
  const { state, clock, onWait } = context;
  const { agent, keyId, keyFile } = options;
  for (const file of [keyFile, options.cardFile]) {
    if (lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() !== true) continue;
    const hint = "Name the file that it leads to: what lies there is given up, or signed anew.";
    throw new DrawbridgeError("usage", `${file} is a link; nothing was changed`, { hint });
  }
  const work = async () => {
    const last = state.read(Rotation, fileOf(agent));
    // The same command again proves the same again; another key is another rotation.
    const isOver = last === undefined || (last.step === "proved" && last.fresh.keyId !== keyId);
    let rotation = isOver ? await stage(context, options) : last;
    if (rotation.fresh.keyId !== keyId || rotation.key_file !== keyFile) {
      throw new DrawbridgeError("usage", `a rotation of ${agent} to ${rotation.fresh.keyId} is open`, {
        hint: "Finish it first: run the command that began it again. Nothing was changed.",
      });
    }
    // The rotation was cut off before the new key was staged: nothing was deleted yet, so it begins again.
    if (!isAt(rotation, "staged")) rotation = await stage(context, options, rotation);
    await requireOldCard(options, rotation.old);
    if (!isAt(rotation, "cleared")) {
      // A state folder that was put back does not say that the new key has come into its place already.
      const present = await readPrivateKey(keyFile).catch(() => undefined);
      const isOld = rotation.old.some(({ jwk }) => present && thumbprintOf(jwk) === thumbprintOf(present));
      if (isOld) rmSync(keyFile, { force: true });
      flushFolder(dirname(keyFile));
      rotation = writeRotation(state, { ...rotation, step: "cleared" });
    }
    if (!isAt(rotation, "signed")) rotation = await signAnew(context, rotation);
    return publish(context, parts, options, rotation);
  };
  return state.locked(`rotate ${agent}`, clock, work, onWait);
}

/** Guards, and the new key beside the old one; `cut`: an attempt that was cut off while it did this. */
async function stage(context: Federation, options: RotateOptions, cut?: Rotation): Promise<Rotation> {
  const { agent, keyFile, cardFile, keyId, newKeyFile } = options;
  const { registry } = await changeBase(context);
  const { agents } = registry.organisation;
  const offered = Object.hasOwn(agents, agent) ? agents[agent] : undefined;
  if (offered === undefined) {
    throw new DrawbridgeError("usage", `this organisation offers no agent ${JSON.stringify(agent)}`, {
      hint: `Name one of ${Object.keys(agents).join(", ") || "those in registry/organisation.yaml"}.`,
    });
  }
  const present = await readPrivateKey(keyFile);
  // Null for anything but a key that lies there.
  const lying = await readPrivateKey(stagedKey(keyFile)).catch(() => null);
  const staged = lying && thumbprintOf(lying);
  const isOurs = cut !== undefined && staged === thumbprintOf(cut.fresh.jwk);
  const key = await newKey(keyId, isOurs ? stagedKey(keyFile) : newKeyFile);
  const fresh = cardIdentityOf({ keyId, jwk: key });
  const tracked = [keyFile, newKeyFile ?? keyFile].find((file) => versionControlProblems(file).length > 0);
  if (tracked !== undefined)
    throw refuse("in_version_control", `${tracked} lies in a work tree or a repository`);
  guardRotation(registry, options, present, fresh);
  if (staged !== undefined && staged !== thumbprintOf(fresh.jwk))
    throw refuse("staged_key", `${stagedKey(keyFile)} is there already, and is another key`);
  const card = cardAt(cardFile);
  const old = offered.cardKeys.filter(
    ({ jwk }) => present === undefined || thumbprintOf(jwk) === thumbprintOf(present),
  );
  await requireOldCard(options, old);
  const oldCards: Buffer[] = [];
  for (const pin of old) if (await isSignedBy(card, pin)) oldCards.push(card);
  if (present !== undefined) {
    // What a thief of the old key could make: a card in the new key's name.
    oldCards.push(await sign(card, present, keyId, cardFile));
  }
  const rotation: Rotation = {
    ...{ version: 1, agent, step: "begun", fresh, old, key_file: keyFile, card_file: cardFile },
    old_cards: oldCards.map((bytes) => bytes.toString("base64")),
  };
  // Whether the card can be signed, and the change be committed, is known before anything is given up.
  await sign(card, key, keyId, cardFile);
  const propose = (base: ChangeBase) => proposeRotation(base, rotation);
  await commitIdentity(context, { reason: "drawbridge: rotate", propose, isRehearsal: true });
  // Written before the key is put there, so that what a kill leaves there is known by its public half.
  writeRotation(context.state, rotation);
  writeWhole(stagedKey(keyFile), key.text, PRIVATE);
  return writeRotation(context.state, { ...rotation, step: "staged" });
}

/** @throws DrawbridgeError `usage` for a card that shows nothing, because none of these keys has signed it */
async function requireOldCard({ oldCard }: RotateOptions, old: Rotation["old"]): Promise<void> {
  if (oldCard === undefined) return;
  for (const pin of old) if (await isSignedBy(oldCard, pin)) return;
  const names = old.map(({ keyId }) => keyId).join(", ");
  throw new DrawbridgeError("usage", `the card of --old-card is not signed by the old key (${names})`, {
    hint: "Name a card that this key has signed, or leave the option out. Nothing was changed.",
  });
}

type PrivateKeyFile = NonNullable<Awaited<ReturnType<typeof readPrivateKey>>>;

/** Undefined when there is no such file. @throws DrawbridgeError `secret_unavailable` when it is no ES256 key */
export async function readPrivateKey(file: string) {
  const text = readIfPresent(file);
  if (text === undefined) return undefined;
  await importSigningKey(text);
  const isPem = text.trimStart().startsWith("-----BEGIN");
  const key = isPem ? createPrivateKey(text) : createPrivateKey({ key: JSON.parse(text), format: "jwk" });
  const { x = "", y = "" } = createPublicKey(key).export({ format: "jwk" });
  chmodSync(file, PRIVATE);
  return { text, x, y };
}

async function newKey(keyId: string, file: string | undefined): Promise<PrivateKeyFile> {
  if (file !== undefined) {
    const given = await readPrivateKey(file);
    if (given !== undefined) return given;
    const hint = "Name the new private key's file, or leave it out to have one made.";
    throw new DrawbridgeError("secret_unavailable", `cannot read ${file}`, { hint });
  }
  const { privateJwk, publicJwk } = await generateCardKey(keyId);
  return { text: privateJwk, x: publicJwk.x, y: publicJwk.y };
}

async function signAnew({ state }: Federation, rotation: Rotation): Promise<Rotation> {
  const { key_file: keyFile, card_file: cardFile, fresh } = rotation;
  if (readIfPresent(stagedKey(keyFile)) !== undefined) {
    renameSync(stagedKey(keyFile), keyFile);
    flushFolder(dirname(keyFile));
  }
  const key = await readPrivateKey(keyFile);
  if (key === undefined || thumbprintOf(key) !== thumbprintOf(fresh.jwk)) {
    throw new DrawbridgeError("secret_unavailable", `${keyFile} is not the key that this rotation has made`, {
      hint: "Put the new private key back; if it is lost, remove the rotation's file in the state folder and rotate again with --lost.",
    });
  }
  writeWhole(cardFile, await sign(cardAt(cardFile), key, fresh.keyId, cardFile), PUBLIC);
  return writeRotation(state, { ...rotation, step: "signed" });
}

function proposeRotation(base: ChangeBase, { agent, fresh, old }: Rotation): Proposal | undefined {
  const { organisation } = base.registry;
  const cardKeys = organisation.agents[agent]?.cardKeys ?? [];
  const gone = new Set(old.map(({ jwk }) => thumbprintOf(jwk)));
  const isGone = ({ jwk }: CardIdentity) => gone.has(thumbprintOf(jwk));
  const isPublished = cardKeys.some(({ jwk }) => thumbprintOf(jwk) === thumbprintOf(fresh.jwk));
  if (isPublished && !cardKeys.some(isGone)) return undefined;
  const own = Object.entries(organisation.consumes).filter(([, { cardIdentity: pin }]) => pin && isGone(pin));
  const kept = cardKeys.filter((key) => !isGone(key) && key.keyId !== fresh.keyId);
  const retired = withCardKeys(organisation.retired.cardKeys, old.map(retiredKeyOf));
  const edits = [
    { path: ["agents", agent, "cardKeys"], value: [...kept, fresh] },
    ...own.map(([name]) => ({ path: ["consumes", name, "cardIdentity"], value: fresh })),
    { path: ["retired", "cardKeys"], value: retired },
  ];
  const names = old.map(({ keyId }) => keyId).join(", ");
  const message = `Rotate the card key of ${agent}\n\n${fresh.keyId} replaces ${names}. Planes 1 to 3 are untouched.\n`;
  return { file: ORGANISATION_FILE, edits, message };
}

async function publish(context: Federation, parts: AgentParts, options: RotateOptions, rotation: Rotation) {
  const { agent, fresh, old } = rotation;
  const propose = (base: ChangeBase) => proposeRotation(base, rotation);
  const committed = await commitIdentity(context, { reason: "drawbridge: rotate", propose });
  const { registry } = committed.base;
  const { serverName } = registry.organisation;
  const url = options.cardUrl(registry, context.config);
  const own = () => ({ fetched: true, bytes: cardAt(rotation.card_file) }) as const;
  const oldCards: Uint8Array[] = rotation.old_cards.map((card) => Buffer.from(card, "base64"));
  if (options.oldCard !== undefined) oldCards.push(options.oldCard);
  const proved = await proveIdentity(context, committed, {
    ...{ act: "rotate", agent, partner: serverName, procedure: ROTATE, parts: ["homeserver"] },
    ...{ keyId: fresh.keyId, oldKeyId: old[0]?.keyId ?? null },
    observe: async (seal) => {
      const served = url === undefined ? own() : await parts.fetch(url);
      return cardItems({ seal, old: old[0], fresh, oldCards, served });
    },
  });
  if (proved.complete) writeRotation(context.state, { ...rotation, step: "proved" });
  return proved;
}

const stagedKey = (keyFile: string): string => `${keyFile}.next`;

const cardAt = (file: string): Buffer =>
  readInput(file, "Name the agent's card, as a JSON file; nothing was changed.");

/** The card with this key's signature alone. @param file where it is read, for a message */
async function sign(card: Uint8Array, key: PrivateKeyFile, keyId: string, file: string): Promise<Buffer> {
  const value = strictJsonIn(card, CARD_BYTES_MAX);
  const { signatures: _old, ...members } = membersOf(value);
  const unsigned = isObject(value) ? Buffer.from(JSON.stringify(members)) : card;
  const signed = await signCard(unsigned, { key: await importSigningKey(key.text), keyId });
  if (signed.signed) return signed.bytes;
  const places = signed.problems.map(({ reason, at }) => `${file}: ${at || "/"}: ${reason}`);
  const hint = "Correct the card; drawbridge card lint lists everything. Nothing was changed.";
  throw new DrawbridgeError("card_rejected", `not an A2A 1.0 card\n${places.join("\n")}`, { hint });
}

const STEPS = ["begun", "staged", "cleared", "signed", "proved"] as const;

/** What is remembered of a rotation until it is proved; only public keys, cards and digests. */
const Rotation = z.strictObject({
  ...{ version: z.literal(1), agent: z.string() },
  /** `begun`: which key is the new one; `staged`: it lies beside the old one; `cleared`: the old one is gone; … */
  step: z.enum(STEPS),
  ...{ fresh: CardIdentity, old: z.array(CardIdentity).min(1) },
  /** Cards signed by an old key, which must fail from now on; base64. */
  old_cards: z.array(z.string()),
  ...{ key_file: z.string(), card_file: z.string() },
});
export type Rotation = z.output<typeof Rotation>;
const fileOf = (agent: string) => `agents/rotate-${agent}.json`;

export function writeRotation(state: StateFolder, rotation: Rotation): Rotation {
  state.write(fileOf(rotation.agent), rotation);
  return rotation;
}

const isAt = ({ step }: Rotation, other: Rotation["step"]) => STEPS.indexOf(step) >= STEPS.indexOf(other);
