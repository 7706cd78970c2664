// The folder of one Synapse: its secrets, signing key, certificate and configuration.
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ServerName } from "../../src/domain/identifiers.ts";
import { freshSigningKey } from "../../src/federation/homeserver/signed-request.ts";
import { PRIVATE, PUBLIC } from "../../src/runtime/write-file.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import { type ConfigurationFile, keepSecret } from "../files.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { ADMITTED_ORGANISATIONS, hostOf, isComplete, type OrganisationName } from "../organisations.ts";
import { type Authority, keepCertificate } from "./certificates.ts";
import { synapseDatabaseName, synapseDatabasePassword } from "./databases.ts";
import { HOMESERVER_FILES, renderHomeserver } from "./synapse-config.ts";

/**
 * The servers that a homeserver's own configuration admits. C admits all, so that the others have to refuse it.
 * A and B admit nobody until the reconciler has written the include file that their registry renders.
 */
export function federationAllowList(lab: Lab, organisation: OrganisationName): ServerName[] {
  if (isComplete(organisation)) return [];
  const admitted = ADMITTED_ORGANISATIONS.map((name) => lab.serverNames[name]);
  return organisation === "org-c" ? [...admitted, lab.serverNames["org-c"]] : admitted;
}

export async function provisionHomeserver(
  lab: Lab,
  organisation: OrganisationName,
  authority: Authority,
): Promise<ConfigurationFile[]> {
  const paths = lab.paths.organisation(organisation);
  const inside = (name: string) => join(paths.homeserver, name);
  mkdirSync(inside(HOMESERVER_FILES.media), { recursive: true });
  for (const name of ["registrationSecret", "macaroonSecret", "formSecret"] as const) {
    await keepSecret(inside(HOMESERVER_FILES[name]));
  }
  await keepSecret(inside(HOMESERVER_FILES.signingKey), () =>
    freshSigningKey(SOURCES.random, `a_${SOURCES.random.bytes(3).toString("hex")}`),
  );
  if (isComplete(organisation)) {
    mkdirSync(paths.homeserverIncludes, { recursive: true });
    mkdirSync(dirname(paths.policyFile), { recursive: true });
    await keepSecret(paths.borderStatusToken);
  }
  await keepCertificate(
    authority,
    hostOf(organisation),
    {
      certificate: inside(HOMESERVER_FILES.certificate),
      privateKey: inside(HOMESERVER_FILES.privateKey),
    },
    SOURCES.clock,
  );
  const ports = lab.ports.organisations[organisation];
  const rendered = renderHomeserver({
    serverName: lab.serverNames[organisation],
    directory: paths.homeserver,
    clientPort: ports.client,
    federation: {
      port: ports.federation,
      proxyUrl: homeserverEndpoints(lab, organisation).connectProxy,
      caFile: lab.paths.caCertificate,
      allow: federationAllowList(lab, organisation),
    },
    database: {
      host: "127.0.0.1",
      port: lab.ports.postgres,
      user: synapseDatabaseName(organisation),
      password: await synapseDatabasePassword(lab, organisation),
      name: synapseDatabaseName(organisation),
    },
    ...(isComplete(organisation)
      ? {
          registrationFiles: [paths.registration],
          border: {
            policyFile: paths.policyFile,
            violationsFile: paths.violationsFile,
            statusTokenFile: paths.borderStatusToken,
          },
        }
      : { registrationFiles: [] }),
  });
  return Object.entries(rendered).map(([name, text]) => ({
    file: inside(name),
    text,
    mode: name === HOMESERVER_FILES.config ? PRIVATE : PUBLIC,
  }));
}
