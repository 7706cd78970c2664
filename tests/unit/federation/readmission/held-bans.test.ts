// Whether a partner's server holds the bans of its users, by how a homeserver answers for an event.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { holdsBans } from "../../../../src/federation/readmission/rooms.ts";

const PARTNER = "b.test:8448" as ServerName;
const BANS = ["$ban-of-one", "$ban-of-two"];

/** A server that answers with these statuses, and with `others` for every event that is none of them. */
function server(
  statuses: Readonly<Record<string, number | "silent">>,
  others: number | "silent" = 404,
  how = {},
) {
  const asked: string[] = [];
  return {
    asked,
    request: async (_to: ServerName, path: string) => {
      const event = decodeURIComponent(path.split("/").at(-1) ?? "");
      asked.push(event);
      const status = statuses[event] ?? others;
      if (status === "silent") throw new Error("no answer");
      return { status, errcode: undefined, isJson: true, body: {}, ...how };
    },
  };
}

describe("holdsBans", () => {
  it("holdsBans says no when a server in the room does not find a ban [RDM-1]", async () => {
    const all = server({ "$ban-of-one": 200, "$ban-of-two": 200 });
    assert.equal(await holdsBans(all, PARTNER, BANS), "yes");
    assert.deepEqual(all.asked.sort(), BANS, "no control question is needed");
    assert.equal(await holdsBans(server({ "$ban-of-one": 200 }), PARTNER, BANS), "no");
    assert.equal(await holdsBans(server({}), PARTNER, []), "yes", "nobody of it was banned");
  });

  it("holdsBans says yes when a server whose last user was banned shows no event of the room [RDM-1]", async () => {
    const left = server({ "$ban-of-one": 403, "$ban-of-two": 403 });
    assert.equal(await holdsBans(left, PARTNER, BANS), "yes");
    assert.equal(left.asked.length, 3, "each ban, and one control question");
    // Somebody who had left, or was invited only, and was banned behind the last member: that ban is sent to nobody.
    const behind = server({ "$ban-of-one": 403, "$ban-of-two": 404 });
    assert.equal(await holdsBans(behind, PARTNER, BANS), "yes");
    assert.equal(await holdsBans(server({ "$ban-of-one": 403 }, "silent"), PARTNER, BANS), "unknown");
  });

  it("holdsBans says unknown when a server refuses every request or does not answer [RDM-1]", async () => {
    const refuses = server({ "$ban-of-one": 403, "$ban-of-two": 403 }, 403);
    assert.equal(await holdsBans(refuses, PARTNER, BANS), "unknown");
    const halfway = server({ "$ban-of-one": 403, "$ban-of-two": 403 }, "silent");
    assert.equal(await holdsBans(halfway, PARTNER, BANS), "unknown");
    assert.equal(await holdsBans(server({}, "silent"), PARTNER, BANS), "unknown");
    assert.equal(await holdsBans(server({ "$ban-of-one": 502 }), PARTNER, ["$ban-of-one"]), "unknown");
    assert.equal(
      await holdsBans(server({}), PARTNER, [undefined]),
      "unknown",
      "which event it was is not known",
    );
  });

  it("holdsBans counts a not found of a homeserver alone, not of a proxy or of an unknown endpoint [RDM-1]", async () => {
    assert.equal(await holdsBans(server({}, 404, { errcode: "M_NOT_FOUND" }), PARTNER, BANS), "no");
    assert.equal(await holdsBans(server({}, 404, { errcode: "M_UNRECOGNIZED" }), PARTNER, BANS), "unknown");
    assert.equal(await holdsBans(server({}, 404, { isJson: false }), PARTNER, BANS), "unknown");
    const refuses = server({ "$ban-of-one": 403 }, 404, { isJson: false });
    assert.equal(await holdsBans(refuses, PARTNER, ["$ban-of-one"]), "unknown");
  });
});
