// The control repository of an organisation: begun with the registry that its operator would have written, and rendered
// by the product's own code.
// Invariant: the registry in it is the operator's and is kept; only the addresses of this machine change when the lab
// gets other ports.
import { existsSync, mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { parse } from "yaml";
import { type FederationConfig, loadFederationConfig } from "../../src/federation/config.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import { renderAll } from "../../src/federation/planes/render.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { gitLine, gitOk } from "../../src/federation/repository/git.ts";
import {
  parseRevision,
  Repository,
  type Revision,
  writeCommit,
} from "../../src/federation/repository/repository.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { AGENT, type CompleteOrganisation } from "../organisations.ts";
import { PORTS_PER_LAB } from "../ports.ts";
import type { Identities } from "./credentials.ts";
import { registryFiles } from "./registry.ts";

export const BRANCH = "main";
const ORGANISATION = "registry/organisation.yaml";

/** Makes the repository, or brings the addresses in it up to date. */
export async function provisionRepository(
  lab: Lab,
  organisation: CompleteOrganisation,
  identities: Identities,
): Promise<void> {
  const path = lab.paths.organisation(organisation).controlRepository;
  const repository = await openRepository(path);
  const head = await repository.head();
  const commit = (parent: Revision, registry: ReadonlyMap<string, string>, message: string) =>
    commitRegistry(repository, organisation, { parent, registry, message });
  if (head === undefined) {
    const root = await emptyRoot(repository, SOURCES.clock.now());
    await commit(root, registryFiles(lab, organisation, identities), "Admit the partners");
    return;
  }
  const found = await repository.read(head, ["registry"]);
  const moved = movedFrom(found.get(ORGANISATION) ?? "", lab.ports.organisations[organisation].agent);
  if (moved === 0) return;
  const from = lab.portBase - moved;
  const registry = new Map([...found].map(([file, text]) => [file, moveAddresses(text, from, moved)]));
  await commit(head, registry, "Follow the lab to other ports");
}

/** Changes the registry of a branch as its operator would: edited, rendered, committed and pushed. */
export async function changeRegistry(
  lab: Lab,
  organisation: CompleteOrganisation,
  message: string,
  edit: (registry: ReadonlyMap<string, string>) => ReadonlyMap<string, string>,
): Promise<void> {
  const repository = await openRepository(lab.paths.organisation(organisation).controlRepository);
  const parent = await repository.requireHead();
  const registry = edit(await repository.read(parent, ["registry"]));
  await commitRegistry(repository, organisation, { parent, registry, message });
}

async function commitRegistry(
  repository: Repository,
  organisation: CompleteOrganisation,
  change: {
    readonly parent: Revision;
    readonly registry: ReadonlyMap<string, string>;
    readonly message: string;
  },
): Promise<void> {
  const { parent, registry, message } = change;
  const changes = await changesTo(repository, parent, registry);
  if (changes.size === 0) return;
  const author = { name: `Operator of ${organisation}`, email: `operator@${organisation}.test` };
  const next = await writeCommit(repository, {
    parents: [parent],
    changes,
    message: `${message}\n`,
    author,
    at: SOURCES.clock.now(),
  });
  await repository.advance(parent, next, message);
}

async function openRepository(path: string): Promise<Repository> {
  if (!existsSync(path)) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    await gitOk(["init", "--quiet", "--bare", `--initial-branch=${BRANCH}`, "."], { cwd: path });
  }
  return Repository.open(path, BRANCH);
}

/** A first commit without files: whatever comes after it is a change that can be reviewed. */
async function emptyRoot(repository: Repository, at: number): Promise<Revision> {
  const tree = await gitLine(["mktree"], repository.call({ input: "" }));
  const seconds = `@${Math.floor(at / 1_000)} +0000`;
  const [name, email] = ["Drawbridge lab", "lab@drawbridge.test"];
  const env = {
    ...{ GIT_AUTHOR_NAME: name, GIT_AUTHOR_EMAIL: email, GIT_AUTHOR_DATE: seconds },
    ...{ GIT_COMMITTER_NAME: name, GIT_COMMITTER_EMAIL: email, GIT_COMMITTER_DATE: seconds },
  };
  const call = repository.call({ input: "Begin\n", env });
  const root = parseRevision(await gitLine(["commit-tree", tree], call));
  if (root === undefined) throw new TypeError("git made no commit");
  await gitOk(["update-ref", repository.ref, root], repository.call());
  return root;
}

/** The registry with everything that is rendered of it, as changes to a revision. */
async function changesTo(
  repository: Repository,
  revision: Revision,
  registry: ReadonlyMap<string, string>,
): Promise<Map<string, string | null>> {
  const wanted = new Map([...registry, ...renderAll(loadRegistry(registry))]);
  const found = await repository.read(revision, ["registry", "rendered", "kubernetes"]);
  const changes = new Map<string, string | null>();
  for (const [path, text] of wanted) if (found.get(path) !== text) changes.set(path, text);
  for (const path of found.keys()) if (!wanted.has(path)) changes.set(path, null);
  return changes;
}

/** How far the lab's ports have moved since the registry was written, by the address of its own agent. */
function movedFrom(organisationFile: string, agentPort: number): number {
  const { agents } = (parse(organisationFile) ?? {}) as { agents?: Record<string, { upstream?: unknown }> };
  const upstream = URL.parse(String(agents?.[AGENT]?.upstream));
  const written = Number(upstream?.port);
  return upstream?.hostname === "127.0.0.1" && written > 0 ? agentPort - written : 0;
}

/** Moves every loopback address of the lab's old ports; names of servers, which carry a port too, stay. */
export function moveAddresses(text: string, from: number, by: number): string {
  return text.replaceAll(/\b127\.0\.0\.1:(\d{1,5})\b/g, (address, port: string) => {
    const isOwn = Number(port) >= from && Number(port) < from + PORTS_PER_LAB;
    return isOwn ? `127.0.0.1:${Number(port) + by}` : address;
  });
}

interface PlacedFile {
  readonly target: string;
  readonly text: string;
}

/**
 * The rendered files that were edited by hand since they were applied.
 * @throws ConfigError, DrawbridgeError `config_unreadable`, `repository_unusable`
 */
export async function editedRendered(configFile: string): Promise<string[]> {
  const placed = await renderedFiles(loadFederationConfig(configFile));
  return placed.flatMap(({ target, text }) => (fileDrift(target, text)?.kind === "edited" ? [target] : []));
}

/**
 * Writes the rendered files of the branch to where the programs read them, before the programs run: a homeserver must
 * not start without its list, nor a gateway without its callers. The reconciler applies every later change.
 * @throws ConfigError, DrawbridgeError `config_unreadable`, `repository_unusable`
 */
export async function placeRendered(configFile: string): Promise<void> {
  const placed = await renderedFiles(loadFederationConfig(configFile));
  for (const { target, text } of placed) applyFile(target, text);
}

async function renderedFiles(config: FederationConfig): Promise<PlacedFile[]> {
  const path = resolve(config.directory, config.repository.path);
  if (!existsSync(path)) return [];
  const repository = await Repository.open(path, config.repository.branch);
  const head = await repository.head();
  if (head === undefined) return [];
  const rendered = await repository.read(head, ["rendered"]);
  const { gateway } = config;
  const issuer = gateway?.issuer;
  const targets: readonly (readonly [string, string | undefined])[] = [
    ["transport/homeserver.yaml", config.transport.includeFile],
    ["border/policy.json", config.border.policyFile],
    ["card/agents.yaml", config.card?.agentsFile],
    ["card/publication.yaml", gateway?.publicationFile],
    ["gateway/invocation.yaml", gateway?.invocationFile],
    ["gateway/clients.yaml", issuer?.adapter === "declared_clients" ? issuer.clientsFile : undefined],
  ];
  return targets.flatMap(([file, target]) => {
    const text = rendered.get(`rendered/${file}`);
    return text === undefined || target === undefined
      ? []
      : [{ target: resolve(config.directory, target), text }];
  });
}
