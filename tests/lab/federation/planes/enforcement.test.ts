// Which ACL each homeserver enforces after a partner was removed, readmitted, contained and restored, while people of
// both organisations go on writing in every room. Reading a room's state does not show it: the enforcing cache does.
import assert from "node:assert/strict";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, it } from "node:test";
import { type Lab, readLab } from "../../../../lab/lab.ts";
import { labPaths } from "../../../../lab/layout.ts";
import { MatrixUser, roomPath } from "../../../../lab/matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../../../../lab/organisations.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { loadFederationConfig } from "../../../../src/federation/config.ts";
import { borderStatus } from "../../../../src/federation/planes/border/status.ts";
import { Fed } from "../../../support/lab-session.ts";

const TRAFFIC_EVERY_MS = 1_000;
/** Two drift checks of a lab, and a pass. */
const REPAIRED_MS = 60_000;

describe("the rooms' ACLs after a removal, a re-admission, a containment and its end", () => {
  let fed: Fed;
  let lab: Lab;
  const people = new Map<CompleteOrganisation, readonly MatrixUser[]>();
  const ended = new AbortController();
  let traffic: Promise<void>;

  /** Every room that people of an organisation are in. */
  async function roomsOf(organisation: CompleteOrganisation): Promise<readonly string[]> {
    const joined = await Promise.all(
      (people.get(organisation) ?? []).map(async (user) => (await user.request("GET", "/joined_rooms")).body),
    );
    return [...new Set(joined.flatMap((body) => (body["joined_rooms"] ?? []) as string[]))].sort();
  }

  /** Rooms in which an organisation's homeserver lets the stranger in, or enforces another ACL than the state's. */
  async function notEnforced(organisation: CompleteOrganisation): Promise<readonly string[]> {
    const border = borderStatus(loadFederationConfig(lab.paths.organisation(organisation).federationConfig));
    const rooms = await roomsOf(organisation);
    assert.ok(rooms.length >= 4, `${organisation} is in ${rooms.length} rooms`);
    const answers = await Promise.all(
      rooms.map((room) => border.enforcement(room, lab.serverNames["org-c"])),
    );
    return rooms.filter((_, index) => answers[index]?.allowed !== false || !answers[index].enforces_state);
  }

  /** Has the first person of an organisation write into each of its rooms, again and again; a refusal is no matter. */
  async function write(organisation: CompleteOrganisation): Promise<void> {
    const [user] = people.get(organisation) ?? [];
    for (let number = 0; !ended.signal.aborted; number++) {
      try {
        const body = (await user?.request("GET", "/joined_rooms"))?.body ?? {};
        const content = { msgtype: "m.text", body: `Traffic ${number}` };
        for (const room of (body["joined_rooms"] ?? []) as string[]) {
          await user?.request("PUT", roomPath(room, "send/m.room.message", `traffic-${number}`), content);
        }
      } catch {
        // A homeserver that is being restarted does not answer.
      }
      await systemClock.sleep(TRAFFIC_EVERY_MS, ended.signal).catch(() => undefined);
    }
  }

  before(async () => {
    fed = new Fed();
    await fed.up("--with-witness");
    lab = readLab(labPaths(join(fed.state, "lab", "default"))) ?? assert.fail("no lab");
    const { organisations } = await fed.status();
    for (const name of COMPLETE_ORGANISATIONS) {
      const { clientUrl, users } = organisations[name];
      people.set(
        name,
        users.map((user) => new MatrixUser(clientUrl, user.userId as UserId, user.accessToken)),
      );
    }
    traffic = Promise.all(COMPLETE_ORGANISATIONS.map(write)).then(() => undefined);
  });
  after(async () => {
    ended.abort();
    await traffic;
    await fed.good("fed:down", "--purge");
    fed.remove();
  });

  it("each homeserver denies the stranger in every room, as the room's state says [NEG-1] [PLN-2]", {
    timeout: 40 * 60_000,
  }, async () => {
    await fed.good("fed:offboard", "--json");
    await fed.good("fed:readmit", "--json");
    await fed.good("fed:break-glass", "contain", "org-b", "--json");
    await fed.good("fed:break-glass", "restore", "org-b", "--json");

    const deadline = systemClock.now() + REPAIRED_MS;
    for (;;) {
      const wrong = (await Promise.all(COMPLETE_ORGANISATIONS.map(notEnforced))).flat();
      process.stderr.write(`${wrong.length} rooms are enforced otherwise than their state says\n`);
      if (wrong.length === 0) break;
      assert.ok(systemClock.now() < deadline, JSON.stringify(wrong));
      await systemClock.sleep(1_000);
    }
  });
});
