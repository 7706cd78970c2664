// The access rules of a gateway, merged from the two files that state them: for each agent, whether its card is
// published and who may invoke it. Invariants: every public path has one owner across both files; who may call never decides
// over the listener, so that a caller can go without emptying a bucket or losing the issuer's key set.
import { isDeepStrictEqual } from "node:util";
import { type InvocationFile, isOperationOf, type PublicationFile } from "../rendered-files/gateway-files.ts";
import { ConfigError, readYaml } from "../runtime/load-yaml.ts";

export type Quotas = InvocationFile["quotas"];

/** The agents, sorted by name. Without a card its path answers 404; so does the other one without an invocation's clients. */
export type AccessRules = ReturnType<typeof mergeAccessRules>;

/** A parsed file with its text, for the line in an error. */
export interface ParsedFile<T> {
  readonly file: string;
  readonly text: string;
  readonly value: T;
}

/** @throws ConfigError when a public path has two owners, with file and line of both */
export function mergeAccessRules(
  publication: ParsedFile<PublicationFile>,
  invocation: ParsedFile<InvocationFile>,
) {
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

/** Two routes that fit one request would be decided by their order. */
function refuseSharedPaths(publication: ParsedFile<PublicationFile>, invocation: ParsedFile<InvocationFile>) {
  const places = [
    ...Object.entries(publication.value.cards).map(([agent, { cardPath: path }]) => {
      return { file: publication, keys: ["cards", agent, "cardPath"], path, httpJson: false };
    }),
    ...Object.entries(invocation.value.agents).map(([agent, { invokePath: path, httpJson }]) => {
      return { file: invocation, keys: ["agents", agent, "invokePath"], path, httpJson };
    }),
  ];
  type Place = (typeof places)[number];
  const lineOf = ({ file, keys }: Place) => readYaml(file.text).lineOf(keys);
  const describe = (place: Place) => `${place.keys.join(".")} (${place.file.file}:${lineOf(place)})`;
  const owners = new Map<string, Place>();
  const problems = places.flatMap((place): [Place, message: string][] => {
    const other = owners.get(place.path);
    if (other !== undefined) return [[place, `already used by ${describe(other)}`]];
    owners.set(place.path, place);
    const below = place.httpJson ? places.filter(({ path }) => isOperationOf(place.path, path)) : [];
    return below.map((one) => [place, `HTTP+JSON is served below it, where ${describe(one)} lies`]);
  });
  const file = problems[0]?.[0].file;
  if (file === undefined) return;
  const ofFile = problems.filter(([place]) => place.file === file);
  throw new ConfigError(
    file.file,
    ofFile.map(([place, message]) => ({ line: lineOf(place), path: place.keys.join("."), message })),
  );
}

export function callersOf(intent: AccessRules): ReadonlySet<string> {
  return new Set(intent.agents.flatMap(({ invocation }) => invocation?.clients ?? []));
}

/** The next rules; with the old quotas where only callers went, because new ones empty the buckets of all others. */
export function keepQuotas(current: AccessRules, next: AccessRules): AccessRules {
  const [old, wanted] = [current.quotas, next.quotas];
  const callers = callersOf(next);
  const names = new Set([...Object.keys(old.clients), ...Object.keys(wanted.clients)]);
  const changes = [...names].filter(
    (name) =>
      !isDeepStrictEqual(old.clients[name], wanted.clients[name]) &&
      (Object.hasOwn(wanted.clients, name) || callers.has(name)),
  );
  const isKept = changes.length === 0 && isDeepStrictEqual(old.default, wanted.default);
  return isKept ? { ...next, quotas: old } : next;
}
