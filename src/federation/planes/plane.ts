// What a plane is. Rendering is pure and done when a change is proposed; the rest works on the real parts, on behalf
// of the reconciler or of an operator's command.
// Invariants: `render` reads nothing but the registry; `apply` is idempotent and ends in a verified state or
// says what it could not reach; nothing reported here holds content.
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";
import type { PartnerEntry, Registry } from "../registry/partner.ts";

/** Text by path below `rendered/` (one machine) or `kubernetes/`, such as `border/policy.json`. */
export type RenderedFiles = ReadonlyMap<string, string>;

/** The pure half: what the registry means for this plane. */
export interface PlaneRender {
  readonly name: PlaneName;
  /** Files of the one-machine target. */
  render(registry: Registry): RenderedFiles;
  /** Kubernetes resources; empty where the plane has none. */
  renderKubernetes(registry: Registry): RenderedFiles;
}

/** What one revision wants of a plane. */
export interface DesiredPlane {
  readonly revision: string;
  readonly registry: Registry;
  /** The rendered one-machine files of this plane, as committed. */
  readonly files: RenderedFiles;
}

export interface PlaneProgress {
  /** One line for a person, content-free. */
  note(text: string): void;
}

/** Something that a plane could not bring to the desired state, and why: a closed set of reasons each plane names. */
export interface OutOfReach {
  readonly partner: string;
  /** What was not reached, such as a room ID or a server name. */
  readonly subject: string;
  readonly reason: string;
  readonly hint: string;
}

export type PlaneOutcome =
  | { readonly state: "in_force"; readonly changed: boolean }
  /** Applied as far as it goes; these are still open. */
  | { readonly state: "incomplete"; readonly changed: boolean; readonly outOfReach: readonly OutOfReach[] }
  /** Left for later, such as a restart beyond its limit. */
  | { readonly state: "deferred"; readonly reason: string; readonly retryAfterMs: number };

export interface Drift {
  readonly plane: PlaneName;
  /** A file, a room ID, a client ID. */
  readonly subject: string;
  /** `edited`, `missing`, `extra`, … */
  readonly kind: string;
  /** SHA-256, tagged, of what stands there; null when there is nothing. */
  readonly found: string | null;
  /** A file whose text the reconciler keeps before the plane puts it right; absent for what is no file. */
  readonly file?: string;
}

/** The half that works on the real parts of one deployment. */
export interface PlaneRuntime {
  readonly name: PlaneName;
  /** @throws DrawbridgeError when it cannot even begin */
  apply(desired: DesiredPlane, progress: PlaneProgress): Promise<PlaneOutcome>;
  /**
   * What stands on the real parts that this plane did not put there.
   * @param desired what was applied last, or is being applied
   * @throws DrawbridgeError when a real part cannot be asked, and nothing is seen without it
   */
  drift(desired: DesiredPlane): Promise<readonly Drift[]>;
  /** Operator evidence: what the real parts say of one partner, from inside. */
  probe(desired: DesiredPlane, partner: PartnerEntry): Promise<readonly EvidenceItem[]>;
}

/** A plane whose part this organisation does not run: nothing is applied, and nobody can come in by it. */
export function absentPlane(name: PlaneName): PlaneRuntime {
  return {
    name,
    apply: async () => ({ state: "in_force", changed: false }),
    drift: async () => [],
    probe: async () => [],
  };
}
