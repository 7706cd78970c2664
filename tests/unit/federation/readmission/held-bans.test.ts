// Whether a partner's server holds the bans of its users, by how a homeserver answers for an event.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { holdsBans } from "../../../../src/federation/readmission/held-bans.ts";

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
    request: async (_to: ServerName, _method: string, path: string) => {
      const event = decodeURIComponent(path.split("/").at(-1) ?? "");
      asked.push(event);
      const status = statuses[event] ?? others;
      if (status === "silent") throw new Error("no answer");
      return { status, errcode: undefined, isJson: true, body: {}, ...how };
    },
  };
}

describe("readmission held bans", () => {
  it("a server in the room shows the bans it holds, and one that it never got is not found [RDM-1]", async () => {
    const all = server({ "$ban-of-one": 200, "$ban-of-two": 200 });
    assert.equal(await holdsBans(all, PARTNER, BANS), "yes");
    assert.deepEqual(all.asked.sort(), BANS, "no control question is needed");
    assert.equal(await holdsBans(server({ "$ban-of-one": 200 }), PARTNER, BANS), "no");
    assert.equal(await holdsBans(server({}), PARTNER, []), "yes", "nobody of it was banned");
  });

  it("a server whose last user was banned shows no event of the room, and holds the bans all the same [RDM-1]", async () => {
    const left = server({ "$ban-of-one": 403, "$ban-of-two": 403 });
    assert.equal(await holdsBans(left, PARTNER, BANS), "yes");
    assert.equal(left.asked.length, 3, "each ban, and one control question");
    // Somebody who had left, or was invited only, and was banned behind the last member: that ban is sent to nobody.
    const behind = server({ "$ban-of-one": 403, "$ban-of-two": 404 });
    assert.equal(await holdsBans(behind, PARTNER, BANS), "yes");
    assert.equal(await holdsBans(server({ "$ban-of-one": 403 }, "silent"), PARTNER, BANS), "unknown");
  });

  it("a server that refuses whatever it is asked, or does not answer, tells nothing [RDM-1]", async () => {
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

  it("not found counts as a homeserver's own, not as a proxy's or as that of one who knows no such question [RDM-1]", async () => {
    assert.equal(await holdsBans(server({}, 404, { errcode: "M_NOT_FOUND" }), PARTNER, BANS), "no");
    assert.equal(await holdsBans(server({}, 404, { errcode: "M_UNRECOGNIZED" }), PARTNER, BANS), "unknown");
    assert.equal(await holdsBans(server({}, 404, { isJson: false }), PARTNER, BANS), "unknown");
    const refuses = server({ "$ban-of-one": 403 }, 404, { isJson: false });
    assert.equal(await holdsBans(refuses, PARTNER, ["$ban-of-one"]), "unknown");
  });
});
