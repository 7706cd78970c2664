// The one-machine issuer under the contract test: its clients.yaml written by the adapter.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { freePort } from "../../../lab/ports.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { declaredClientsAdapter } from "../../../src/federation/planes/gateway/issuer-declared.ts";
import { loadIssuerConfig } from "../../../src/issuer/config.ts";
import { startIssuer } from "../../../src/issuer/server.ts";
import { generateSigningKeys } from "../../../src/issuer/signing-keys.ts";
import type { ClientsFile } from "../../../src/rendered-files/issuer-clients.ts";
import { recordedLog } from "../recorded-log.ts";
import { writeFile } from "../temporary.ts";
import { AUDIENCE, askForToken, type IssuerUnderTest } from "./contract.ts";

export async function declaredIssuer(folder: string): Promise<IssuerUnderTest> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const clientsFile = join(folder, "clients.yaml");
  writeFile(join(folder, "keys.json"), JSON.stringify(await generateSigningKeys()), 0o600);
  writeFile(clientsFile, "version: 1\nclients: []\n");
  const start = (lifespan: string) => {
    const file = join(folder, "issuer.yaml");
    const config = {
      version: 1,
      listen: { port },
      url,
      audience: AUDIENCE,
      accessTokenLifespan: lifespan,
      signingKeys: { file: "keys.json" },
    };
    writeFile(file, stringify(config));
    return startIssuer(loadIssuerConfig(file), recordedLog().log, systemClock);
  };
  let issuer = await start("300s");
  const restart = async (lifespan: string) => {
    await issuer.close();
    issuer = await start(lifespan);
  };
  const ask: IssuerUnderTest["ask"] = (clientId, secret) => askForToken(`${url}/token`, clientId, secret);
  return {
    adapter: declaredClientsAdapter({ clientsFile: "clients.yaml" }, folder),
    url,
    jwksUrl: `${url}/jwks`,
    wrongSecret: "invalid_client",
    ask,
    shortLived: async (clientId, secret) => {
      await restart("2s");
      const { token } = await ask(clientId, secret);
      await restart("300s");
      return token;
    },
    putSecret: (name, value) => writeFile(join(folder, "secrets", name), `${value}\n`, 0o600),
    setByHand: async (clientId, enabled) => {
      const file = parse(readFileSync(clientsFile, "utf8")) as ClientsFile;
      const clients = file.clients.map((client) =>
        client.clientId === clientId ? { ...client, enabled } : client,
      );
      writeFileSync(`${clientsFile}.hand`, stringify({ ...file, clients }));
      renameSync(`${clientsFile}.hand`, clientsFile);
    },
    close: () => issuer.close(),
  };
}
