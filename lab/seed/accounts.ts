// The people at the homeservers. They are registered by the shared secret (Synapse's admin API), as an operator
// makes accounts where registration is closed.
// Invariant: running it again keeps every account and its password, and renews only access tokens that were lost.
import { createHmac } from "node:crypto";
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { callHomeserver, type MatrixAnswer } from "../matrix-user.ts";
import { isComplete, type OrganisationName, USERS } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { readSeed, type Seed, type SeededUser } from "./seed-file.ts";

const REGISTER = "/_synapse/admin/v1/register";

/**
 * Registers the people who are missing, and hands each organisation its users' tokens: federation control acts as
 * the operator, so it cannot start before. Only the homeservers must run.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function seedPeople(lab: Lab, progress: Progress): Promise<void> {
  const before = readSeed(lab);
  progress.doing("registering people");
  const entries = await Promise.all(
    lab.organisations.map(async (organisation) => {
      const known = before?.users[organisation] ?? [];
      const users: SeededUser[] = [];
      for (const user of USERS) users.push(await ensureUser(lab, organisation, user, known));
      handOverTokens(lab, organisation, users);
      return [organisation, users] as const;
    }),
  );
  const users = { "org-d": before?.users["org-d"] ?? [], ...Object.fromEntries(entries) } as Seed["users"];
  writeJson(lab.paths.seed, { users, rooms: before?.rooms ?? [] } satisfies Seed);
  if (before === undefined) progress.done("people: alice, bob and operator at each homeserver");
}

function handOverTokens(lab: Lab, organisation: OrganisationName, users: readonly SeededUser[]): void {
  const paths = lab.paths.organisation(organisation);
  const keep = (file: string, token: string) => {
    if (readIfPresent(file)?.trim() !== token) writeWhole(file, `${token}\n`, PRIVATE);
  };
  for (const { userId, accessToken, admin } of users) {
    keep(paths.userToken(userId.slice(1, userId.indexOf(":"))), accessToken);
    if (admin && isComplete(organisation)) keep(paths.operatorToken, accessToken);
  }
}

async function ensureUser(
  lab: Lab,
  organisation: OrganisationName,
  user: (typeof USERS)[number],
  known: readonly SeededUser[],
): Promise<SeededUser> {
  const { clientUrl } = homeserverEndpoints(lab, organisation);
  const userId = `@${user.localpart}:${lab.serverNames[organisation]}`;
  const found = known.find((seeded) => seeded.userId === userId);
  if (found !== undefined) {
    const { accessToken: token } = found;
    const answer = await callHomeserver(clientUrl, "GET", "/_matrix/client/v3/account/whoami", { token });
    return answer.status === 200
      ? found
      : { ...found, accessToken: await logIn(clientUrl, userId, found.password) };
  }
  const directory = lab.paths.organisation(organisation).homeserver;
  const secret = (readIfPresent(join(directory, HOMESERVER_FILES.registrationSecret)) ?? "").trim();
  const password = SOURCES.random.bytes(12).toString("base64url");
  const { localpart: username, displayName: displayname, admin } = user;
  const nonce = String((await callHomeserver(clientUrl, "GET", REGISTER)).body["nonce"]);
  const mac = createHmac("sha1", secret)
    .update([nonce, username, password, admin ? "admin" : "notadmin"].join("\0"))
    .digest("hex");
  const body = { nonce, username, displayname, password, admin, mac };
  const answer = await callHomeserver(clientUrl, "POST", REGISTER, { body });
  return { userId, password, accessToken: tokenIn(answer, `register ${userId}`), admin };
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
  return tokenIn(answer, `log in ${userId}`);
}

function tokenIn({ status, body }: MatrixAnswer, what: string): string {
  const token = body["access_token"];
  if (status === 200 && typeof token === "string") return token;
  throw new DrawbridgeError("homeserver_refused", `cannot ${what}: ${status} ${String(body["errcode"])}`, {
    hint: "Start afresh: ./task fed:down --purge, then ./task fed:up.",
  });
}
