// Evidence that this organisation states itself: what is declared, rendered, reached and written down.
// Invariant: each item rests on a revision, a digest or a line of another program's record, and names it.

import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { PART_MANAGED } from "../../../records/conditions/evaluate.ts";
import { conditionsOfStage, LEFT_ALONE } from "../../../records/conditions/stage.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  operatorItem,
} from "../../../records/format/evidence-item.ts";
import type { Scope } from "../../../records/format/scope.ts";
import type { StageName } from "../../../records/format/stages.ts";
import { InvocationFile } from "../../../rendered-files/gateway-files.ts";
import { ClientsFile } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import type { EvidencePackBody } from "../../evidence/pack.ts";
import type { PlaneName } from "../../plane-order.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../../planes/gateway/render.ts";
import type { DesiredState } from "../../reconcile/desired-state.ts";
import type { Partner } from "../../registry/partner.ts";
import type { Applied } from "../../state/plane-records.ts";
import type { RecordFacts } from "../private-record/consistency.ts";
import { readStage } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import {
  AGENTS_CONSUMED,
  AGENTS_OFFERED,
  CARD_USE,
  DUTIES,
  PURGE_WAIVED,
  RECONCILED,
  RENDER,
  ROOM_OBSERVED,
  ROOMS_SHARED,
  STATIC_TESTS,
  VIOLATION,
} from "./observation.ts";

type Body = Pick<EvidenceItemBody, "probe" | "verdict" | "layer"> & Partial<EvidenceItemBody>;

/** Makes the items of one plane and one run. */
export class DeclaredEvidence {
  readonly #run: Run;
  readonly #plane: PlaneName;
  readonly #clock: Clock;

  constructor(run: Run, plane: PlaneName, clock: Clock) {
    this.#run = run;
    this.#plane = plane;
    this.#clock = clock;
  }

  #item(body: Body): EvidenceItem {
    return operatorItem(this.#clock.now(), {
      ...{ plane: this.#plane, partner: counterpartyOf(this.#run) },
      ...body,
    });
  }

  /** What the reconciler has reached. */
  reconciled(applied: Applied | null, partner: Partner, { revision, planes }: DesiredState): EvidenceItem {
    const { digest } = planes[this.#plane];
    const isReached = applied?.outcome === "in_force" && applied.digest === digest;
    const isClosed = partner.planes[this.#plane] === "closed";
    return this.#item({
      probe: RECONCILED,
      layer: "reconciler",
      verdict: isReached ? (isClosed ? "closed" : "open") : "unknown",
      reason: isReached ? "in_force" : (applied?.outcome ?? "never_applied"),
      references: [revision, digest],
    });
  }

  /** What the rendered files say of the counterparty's client. */
  gateway({ azp }: Partner, { revision, planes }: DesiredState): EvidenceItem {
    const { files, digest } = planes.gateway;
    const text = (path: string) => files.get(path) ?? "";
    let isNamed = true;
    try {
      const { agents } = parseYaml(InvocationFile, text(GATEWAY_INVOCATION), GATEWAY_INVOCATION);
      const { clients } = parseYaml(ClientsFile, text(GATEWAY_CLIENTS), GATEWAY_CLIENTS);
      isNamed =
        Object.values(agents).some((agent) => agent.clients.includes(azp)) ||
        clients.some(({ clientId, enabled }) => clientId === azp && enabled);
    } catch (error) {
      if (!(error instanceof DrawbridgeError)) throw error;
    }
    return this.#item({
      probe: RENDER,
      layer: "registry",
      subject: azp,
      verdict: isNamed ? "open" : "closed",
      reason: isNamed ? "azp_rendered" : "azp_not_rendered",
      references: [revision, digest],
    });
  }

  /** What the registry declares nothing of, and the parts that this organisation does not manage. */
  absences(stage: StageName, { parts, agents, pins }: Scope, revision: string): readonly EvidenceItem[] {
    const layer = "registry";
    const nothing = (probe: string, reason: string) =>
      this.#item({ probe, layer, verdict: "closed", reason, references: [revision] });
    const needed = new Set(conditionsOfStage(stage).flatMap((condition) => condition.parts));
    const hasAgents = stage === "a2a_stop" || stage === "a2a_discovery";
    return [
      ...(hasAgents && agents.length === 0 ? [nothing(AGENTS_OFFERED, "no_agent_offered")] : []),
      ...(stage === "a2a_discovery" && pins.length === 0
        ? [nothing(AGENTS_CONSUMED, "no_agent_consumed")]
        : []),
      ...[...needed]
        .filter((part) => !parts.includes(part))
        .map((part) =>
          this.#item({
            ...{ probe: PART_MANAGED, layer: "configuration", subject: part, verdict: "unknown" },
            ...{ reason: "unmanaged", references: [revision] },
          }),
        ),
    ];
  }

  /** No room that the counterparty is in, or may enter, was found. */
  noRooms(): EvidenceItem {
    return this.#item({
      ...{ probe: ROOMS_SHARED, layer: "homeserver", verdict: "closed", reason: "no_room_in_scope" },
    });
  }

  /** A room that was in scope, and of which nothing was found. */
  lostRoom(room: string): EvidenceItem {
    return this.#item({
      ...{ probe: ROOM_OBSERVED, layer: "homeserver", subject: room, verdict: "unknown" },
      reason: "not_observed",
    });
  }

  /** The use of cards that stay public for others was refused in stage 1. */
  cardUse(staying: ReadonlySet<string>, revision: string): readonly EvidenceItem[] {
    const items = readStage(this.#run, "a2a_stop")?.proof?.items ?? [];
    return [...staying].map((agent) => {
      const refused = items.filter(
        ({ probe, verdict, subject }) => probe === "invoke" && verdict === "closed" && subject === agent,
      );
      return this.#item({
        probe: CARD_USE,
        layer: "gateway",
        subject: agent,
        verdict: refused.length > 0 ? "closed" : "open",
        reason: refused.length > 0 ? "use_refused" : "use_not_seen_refused",
        references: [revision, ...refused.map(({ digest }) => digest)],
      });
    });
  }

  /** Of a plane that this kind of removal leaves alone. */
  leftAlone(): EvidenceItem {
    return this.#item({
      probe: LEFT_ALONE,
      layer: "none",
      vantage: "nobody",
      verdict: "unknown",
      reason: `left_alone_by_${this.#run.kind}`,
    });
  }

  /** A line of the border's violations, if it is a denial of the server. */
  violation({ facts, at, line_digest }: EvidencePackBody["stream_items"][number]): EvidenceItem | undefined {
    if (facts.stream !== "border_violations" || facts.reason !== "server_not_allowed") return undefined;
    const { room, event, policy_digest } = facts;
    return this.#item({
      probe: VIOLATION,
      layer: "border",
      subject: event ?? room,
      verdict: "closed",
      reason: "server_not_allowed",
      references: [line_digest, ...(policy_digest === null ? [] : [policy_digest])],
      at: new Date(at).toISOString(),
    });
  }

  staticTests(revision: string): EvidenceItem {
    return this.#item({
      probe: STATIC_TESTS,
      layer: "registry",
      verdict: "closed",
      reason: "passed",
      references: [revision],
    });
  }

  /** What the private record says of the duties. */
  duties({ retention, backupsExpireBy, purgeWaiver }: RecordFacts): readonly EvidenceItem[] {
    const layer = "private_record";
    return [
      this.#item({
        ...{ probe: DUTIES, layer, verdict: "closed", reason: "recorded" },
        references: [
          `retention=${retention.state}${retention.until === null ? "" : `:${retention.until}`}`,
          `backups_expire_by=${backupsExpireBy}`,
          "replicated_history=not_retracted",
        ],
      }),
      ...(purgeWaiver === null
        ? []
        : [this.#item({ probe: PURGE_WAIVED, layer, verdict: "closed", reason: purgeWaiver })]),
    ];
  }
}
