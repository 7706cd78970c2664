import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { Person } from "../../../../src/federation/probes/user.ts";
import { httpServer } from "../../../support/http-server.ts";

type Answer = readonly [status: number, body: Readonly<Record<string, unknown>>];

describe("Person", () => {
  it("isShutOut is true only when an answer says so [EVD-1]", async (t) => {
    const server = await httpServer(t);
    const answers = new Map<string, Answer>();
    server.answer = ({ url }, response) => {
      const [, answer] = [...answers].find(([part]) => url?.includes(part)) ?? [];
      const [status, body] = answer ?? [404, { errcode: "M_NOT_FOUND" }];
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    const { url } = server;
    process.env["PROBE_TOKEN"] = "token";
    t.after(() => delete process.env["PROBE_TOKEN"]);
    const user = {
      userId: "@a:b.test",
      serverName: "b.test",
      homeserverUrl: url,
      accessToken: { env: "PROBE_TOKEN" },
    };
    const person = new Person(user as never, "/", { clock: systemClock, random: systemRandom });
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
