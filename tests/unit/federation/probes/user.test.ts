import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { type Person, personWith } from "../../../../src/federation/probes/user.ts";
import { httpServer, json } from "../../../support/http-server.ts";

type Answer = readonly [status: number, body: Readonly<Record<string, unknown>>];

function personAt(t: TestContext, url: string): Person {
  process.env["PROBE_TOKEN"] = "token";
  t.after(() => delete process.env["PROBE_TOKEN"]);
  const user = {
    userId: "@a:b.test",
    serverName: "b.test",
    homeserverUrl: url,
    accessToken: { env: "PROBE_TOKEN" },
  };
  return personWith(user as never, "/", { clock: systemClock, random: systemRandom });
}

describe("Person", () => {
  it("what a probe sends is of no type that clients show, and has content [EVD-1]", async (t) => {
    const server = await httpServer(t);
    let sent = "";
    server.answer = (request, response) => {
      request.setEncoding("utf8").on("data", (text: string) => {
        sent += text;
      });
      request.on("end", () => json('{"event_id":"$1"}')(request, response));
    };
    const { eventId } = await personAt(t, server.url).send("!r oomé" as RoomId);
    assert.equal(eventId, "$1");
    assert.match(
      server.requests[0]?.url ?? "",
      /^\/_matrix\/client\/v3\/rooms\/!r%20oom%C3%A9\/send\/drawbridge\.federation\.probe\//,
    );
    const content = JSON.parse(sent) as object;
    assert.deepEqual(Object.keys(content), ["probe"]);
  });

  it("a user's server is everything after the first colon of the ID [PLN-2]", async (t) => {
    const server = await httpServer(t);
    const joined = { "@a b:b.test": {}, "@c:d.test:b.test": {}, "@d:b.test:1": {}, "@e:b.test": {} };
    server.answer = json(JSON.stringify({ joined }));
    const found = await personAt(t, server.url).joinedFrom("!room" as RoomId, "b.test");
    assert.deepEqual(found, ["@a b:b.test", "@e:b.test"]);
  });

  it("isShutOut is true only when an answer says so [EVD-1]", async (t) => {
    const server = await httpServer(t);
    const answers = new Map<string, Answer>();
    server.answer = ({ url }, response) => {
      const [, answer] = [...answers].find(([part]) => url?.includes(part)) ?? [];
      const [status, body] = answer ?? [404, { errcode: "M_NOT_FOUND" }];
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    const person = personAt(t, server.url);
    const isShutOut = (own: Answer, visibility: Answer = [403, { errcode: "M_FORBIDDEN" }]) => {
      answers.set("m.room.member", own).set("m.room.history_visibility", visibility);
      return person.isShutOut("!room" as RoomId);
    };
    assert.equal(await isShutOut([403, { errcode: "M_FORBIDDEN" }]), true);
    assert.equal(await isShutOut([404, { errcode: "M_NOT_FOUND" }]), true);
    assert.equal(await isShutOut([200, { membership: "ban" }]), true);
    assert.equal(
      await isShutOut([200, { membership: "leave" }], [200, { history_visibility: "shared" }]),
      true,
    );
    assert.equal(await isShutOut([200, { membership: "join" }]), false);
    assert.equal(await isShutOut([429, { errcode: "M_LIMIT_EXCEEDED" }]), false);
    assert.equal(await isShutOut([502, {}]), false);
    assert.equal(await isShutOut([404, { errcode: "M_NOT_FOUND" }], [502, {}]), false);
    const worldReadable: Answer = [200, { history_visibility: "world_readable" }];
    assert.equal(await isShutOut([404, { errcode: "M_NOT_FOUND" }], worldReadable), false);

    const isNoAdministrator = (answer: Answer) => {
      answers.set("fetch_event", answer);
      return person.isNoAdministrator();
    };
    assert.equal(await isNoAdministrator([403, { errcode: "M_FORBIDDEN" }]), true);
    assert.equal(await isNoAdministrator([404, { errcode: "M_UNRECOGNIZED" }]), true);
    assert.equal(await isNoAdministrator([404, { errcode: "M_NOT_FOUND" }]), false);
    assert.equal(await isNoAdministrator([500, {}]), false);
  });
});
