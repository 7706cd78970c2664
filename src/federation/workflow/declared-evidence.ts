// Evidence that this organisation states itself: what is declared, rendered and reached.
// Invariant: each item rests on a revision or a digest, and names it.
import type { Clock } from "../../domain/clock.ts";
import { undefinedFor } from "../../domain/errors.ts";
import type { Direction } from "../../records/conditions/condition.ts";
import { conditionsOf } from "../../records/conditions/condition-table.ts";
import { PART_MANAGED } from "../../records/conditions/evaluate.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  isOwnRoom,
  operatorItem,
} from "../../records/format/evidence-item.ts";
import type { Scope } from "../../records/format/fields.ts";
import { InvocationFile } from "../../rendered-files/gateway-files.ts";
import { ClientsFile } from "../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import type { RenderedFiles } from "../planes/plane.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { applicantsOf, type Partner } from "../registry/partner.ts";
import type { Applied } from "../state/plane-records.ts";

export const RECONCILED = "reconciled";

const NAMES_MAX = 200;

type Body = Pick<EvidenceItemBody, "probe" | "verdict" | "layer"> & Partial<EvidenceItemBody>;
export type Seal = (finding: Body) => EvidenceItem;

export class DeclaredEvidence {
  readonly #partner: string;
  readonly #plane: PlaneName;
  readonly #clock: Clock;

  constructor(partner: string, plane: PlaneName, clock: Clock) {
    this.#partner = partner;
    this.#plane = plane;
    this.#clock = clock;
  }

  item(body: Body): EvidenceItem {
    return operatorItem(this.#clock.now(), { plane: this.#plane, partner: this.#partner, ...body });
  }

  /** @param declared how the plane, or what was changed of it, is to be */
  reconciled(
    applied: Applied | null,
    declared: Direction,
    { revision, planes }: DesiredState,
  ): readonly EvidenceItem[] {
    const { digest } = planes[this.#plane];
    const isReached = applied?.outcome === "in_force" && applied.digest === digest;
    const left = (applied?.outOfReach ?? []).filter(({ partner }) => partner === this.#partner);
    const names = [...new Set(left.map(({ subject }) => subjectWord(subject)))];
    return Array.from({ length: Math.max(1, Math.ceil(names.length / NAMES_MAX)) }, (_, part) =>
      this.item({
        probe: RECONCILED,
        layer: "reconciler",
        verdict: isReached ? declared : "unknown",
        reason: isReached ? "in_force" : (applied?.outcome ?? "never_applied"),
        references: [revision, digest, ...names.slice(part * NAMES_MAX, (part + 1) * NAMES_MAX)],
      }),
    );
  }

  /** What the rendered files say of the partner's clients, those included with which it had applied. */
  gateway(partner: Partner, { applicants }: Scope, desired: DesiredState): readonly EvidenceItem[] {
    const { registry, revision, planes } = desired;
    const named = renderedClients(planes.gateway.files);
    const declared = applicantsOf(registry, partner).map(({ clientId }) => clientId);
    return [...new Set([partner.azp, ...declared, ...applicants])].map((subject) => {
      const isNamed = named?.has(subject) ?? true;
      const verdict = isNamed ? "open" : "closed";
      const reason = isNamed ? "azp_rendered" : "azp_not_rendered";
      const references = [revision, planes.gateway.digest];
      return this.item({ probe: "render", layer: "registry", subject, verdict, reason, references });
    });
  }

  /** What there is nothing of, in any of the partner's `entries`, and the parts that are not managed here. */
  absences(
    direction: Direction,
    { parts, agents, pins, rooms }: Scope,
    revision: string,
    entries: readonly Pick<Partner, "gateway" | "card">[],
  ): readonly EvidenceItem[] {
    const plane = this.#plane;
    const nothing = (probe: string, reason: string, layer = "registry") =>
      this.item({ probe, layer, verdict: "closed", reason, references: [revision] });
    const needed = new Set(conditionsOf(plane, direction).flatMap((condition) => condition.parts));
    const unmanaged = [...needed].filter((part) => !parts.includes(part));
    const about = { probe: PART_MANAGED, layer: "configuration", reason: "unmanaged" };
    const items: EvidenceItem[] = [];
    const isOffered = agents.length > 0 || entries.some(({ gateway }) => (gateway?.invokes ?? []).length > 0);
    const isConsumed = pins.length > 0 || entries.some(({ card }) => Object.keys(card.consumes).length > 0);
    if ((plane === "gateway" || plane === "card") && !isOffered) {
      items.push(nothing("agents_offered", "no_agent_offered"));
    }
    if (plane === "card" && !isConsumed) items.push(nothing("agents_consumed", "no_agent_consumed"));
    if (plane === "rooms" && direction === "open" && (rooms ?? []).length === 0) {
      items.push(nothing("rooms_kept", "no_room_kept", "journal"));
    }
    const references = [revision];
    const left = unmanaged.map((subject) => this.item({ ...about, subject, verdict: "unknown", references }));
    return [...items, ...left];
  }

  missingRooms({ rooms }: Scope, inside: readonly EvidenceItem[]): readonly EvidenceItem[] {
    if (inside.some(({ probe }) => probe === "plane")) return [];
    const found = new Set(inside.filter(isOwnRoom).map(({ subject }) => subject));
    const lost = (rooms ?? []).filter((room) => !found.has(room));
    return lost.flatMap((subject) =>
      ["room_acl", "room_enforcement", "room_members"].map((probe) =>
        this.item({ probe, layer: "homeserver", subject, verdict: "unknown", reason: "not_observed" }),
      ),
    );
  }

  cardUse(
    staying: ReadonlySet<string>,
    refusals: (agent: string) => readonly EvidenceItem[],
    revision: string,
  ): readonly EvidenceItem[] {
    return [...staying].map((agent) => {
      const refused = refusals(agent);
      return this.item({
        ...{ probe: "card_use", layer: "gateway", subject: agent },
        verdict: refused.length > 0 ? "closed" : "open",
        reason: refused.length > 0 ? "use_refused" : "use_not_seen_refused",
        references: [revision, ...refused.map(({ digest }) => digest)],
      });
    });
  }
}

/** Clients that the gateway's rendered files let in; undefined where that cannot be read. */
function renderedClients(files: RenderedFiles): ReadonlySet<string> | undefined {
  const text = (path: string) => files.get(path) ?? "";
  try {
    const { agents } = parseYaml(InvocationFile, text(GATEWAY_INVOCATION), GATEWAY_INVOCATION);
    const { clients } = parseYaml(ClientsFile, text(GATEWAY_CLIENTS), GATEWAY_CLIENTS);
    const enabled = clients.filter((client) => client.enabled).map(({ clientId }) => clientId);
    return new Set([...Object.values(agents).flatMap((agent) => agent.clients), ...enabled]);
  } catch (error) {
    return undefinedFor()(error);
  }
}

const INVISIBLE = /[^\x21-\x7e]/g;
const LENGTH_MAX = 512;

/** A subject out of reach as an identifier that can be signed and typed: `!room at server` becomes `!room@server`. */
export function subjectWord(named: string): string {
  const word = named.replaceAll(" at ", "@").replaceAll(INVISIBLE, "_").slice(0, LENGTH_MAX);
  return word === "" ? "_" : word;
}
