// Real git repositories for tests, with the keys that sign in them; among them an organisation's with the sample registry,
// and planes whose real parts are plain files, so that the reconciler and containment can be driven, and killed, without any
// server.

import { execFileSync } from "node:child_process";
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import { type FederationConfig, FederationConfigFile } from "../../src/federation/config.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import type { DesiredPlane, Drift, PlaneOutcome, PlaneRuntime } from "../../src/federation/planes/plane.ts";
import { renderAll } from "../../src/federation/planes/render.ts";
import type { PlaneRuntimes } from "../../src/federation/planes/runtimes.ts";
import {
  type Federation,
  openFederation,
  type ReconcileEvent,
  type Reporter,
} from "../../src/federation/reconcile/context.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { type Partner, planeState } from "../../src/federation/registry/partner.ts";
import {
  type Changes,
  Repository,
  type Revision,
  writeCommit,
} from "../../src/federation/repository/repository.ts";
import { type EvidenceItemBody, evidenceItem } from "../../src/records/format/evidence-item.ts";
import { PARTS } from "../../src/records/format/fields.ts";
import { targetFingerprint } from "../../src/rendered-files/agents-file.ts";
import { PolicyFile, policyDigest } from "../../src/rendered-files/border-policy.ts";
import { registryFiles } from "./sample-files.ts";
import { writeFile } from "./temporary.ts";

export const AUTHOR = { name: "An Operator", email: "operator@a.test" } as const;
export const AT = Date.UTC(2026, 0, 2, 3, 4, 5);

const IDENTITY = {
  GIT_AUTHOR_NAME: AUTHOR.name,
  GIT_AUTHOR_EMAIL: AUTHOR.email,
  GIT_COMMITTER_NAME: AUTHOR.name,
  GIT_COMMITTER_EMAIL: AUTHOR.email,
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
};

/** git as an operator runs it; returns what it printed. */
export function operatorGit(folder: string, ...args: readonly string[]): string {
  return execFileSync("git", ["-c", "safe.directory=*", ...args], {
    cwd: folder,
    env: { ...process.env, ...IDENTITY },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
}

/** Runs several git commands with one start of a program: that copies this process's page tables. */
function inShell(folder: string, commands: string): void {
  const date = `@${AT / 1_000} +0000`;
  execFileSync("sh", ["-e", "-c", commands], {
    cwd: folder,
    env: { ...process.env, ...IDENTITY, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** A clone to edit in: `main` is checked out and holds the given files in one commit. */
export function workTree(folder: string, files: Readonly<Record<string, string>>): void {
  mkdirSync(folder, { recursive: true });
  for (const [path, text] of Object.entries(files)) writeFile(join(folder, path), text);
  inShell(
    folder,
    `git init --quiet --template= --initial-branch=main
     git -c 'safe.directory=*' add --all
     git -c 'safe.directory=*' commit --quiet --allow-empty --message=Begin`,
  );
}

/** Folders that are made once in a process, and copied from then on. */
const templates = new Map<string, Promise<string>>();
const made: string[] = [];
process.once("exit", () => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

/** Fills a folder with a copy of what `make` puts into another one, the first time that it is called for this key. */
export async function copyOfTemplate(
  key: string,
  folder: string,
  make: (folder: string) => unknown,
): Promise<void> {
  const begin = async () => {
    const template = mkdtempSync(join(tmpdir(), "drawbridge template "));
    made.push(template);
    await make(template);
    return template;
  };
  const template = templates.get(key) ?? begin();
  templates.set(key, template);
  cpSync(await template, folder, { recursive: true });
}

/** Makes a bare repository whose branch `main` holds the given files in one commit. */
export function makeBareRepository(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  return copyOfTemplate(JSON.stringify(files), folder, (template) => {
    mkdirSync(join(template, "seed"));
    for (const [path, text] of Object.entries(files)) writeFile(join(template, "seed", path), text);
    inShell(
      template,
      `git init --quiet --bare --template= --initial-branch=main .
       seeded() { git -c "safe.directory=*" --git-dir=. --work-tree=seed "$@"; }
       seeded add --all
       seeded commit --quiet --allow-empty --message=Begin
       rm -r seed index logs COMMIT_EDITMSG`,
    );
  });
}

/** Makes and opens one. */
export async function bareRepository(
  folder: string,
  files: Readonly<Record<string, string>>,
): Promise<Repository> {
  await makeBareRepository(folder, files);
  return Repository.open(folder, "main");
}

/** Paths that differ between two revisions. */
export function changedPaths(repository: Repository, from: string, to: string): readonly string[] {
  const args = ["diff-tree", "-r", "-z", "--no-renames", "--name-only", from, to];
  return operatorGit(repository.path, ...args)
    .split("\0")
    .filter((path) => path !== "");
}

/** Commits changes on top of the branch, as an operator's push would. */
export async function commitOnTop(
  repository: Repository,
  changes: Changes,
  options: { readonly message?: string; readonly signingKeyFile?: string; readonly at?: number } = {},
): Promise<Revision> {
  const head = await repository.requireHead();
  const revision = await writeCommit(repository, {
    parents: [head],
    changes,
    message: options.message ?? "Change",
    author: AUTHOR,
    at: options.at ?? AT,
    signingKeyFile: options.signingKeyFile,
  });
  await repository.advance(head, revision, "test");
  return revision;
}

/** An SSH key pair; returns the private key's file and the line for an allowed signers file. */
export function signingKey(folder: string, name: string): { file: string; allowed: string } {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, name);
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file]);
  const [type, key] = readFileSync(`${file}.pub`, "utf8").split(" ");
  return { file, allowed: `${name}@a.test namespaces="git" ${type} ${key}\n` };
}

export function allowedSigners(file: string, ...lines: readonly string[]): string {
  writeFileSync(file, lines.join(""));
  return file;
}

export const LIGHTHOUSE = "registry/partners/lighthouse.yaml";
export const PILOTS = "registry/partners/pilot-station.yaml";

/** The registry's files with everything that they render. */
export function rendered(registry: ReadonlyMap<string, string> = registryFiles()): Map<string, string> {
  return new Map([...registry, ...renderAll(loadRegistry(registry))]);
}

/** A bare repository that holds the sample organisation and its renders. */
export function controlRepository(folder: string): Promise<Repository> {
  return bareRepository(folder, Object.fromEntries(rendered()));
}

/** Commits the registry with a file of it put in the place of another, and everything rendered anew. */
export async function commitRegistry(
  repository: Repository,
  changes: ReadonlyMap<string, string | null>,
  options: { readonly render?: boolean; readonly signingKeyFile?: string } = {},
) {
  const before = await repository.read(await repository.requireHead(), [
    "registry",
    "rendered",
    "kubernetes",
  ]);
  const registry = new Map([...before].filter(([path]) => path.startsWith("registry/")));
  for (const [path, text] of changes) {
    if (text === null) registry.delete(path);
    else registry.set(path, text);
  }
  const all: Map<string, string | null> = options.render === false ? new Map() : rendered(registry);
  for (const path of before.keys()) if (!all.has(path) && options.render !== false) all.set(path, null);
  for (const [path, text] of changes) all.set(path, text);
  const { signingKeyFile } = options;
  return commitOnTop(repository, all, signingKeyFile === undefined ? {} : { signingKeyFile });
}

/** The sample partner's file as it is, with one piece replaced. */
export function partnerFile(path: string, from: string, to: string): string {
  const text = registryFiles().get(path) ?? "";
  if (!text.includes(from)) throw new TypeError(`${path} has no ${from}`);
  return text.replace(from, () => to);
}

export interface FilePlanes {
  readonly planes: PlaneRuntimes;
  /** What has been applied, in order. */
  readonly applied: PlaneName[];
  /** Decides a plane's outcome instead of its files, until it is deleted. */
  readonly instead: Map<PlaneName, () => Promise<PlaneOutcome>>;
  /** Rooms that the planes' homeserver reports. */
  readonly rooms: string[];
  /** Told before each plane is applied. */
  onApply: (plane: PlaneName) => Promise<void>;
}

/** Planes that put their files below a folder, and note each apply in its file `order`. */
export function filePlanes(folder: string): FilePlanes {
  mkdirSync(folder, { recursive: true });
  const applied: PlaneName[] = [];
  const instead: FilePlanes["instead"] = new Map();
  const all: FilePlanes = {
    ...{ planes: {} as PlaneRuntimes, applied, instead, rooms: [] },
    onApply: async () => undefined,
  };
  const plane = (name: PlaneName): PlaneRuntime => ({
    async apply(desired) {
      applied.push(name);
      appendFileSync(join(folder, "order"), `${name} ${desired.revision}\n`);
      await all.onApply(name);
      const outcome = instead.get(name);
      if (outcome !== undefined) return outcome();
      const changes = [...desired.files].map(([path, text]) => applyFile(join(folder, path), text));
      return { state: "in_force", changed: changes.includes(true) };
    },
    drift: async (desired) => driftOf(folder, desired),
    probe: async (desired, { partner }) =>
      answersOf(name, desired, partner, all.rooms).map((answer) =>
        evidenceItem({
          ...{ schema: "svc.federation.evidence_item.v1", plane: name, partner: partner.serverName },
          ...{ vantage: "operator", status: null, reason: null, references: [], duration_ms: null },
          ...{ at: "2026-01-02T03:04:05.000Z", verdict: planeState(partner, name) },
          ...answer,
        }),
      ),
  });
  return Object.assign(all, {
    planes: Object.fromEntries(PLANE_NAMES.map((name) => [name, plane(name)])) as PlaneRuntimes,
  });
}

type Answer = Pick<EvidenceItemBody, "probe" | "layer" | "subject"> & Partial<EvidenceItemBody>;

/** What real parts would answer of a partner whose plane is as its entry declares. */
function answersOf(
  plane: PlaneName,
  desired: DesiredPlane,
  partner: Partner,
  rooms: readonly string[],
): readonly Answer[] {
  const { serverName, azp } = partner;
  const isOpen = planeState(partner, plane) === "open";
  const reason = (open: string | null, closed: string) => ({ reason: isOpen ? open : closed });
  switch (plane) {
    case "gateway": {
      const callers = reason("azp_admitted", "azp_not_admitted");
      return [
        { probe: "callers_in_force", layer: "gateway", subject: azp, ...callers },
        {
          probe: "issuer_client",
          layer: "issuer",
          subject: azp,
          ...reason("client_enabled", "client_disabled"),
        },
      ];
    }
    case "card":
      return [
        ...(partner.gateway?.invokes ?? []).map((subject) => ({
          ...{ probe: "card_fetch", layer: "gateway", subject, status: isOpen ? 200 : 404 },
          ...reason("card_public", "card_withdrawn"),
        })),
        ...Object.entries(partner.card.consumes).map(([subject, { cardUrl, cardIdentity }]) => ({
          ...{ probe: "card_trust", layer: "bridge", subject },
          ...reason("agent_card_verified", "agent_card_untrusted"),
          references:
            cardIdentity === undefined ? [] : [targetFingerprint(subject, { cardUrl, cardIdentity })],
        })),
        {
          ...{ probe: "may_ask", layer: "bridge", subject: serverName },
          ...reason("in_agents_file", "not_in_agents_file"),
        },
      ];
    case "rooms":
      if (rooms.length === 0) {
        const none = { probe: "rooms_shared", layer: "homeserver", reason: "no_room_in_scope" };
        return [{ ...none, subject: null, verdict: "closed" }];
      }
      return rooms.flatMap((subject) => [
        { probe: "room_acl", layer: "room_acl", subject, status: 200 },
        { probe: "room_enforcement", layer: "homeserver", subject, status: 200 },
        {
          ...{ probe: "room_members", layer: "homeserver", subject, status: 200 },
          references: [`present=${isOpen ? 1 : 0}`],
        },
      ]);
    case "border": {
      const policy = PolicyFile.parse(JSON.parse(desired.files.get("border/policy.json") ?? ""));
      const about = { layer: "border", status: 200, references: [policyDigest(policy)] };
      return [
        { probe: "policy_check", subject: serverName, ...about, ...reason(null, "server_not_allowed") },
        { probe: "policy_in_force", subject: null, ...about },
      ];
    }
    case "transport": {
      const about = { layer: "homeserver", subject: serverName, status: 200 };
      return [{ probe: "whitelist", ...about, ...reason(null, "not_in_whitelist") }];
    }
  }
}

function driftOf(folder: string, desired: DesiredPlane): Drift[] {
  return [...desired.files].flatMap(([path, text]) => fileDrift(join(folder, path), text) ?? []);
}

/** A configuration for a repository; nothing but the repository and the state is real. */
export function controlConfig(
  directory: string,
  repository: Readonly<Record<string, unknown>> & { readonly path: string },
): FederationConfig {
  const unused = "http://127.0.0.1:9";
  const config = FederationConfigFile.parse({
    version: 1,
    repository,
    homeserver: { url: unused, operatorToken: { env: "UNUSED" }, signingKeyFile: "unused" },
    transport: { includeFile: "unused", restart: { command: ["false"] } },
    border: { policyFile: "unused", statusToken: { env: "UNUSED" }, violationsFile: "unused" },
  });
  return { ...config, directory, file: join(directory, "federation.yaml") };
}

export interface Opened {
  readonly federation: Federation;
  readonly events: ReconcileEvent[];
  readonly parts: FilePlanes;
  /** Where the planes put their files. */
  readonly folder: string;
}

/**
 * Opens a repository with planes of files below `directory`. Where commits must be signed, the commit that it has now
 * counts as made before that, unless the settings say otherwise.
 */
export async function openControl(
  directory: string,
  repository: Repository,
  clock: Clock,
  settings: Readonly<Record<string, unknown>> = {},
): Promise<Opened> {
  const events: ReconcileEvent[] = [];
  const reporter: Reporter = { event: (event) => events.push(event), note: () => undefined };
  const folder = join(directory, "parts");
  const parts = filePlanes(folder);
  const trusted =
    settings["allowedSignersFile"] === undefined ? {} : { trustedBase: await repository.head() };
  const config = controlConfig(directory, { path: repository.path, ...trusted, ...settings });
  const planes = parts.planes;
  const opened = await openFederation(config, { clock, random: systemRandom, reporter, planes });
  const federation: Federation = { ...opened, parts: PARTS };
  return { federation, events, parts, folder };
}
