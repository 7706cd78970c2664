// Encrypting clients of both organisations' people, for as long as something needs them.
// Invariants: the one who speaks knows the other's device first, so that what is said can be read by both;
// both devices are gone afterwards, whatever happened.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Lab, Sources } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import type { Seed } from "../seed/seed-file.ts";
import { EncryptingUser } from "./encrypting-user.ts";

/** A homeserver tells others of a new device at once, but not always within a second. */
const KNOWN_WITHIN_MS = 30_000;
const POLL_MS = 100;

/**
 * @param speaker who is going to send something
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`; `program_failed` when the devices do
 *   not become known
 */
export async function withEncryptingUsers<Result>(
  lab: Lab,
  seed: Seed,
  speaker: CompleteOrganisation,
  sources: Sources,
  work: (users: Readonly<Record<CompleteOrganisation, EncryptingUser>>) => Promise<Result>,
): Promise<Result> {
  const made = await Promise.allSettled(
    COMPLETE_ORGANISATIONS.map(
      async (name) => [name, await EncryptingUser.logIn(lab, seed, name, sources)] as const,
    ),
  );
  const loggedIn = made.filter((one) => one.status === "fulfilled").map(({ value }) => value);
  try {
    for (const one of made) if (one.status === "rejected") throw one.reason;
    const users = Object.fromEntries(loggedIn) as Record<CompleteOrganisation, EncryptingUser>;
    await untilKnown(users[speaker], users[partnerOf(speaker)], sources);
    return await work(users);
  } finally {
    await Promise.all(loggedIn.map(([, user]) => user.logOut()));
  }
}

async function untilKnown(who: EncryptingUser, of: EncryptingUser, { clock }: Sources): Promise<void> {
  const deadline = clock.now() + KNOWN_WITHIN_MS;
  while (!(await who.knows(of.userId, of.deviceId))) {
    if (clock.now() > deadline) {
      throw new DrawbridgeError(
        "program_failed",
        `${who.userId} does not learn of the device of ${of.userId}`,
        {
          hint: "Look at ./task fed:status: is a link cut, or a homeserver down?",
        },
      );
    }
    await clock.sleep(POLL_MS);
  }
}
