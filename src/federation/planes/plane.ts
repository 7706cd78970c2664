// What a plane is. Invariants: `render` reads nothing but the registry; `apply` is idempotent and ends in a verified
// state or says what it could not reach; nothing reported here holds content.
import * as z from "zod";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type EvidenceItem, operatorItem } from "../../records/format/evidence-item.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import type { KubernetesTarget } from "../registry/organisation.ts";
import { type PartnerEntry, planeState, type Registry } from "../registry/partner.ts";
import type { Resource } from "./kubernetes.ts";

/** Text by path below `rendered/` (one machine) or `kubernetes/`, such as `border/policy.json`. */
export type RenderedFiles = ReadonlyMap<string, string>;
type ResourceFiles = Readonly<Record<string, readonly Resource[]>>;

export interface PlaneRender {
  render(registry: Registry): RenderedFiles;
  /** Resources by path below `kubernetes/`, absent where a cluster has none. @param files what `render` returns */
  kubernetes?(files: RenderedFiles, registry: Registry, target: KubernetesTarget): ResourceFiles;
}

export interface DesiredPlane {
  readonly revision: string;
  readonly registry: Registry;
  readonly files: RenderedFiles;
}

export function renderedText({ files }: DesiredPlane, path: string): string {
  const text = files.get(path);
  if (text === undefined) throw refusedFile(path, "is missing");
  return text;
}

/** The same, as its schema reads it. @throws DrawbridgeError `head_refused` when it is missing or not valid */
export function renderedFile<Schema extends z.ZodType>(desired: DesiredPlane, path: string, schema: Schema) {
  const text = renderedText(desired, path);
  try {
    const isJson = path.endsWith(".json");
    const value = isJson ? schema.parse(JSON.parse(text)) : parseYaml(schema, text, `rendered/${path}`);
    return { text, value };
  } catch (cause) {
    throw refusedFile(path, "is not valid", cause);
  }
}

function refusedFile(path: string, what: string, cause?: unknown): DrawbridgeError {
  const hint = "Run `drawbridge federation render` and commit what it writes; nothing was applied.";
  return new DrawbridgeError("head_refused", `rendered/${path} ${what}`, { hint, cause });
}

/** Takes one line for a person, content-free. */
export type Note = (text: string) => void;

const Text = z.string();

/** Something that a plane could not bring to the desired state, and why: a closed set of reasons each plane names. */
export const OutOfReach = z.strictObject({ partner: Text, subject: Text, reason: Text, hint: Text });
export type OutOfReach = Readonly<z.output<typeof OutOfReach>>;

export type PlaneOutcome =
  | { readonly state: "in_force"; readonly changed: boolean }
  | { readonly state: "incomplete"; readonly changed: boolean; readonly outOfReach: readonly OutOfReach[] }
  | { readonly state: "deferred"; readonly reason: string; readonly retryAfterMs: number };

export interface PartOutcome {
  readonly changed: boolean;
  /** Why it has to be applied again later. */
  readonly deferred?: string;
  readonly outOfReach?: readonly OutOfReach[];
}

const RETRY_MS = 5_000;

export function outcomeOf(parts: readonly PartOutcome[]): PlaneOutcome {
  const reason = parts.find(({ deferred }) => deferred !== undefined)?.deferred;
  if (reason !== undefined) return { state: "deferred", reason, retryAfterMs: RETRY_MS };
  const changed = parts.some((part) => part.changed);
  const outOfReach = parts.flatMap((part) => part.outOfReach ?? []);
  if (outOfReach.length === 0) return { state: "in_force", changed };
  return { state: "incomplete", changed, outOfReach };
}

export const Drift = z.strictObject({
  /** A file, a room ID, a client ID. */
  subject: Text,
  /** `edited`, `missing`, `extra`, … */
  kind: Text,
  /** SHA-256, tagged, of what was found; null when nothing was. */
  found: Text.nullable(),
});
/** With a file whose text the reconciler keeps before the plane overwrites it; absent for anything but a file. */
export type Drift = z.output<typeof Drift> & { readonly file?: string };

/** The kind of drift that no step of the plane undoes. */
export const OUT_OF_REACH = "out_of_reach";

/** Drift without what the last attempt has named as out of reach, which is tried again at its own time. */
export function notNamed(drift: readonly Drift[], outOfReach: readonly OutOfReach[]): readonly Drift[] {
  const named = new Set(outOfReach.map(({ subject }) => subject));
  return drift.filter(({ kind, subject }) => kind !== OUT_OF_REACH || !named.has(subject));
}

export interface PlaneRuntime {
  /** Set where this organisation does not manage the plane: it is never applied, and nothing is recorded of it. */
  readonly unmanaged?: true;
  /** @throws DrawbridgeError when it cannot even begin */
  apply(desired: DesiredPlane, note: Note): Promise<PlaneOutcome>;
  /** What differs from `desired`. @throws DrawbridgeError when it cannot be known because a part does not answer */
  drift(desired: DesiredPlane): Promise<readonly Drift[]>;
  /** Operator evidence of one partner. @param covering subjects that something has to be said of in any case */
  probe(desired: DesiredPlane, partner: PartnerEntry, covering?: readonly string[]): Promise<EvidenceItem[]>;
}

type OperatorItem = Parameters<typeof operatorItem>[1];
export type Finding = Pick<OperatorItem, "verdict"> & Partial<OperatorItem>;
export type Find = () => Promise<Finding>;

/** Observes as the operator, from inside: each finding is sealed with when it began and how long it took. */
export function observer(clock: Clock, plane: PlaneName, partner: string) {
  return async (probe: string, layer: string, subject: string | null, find: Find) => {
    const startedAt = clock.now();
    const found = await find();
    const about = { plane, partner, probe, layer, subject };
    return operatorItem(startedAt, { duration_ms: clock.now() - startedAt, ...about, ...found });
  };
}

export function unmanagedPlane(name: PlaneName): PlaneRuntime {
  return {
    unmanaged: true,
    apply: async () => {
      throw new DrawbridgeError("internal", `the ${name} plane is not managed here, and cannot be applied`);
    },
    drift: async () => [],
    probe: async () => [],
  };
}

export function openPartners({ partners }: Registry, plane: PlaneName): readonly PartnerEntry[] {
  return partners.filter(({ partner }) => planeState(partner, plane) === "open");
}

/** Own server and those to whom a plane is open, sorted. */
export function admittedServers(registry: Registry, plane: PlaneName): readonly string[] {
  const servers = openPartners(registry, plane).map(({ partner }) => partner.serverName);
  return [registry.organisation.serverName, ...servers].sort();
}

/** Refuses a list that is not exactly those whom the registry admits. @throws DrawbridgeError `head_refused` */
export function assertAdmits(registry: Registry, plane: PlaneName, file: string, servers: readonly string[]) {
  const own = registry.organisation.serverName;
  const wanted = new Set(admittedServers(registry, plane));
  const found = new Set(servers);
  if (!found.has(own)) throw refusedFile(file, `leaves out ${own}, which is this organisation's own server`);
  const cut = [...wanted].find((server) => !found.has(server));
  if (cut !== undefined) throw refusedFile(file, `cuts off ${cut}, which the registry admits`);
  const more = servers.find((server) => !wanted.has(server));
  if (more === undefined) return;
  throw refusedFile(file, `admits ${JSON.stringify(more)}, which the registry does not`);
}
