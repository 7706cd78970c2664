// People at the homeservers. Registered by the shared secret (Synapse's admin API), which is how an
// operator makes accounts where registration is closed.
import { createHmac } from "node:crypto";
import { join } from "node:path";
import type { Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { callHomeserver, type MatrixAnswer } from "../matrix-user.ts";
import { type OrganisationName, USERS } from "../organisations.ts";
import type { Seed, SeededUser, SeedSources } from "./seed.ts";

const REGISTER = "/_synapse/admin/v1/register";

export async function seedUsers(
  lab: Lab,
  before: Seed["users"] | undefined,
  { random }: SeedSources,
): Promise<Seed["users"]> {
  const entries = await Promise.all(
    lab.organisations.map(async (organisation) => {
      const users: SeededUser[] = [];
      for (const user of USERS) {
        const userId = `@${user.localpart}:${lab.serverNames[organisation]}`;
        const known = before?.[organisation].find((seeded) => seeded.userId === userId);
        users.push(await ensureUser(lab, organisation, user, userId, known, random));
      }
      return [organisation, users] as const;
    }),
  );
  return { "org-d": before?.["org-d"] ?? [], ...Object.fromEntries(entries) } as Seed["users"];
}

async function ensureUser(
  lab: Lab,
  organisation: OrganisationName,
  user: (typeof USERS)[number],
  userId: string,
  known: SeededUser | undefined,
  random: Random,
): Promise<SeededUser> {
  const { clientUrl } = homeserverEndpoints(lab, organisation);
  if (known !== undefined) {
    const answer = await callHomeserver(clientUrl, "GET", "/_matrix/client/v3/account/whoami", {
      token: known.accessToken,
    });
    if (answer.status === 200) return known;
    return { ...known, accessToken: await logIn(clientUrl, userId, known.password) };
  }
  const password = random.bytes(12).toString("base64url");
  const answer = await register(lab, organisation, clientUrl, user, password);
  if (answer.status === 200) return { userId, password, accessToken: token(answer), admin: user.admin };
  throw refused(`register ${userId}`, answer);
}

async function register(
  lab: Lab,
  organisation: OrganisationName,
  clientUrl: string,
  user: (typeof USERS)[number],
  password: string,
): Promise<MatrixAnswer> {
  const directory = lab.paths.organisation(organisation).homeserver;
  const secret = (readIfPresent(join(directory, HOMESERVER_FILES.registrationSecret)) ?? "").trim();
  const nonce = String((await callHomeserver(clientUrl, "GET", REGISTER)).body["nonce"]);
  const mac = createHmac("sha1", secret)
    .update([nonce, user.localpart, password, user.admin ? "admin" : "notadmin"].join("\0"))
    .digest("hex");
  return callHomeserver(clientUrl, "POST", REGISTER, {
    body: {
      nonce,
      username: user.localpart,
      displayname: user.displayName,
      password,
      admin: user.admin,
      mac,
    },
  });
}

async function logIn(clientUrl: string, userId: string, password: string): Promise<string> {
  const answer = await callHomeserver(clientUrl, "POST", "/_matrix/client/v3/login", {
    body: {
      type: "m.login.password",
      identifier: { type: "m.id.user", user: userId },
      password,
      initial_device_display_name: "Drawbridge lab",
    },
  });
  if (answer.status === 200) return token(answer);
  throw refused(`log in ${userId}`, answer);
}

function token(answer: MatrixAnswer): string {
  const value = answer.body["access_token"];
  if (typeof value === "string") return value;
  throw new DrawbridgeError("homeserver_refused", "the homeserver gives no access token");
}

function refused(what: string, answer: MatrixAnswer): DrawbridgeError {
  return new DrawbridgeError(
    "homeserver_refused",
    `cannot ${what}: ${answer.status} ${String(answer.body["errcode"])}`,
    { hint: "Start afresh: ./task fed:down --purge, then ./task fed:up." },
  );
}
