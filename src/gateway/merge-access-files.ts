// The access rules of a gateway, merged from the two files that state them: for each agent, whether its card is
// published and who may invoke it. Invariants: every public path has one owner across both files; who may call never decides
// over the listener, so that a caller can go without emptying a bucket or losing the issuer's key set.
import {
  type InvocationFile,
  type InvokedAgent,
  type PathPlace,
  type PublicationFile,
  type PublishedCard,
  pathConflicts,
  type Quota,
} from "../rendered-files/gateway-files.ts";
import { ConfigError, type ConfigProblem, yamlLineOf } from "../runtime/load-yaml.ts";

/** What the gateway serves of one agent. */
export interface AgentAccess {
  readonly name: string;
  /** Absent: its card path answers 404. */
  readonly card?: PublishedCard;
  /** Absent, or without clients: its invocation path answers 404. */
  readonly invocation?: InvokedAgent;
}

export interface Quotas {
  readonly default: Quota;
  readonly clients: Readonly<Record<string, Quota>>;
}

export interface AccessRules {
  /** Sorted by name. */
  readonly agents: readonly AgentAccess[];
  /** Those the limiter counts by. */
  readonly quotas: Quotas;
}

/** A parsed file with its text, for the line in an error. */
export interface ParsedFile<T> {
  readonly file: string;
  readonly text: string;
  readonly value: T;
}

const SECTIONS = { publication: "cards", invocation: "agents" } as const;

/**
 * Merges both files.
 * @throws ConfigError when a public path has two owners, with file and line of both
 */
export function mergeAccessRules(
  publication: ParsedFile<PublicationFile>,
  invocation: ParsedFile<InvocationFile>,
): AccessRules {
  refuseSharedPaths(publication, invocation);
  const cards = new Map(Object.entries(publication.value.cards));
  const invocations = new Map(Object.entries(invocation.value.agents));
  const names = [...new Set([...cards.keys(), ...invocations.keys()])].sort();
  return {
    agents: names.map((name) => {
      const [card, invoked] = [cards.get(name), invocations.get(name)];
      return { name, ...(card && { card }), ...(invoked && { invocation: invoked }) };
    }),
    quotas: invocation.value.quotas,
  };
}

function refuseSharedPaths(
  publication: ParsedFile<PublicationFile>,
  invocation: ParsedFile<InvocationFile>,
): void {
  const files = { publication, invocation };
  const pathOf = ({ file, agent, key }: PathPlace) => [SECTIONS[file], agent, key];
  const lineOf = (place: PathPlace) => yamlLineOf(files[place.file].text, pathOf(place));
  const describe = (place: PathPlace) =>
    `${pathOf(place).join(".")} (${files[place.file].file}:${lineOf(place)})`;
  const problems = pathConflicts(publication.value, invocation.value).map(
    ({ place, other, kind }): ConfigProblem & { file: string } => ({
      file: files[place.file].file,
      line: lineOf(place),
      path: pathOf(place).join("."),
      message:
        kind === "same"
          ? `already used by ${describe(other)}`
          : `HTTP+JSON is served below it, where ${describe(other)} lies`,
    }),
  );
  const [first] = problems;
  if (first === undefined) return;
  throw new ConfigError(
    first.file,
    problems.filter(({ file }) => file === first.file),
  );
}

function isEqual(one: Quota | undefined, other: Quota | undefined): boolean {
  return one?.perMinute === other?.perMinute && one?.burst === other?.burst;
}

/** Everybody who may call something. */
export function callersOf(intent: AccessRules): ReadonlySet<string> {
  return new Set(intent.agents.flatMap(({ invocation }) => invocation?.clients ?? []));
}

/**
 * The next intent with the quotas that are counted by already, when nothing but quotas of clients went that
 * may call no more: to apply such a quota would empty the buckets of all other callers.
 */
export function keepQuotas(current: AccessRules, next: AccessRules): AccessRules {
  const [old, wanted] = [current.quotas, next.quotas];
  const callers = callersOf(next);
  const names = new Set([...Object.keys(old.clients), ...Object.keys(wanted.clients)]);
  const changes = [...names].filter(
    (name) =>
      !isEqual(old.clients[name], wanted.clients[name]) &&
      (Object.hasOwn(wanted.clients, name) || callers.has(name)),
  );
  const isKept = changes.length === 0 && isEqual(old.default, wanted.default);
  return isKept ? { ...next, quotas: old } : next;
}
