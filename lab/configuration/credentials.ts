// The secrets and keys of the organisations, as their operators would have made them and handed them over.
// Invariants: each is made once and kept; a key never leaves its folder, nothing of it is under version control.
import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type * as z from "zod";
import { generateCardKey } from "../../src/cards/sign.ts";
import { generateSigningKeys } from "../../src/issuer/server.ts";
import { createKeyPair } from "../../src/records/sign/signer.ts";
import type { PublicEs256Jwk } from "../../src/rendered-files/agents-file.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";
import { keepSecret } from "../files.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds, partnerOf } from "../organisations.ts";
import { bridgeDatabaseUrl, readerDatabaseUrl } from "./databases.ts";
import { HOMESERVER_FILES } from "./synapse-config.ts";

/** Files in a bridge's folder of secrets, as its configuration names them. */
export const BRIDGE_SECRETS = {
  asToken: "as-token",
  hsToken: "hs-token",
  contentKeys: "content-keys",
  storeKeys: "store-keys",
  databaseUrl: "database-url",
} as const;

/** The file of the secret that the issuer of `publisher` gave a bridge's client. */
export function bridgeClientSecretFor(publisher: CompleteOrganisation): string {
  return `at-${publisher}.secret`;
}

/** Org C's credentials: a client that no issuer knows, one that no gateway admits, and a key that nobody trusts. */
export function outsiderFiles(lab: Lab) {
  const directory = lab.paths.organisation("org-c").outsider;
  return {
    unknownClientSecret: join(directory, "secrets", `${clientIds.bridgeOf("org-c")}.secret`),
    applicantSecret: (issuer: CompleteOrganisation) =>
      join(directory, "secrets", `${clientIds.applicant}-${issuer}.secret`),
    tokenKey: join(directory, "secrets", "token-signing-key.json"),
  };
}

/** What partners tell each other of themselves: public keys and their names. */
export interface IdentityFacts {
  readonly cardKey: { readonly keyId: string; readonly jwk: z.input<typeof PublicEs256Jwk> };
  /** Of its homeserver, such as `ed25519:a_1x2y`. */
  readonly serverKeyId: string;
}
export type Identities = Readonly<Record<CompleteOrganisation, IdentityFacts>>;

/** Makes the secrets that are missing, and hands those of clients to their holders. */
export async function provisionCredentials(lab: Lab): Promise<void> {
  const { random } = SOURCES;
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const paths = lab.paths.organisation(organisation);
    await keepSecret(paths.issuerKeys, async () => JSON.stringify(await generateSigningKeys(), null, 2));
    await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.asToken));
    await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.hsToken));
    for (const name of [BRIDGE_SECRETS.contentKeys, BRIDGE_SECRETS.storeKeys]) {
      await keepSecret(paths.bridgeSecret(name), () => random.bytes(32).toString("base64"));
    }
    writeSecret(paths.bridgeSecret(BRIDGE_SECRETS.databaseUrl), await bridgeDatabaseUrl(lab, organisation));
    writeSecret(paths.databaseUrl, await readerDatabaseUrl(lab, organisation));
    await handOverClientSecrets(lab, organisation);
  }
  await keepSecret(outsiderFiles(lab).unknownClientSecret);
  await keepSecret(
    outsiderFiles(lab).tokenKey,
    async () => (await generateCardKey("org-c-tokens-1")).privateJwk,
  );
  provisionRecordsKeys(lab);
}

async function handOverClientSecrets(lab: Lab, issuer: CompleteOrganisation): Promise<void> {
  const { clientSecret } = lab.paths.organisation(issuer);
  for (const holder of [issuer, partnerOf(issuer)]) {
    const held = lab.paths.organisation(holder).bridgeClientSecret(bridgeClientSecretFor(issuer));
    writeSecret(held, await keepSecret(clientSecret(clientIds.bridgeOf(holder))));
  }
  writeSecret(
    outsiderFiles(lab).applicantSecret(issuer),
    await keepSecret(clientSecret(clientIds.applicant)),
  );
}

function writeSecret(file: string, secret: string): void {
  writeWhole(file, `${secret}\n`, PRIVATE);
}

/** The public half of an organisation's card key, which is made if need be, and its server key's name. */
export async function identityOf(lab: Lab, organisation: CompleteOrganisation): Promise<IdentityFacts> {
  const { agentKey, homeserver } = lab.paths.organisation(organisation);
  const keyId = `${organisation}-card-1`;
  const text = await keepSecret(agentKey, async () => (await generateCardKey(keyId)).privateJwk);
  const { d: _private, ...jwk } = JSON.parse(text);
  const serverKey = readIfPresent(join(homeserver, HOMESERVER_FILES.signingKey)) ?? "";
  const [algorithm, version] = serverKey.split(" ");
  return { cardKey: { keyId, jwk }, serverKeyId: `${algorithm}:${version}` };
}

/** The key of every organisation's key folder with which removals are signed. */
export const RECORDS_PRIVATE_KEY = "records-key.pem";
const RECORDS_PUBLIC_KEY = "records-key.pub.pem";

function provisionRecordsKeys(lab: Lab): void {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { recordsKeys } = lab.paths.organisation(organisation);
    mkdirSync(recordsKeys, { recursive: true, mode: 0o700 });
    if (!existsSync(join(recordsKeys, RECORDS_PRIVATE_KEY))) createKeyPair(recordsKeys);
  }
  for (const organisation of COMPLETE_ORGANISATIONS) {
    for (const of of COMPLETE_ORGANISATIONS) {
      const publicKey = join(lab.paths.organisation(of).recordsKeys, RECORDS_PUBLIC_KEY);
      copyFileSync(publicKey, lab.paths.organisation(organisation).recordsPublicKey(of));
    }
  }
}
