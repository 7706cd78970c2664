// Gives each ghost the icon of its agent's verified card as its avatar. Invariants: it is requested under the rules of every
// request to the agent's side, with no token, and bounded; it is an image of a kind that no browser runs, by its bytes; it is
// uploaded once, and again only when a changed card brings other bytes, once in an hour at most; nothing else waits for it.
import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import type { AgentCard } from "../../cards/card-fields.ts";
import { type FetchFailure, fetchIcon } from "../../cards/fetch.ts";
import { canonicalize } from "../../domain/canonical-json.ts";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { Json } from "../../domain/json.ts";
import { mayBePrivate, mayRequest } from "../../rendered-files/agents-file.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { allEnded } from "../../runtime/concurrency.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory, AgentTarget } from "../agents/loaded-agents.ts";
import type { CardTrustGate } from "../agents/trust.ts";
import type { GhostAvatar } from "../ledger/ghosts.ts";
import type { GhostLedger } from "../ledger/ledger.ts";
import { verifiedType } from "./files.ts";
import { CARD_CHANGE_INTERVAL_MS, type Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";

export interface AvatarDependencies {
  readonly agents: Pick<AgentDirectory, "current">;
  readonly cards: Pick<CardTrustGate, "verifiedCard">;
  readonly ledger: { readonly ghosts: Pick<GhostLedger, "avatar" | "recordAvatar" | "recordAvatarUpload"> };
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  /** Without it nothing is fetched, and the avatars that were set before are taken away. */
  readonly isOn: boolean;
  readonly isTurn: () => boolean;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onError: () => void;
}

const POLL_MS = 5_000;
const CONCURRENCY = 4;
const BACKOFF = { firstMs: 60_000, maxMs: 6 * 3_600_000 };
/** An icon within the card itself (RFC 2397). */
const DATA_URL = /^data:image\/(?:png|jpeg|webp|gif);base64,([A-Za-z0-9+/]+={0,2})$/;

type Why = FetchFailure | "address_refused" | "not_an_image" | "homeserver";

/** What was last done about a ghost, and when it is tried again after a failure. */
interface Tried {
  readonly card: AgentCard;
  readonly failures: number;
  readonly dueAt: number;
}

type Icon = { readonly bytes: Uint8Array; readonly mediaType: string } | { readonly why: Why };

export function createAvatars(deps: AvatarDependencies) {
  const { agents, cards, ledger, homeserver, ghosts, isOn, isTurn, clock, log, onError } = deps;
  const tried = new Map<GhostMxid, Tried>();

  async function round(signal?: AbortSignal): Promise<void> {
    const { byGhost } = await agents.current();
    const due: (readonly [AgentTarget, AgentCard])[] = [];
    for (const target of byGhost.values()) {
      const card = cards.verifiedCard(target);
      const last = tried.get(target.ghost);
      if (card !== undefined && (last?.card !== card || clock.now() >= last.dueAt)) due.push([target, card]);
    }
    while (due.length > 0 && signal?.aborted !== true) {
      await allEnded(due.splice(0, CONCURRENCY).map(([target, card]) => attempt(target, card, signal)));
    }
  }

  async function attempt(target: AgentTarget, card: AgentCard, signal?: AbortSignal): Promise<void> {
    const before = tried.get(target.ghost);
    const isSameCard = before !== undefined && isDeepStrictEqual(before.card, card);
    // A card is verified anew every few minutes; what failed is not tried more often for that.
    if (isSameCard && before.failures > 0 && clock.now() < before.dueAt) {
      tried.set(target.ghost, { ...before, card });
      return;
    }
    const why = await bringUpToDate(target, card, signal);
    if (why === undefined || signal?.aborted === true) {
      tried.set(target.ghost, { card, failures: 0, dueAt: Number.POSITIVE_INFINITY });
      return;
    }
    const failures = isSameCard ? before.failures : 0;
    const dueAt = clock.now() + backoffMs(BACKOFF, failures);
    tried.set(target.ghost, { card, failures: failures + 1, dueAt });
    log.warn({ event: "agent_icon_not_set", agent: target.agentId, why });
  }

  async function bringUpToDate(target: AgentTarget, card: AgentCard, signal?: AbortSignal) {
    const { ghost } = target;
    const recorded = await ledger.ghosts.avatar(ghost);
    const iconUrl = isOn ? card.iconUrl : undefined;
    // Of all that the card says: an icon may change behind an address that stays.
    const cardDigest =
      iconUrl === undefined ? undefined : sha256Tagged(canonicalize(card as unknown as Json));
    if (recorded?.cardDigest === cardDigest) return undefined;
    let made: GhostAvatar = { cardDigest, contentDigest: undefined };
    let avatar = "";
    if (iconUrl !== undefined) {
      const icon = await iconOf(target, iconUrl, signal);
      if ("why" in icon) return icon.why;
      const contentDigest = sha256Tagged(icon.bytes);
      made = { cardDigest, contentDigest };
      if (recorded?.uploadUrl !== undefined && recorded.uploadDigest === contentDigest) {
        avatar = recorded.uploadUrl;
      } else if (contentDigest !== recorded?.contentDigest) {
        const { uploadedAt = Number.NEGATIVE_INFINITY } = recorded ?? {};
        // The icon is compared again when the card is verified the next time.
        if (clock.now() < uploadedAt + CARD_CHANGE_INTERVAL_MS) return undefined;
        const upload = (actor: GhostActor) => homeserver.upload(actor, icon.bytes, icon.mediaType);
        const uploaded = await ghosts.acting(ghost, upload, signal);
        if (uploaded.kind !== "ok") return "homeserver";
        avatar = uploaded.value;
        await ledger.ghosts.recordAvatarUpload(ghost, contentDigest, avatar, clock.now());
      }
    }
    if (avatar !== "" || iconUrl === undefined) {
      const set = await ghosts.acting(ghost, (actor) => homeserver.setAvatar(actor, avatar), signal);
      if (set.kind !== "ok") return "homeserver";
    }
    await ledger.ghosts.recordAvatar(ghost, made);
    return undefined;
  }

  async function iconOf({ entry }: AgentTarget, url: string, signal: AbortSignal | undefined): Promise<Icon> {
    const inCard = DATA_URL.exec(url)?.[1];
    if (inCard !== undefined) return asIcon(Buffer.from(inCard, "base64"));
    if (!mayRequest(entry, url)) return { why: "address_refused" };
    const options = { clock, mayBePrivate: mayBePrivate(entry, url) };
    const fetched = await fetchIcon(url, { ...options, ...(signal !== undefined && { signal }) });
    return fetched.fetched ? asIcon(fetched.bytes) : { why: fetched.failure };
  }

  const loop = new WorkLoop({
    clock,
    round: async (signal) => isTurn() && (await round(signal)),
    onError,
    pollIntervalMs: POLL_MS,
  });
  return { loop, round };
}

function asIcon(bytes: Uint8Array): Icon {
  const mediaType = verifiedType({ mediaType: "", content: bytes });
  return mediaType.startsWith("image/") ? { bytes, mediaType } : { why: "not_an_image" };
}
