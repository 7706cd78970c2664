// Puts the rendered files of the branch where the programs read them, before the programs run: a homeserver
// must not start without its list, nor a gateway without its callers. The reconciler does the rest.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { type FederationConfig, loadFederationConfig } from "../../src/federation/config.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { PUBLIC } from "../../src/runtime/write-file.ts";

interface PlacedFile {
  readonly target: string;
  readonly text: string;
}

/**
 * Files that somebody has edited by hand: they are about to be put right.
 * @throws ConfigError, DrawbridgeError `config_unreadable`, `repository_unusable`
 */
export async function editedRendered(configFile: string): Promise<string[]> {
  const placed = await renderedFiles(loadFederationConfig(configFile));
  return placed.flatMap(({ target, text }) => (fileDrift(target, text)?.kind === "edited" ? [target] : []));
}

/** @throws ConfigError, DrawbridgeError `config_unreadable`, `repository_unusable` */
export async function placeRendered(configFile: string): Promise<void> {
  const placed = await renderedFiles(loadFederationConfig(configFile));
  for (const { target, text } of placed) applyFile(target, text, PUBLIC);
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
