import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import type { UnknownObject } from "../../../../src/domain/json.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { borderStatus } from "../../../../src/federation/planes/border/runtime.ts";
import { httpServer } from "../../../support/http-server.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

/** The client of a module that answers so. */
async function moduleThat(t: TestContext, answer: (body: UnknownObject) => object) {
  const directory = temporaryFolder(t);
  writeFileSync(join(directory, "token"), "secret", { mode: 0o600 });
  const server = await httpServer(t);
  server.answer = (request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    request.on("end", () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(answer(JSON.parse(text) as UnknownObject)));
    });
  };
  return borderStatus({
    directory,
    homeserver: { url: server.url },
    border: { statusToken: { file: "token" } },
  } as unknown as FederationConfig);
}

describe("the client of the border module", () => {
  it("rooms that the module had no time to compare are asked about again, and none counts as compared that was not [PLN-2]", async (t) => {
    const asked: string[][] = [];
    let compares = 2;
    const { differing } = await moduleThat(t, (body) => {
      const rooms = body["rooms"] as string[];
      asked.push(rooms);
      const found = rooms.slice(0, compares).filter((room) => room === "!4");
      return { differing: found, compared: Math.min(compares, rooms.length) };
    });
    const rooms = ["!1", "!2", "!3", "!4", "!5"];
    assert.deepEqual(await differing(rooms, []), ["!4"]);
    assert.deepEqual(asked, [rooms, rooms.slice(2), rooms.slice(4)]);
    compares = 0;
    await assert.rejects(differing(rooms, []), { code: "homeserver_refused" });
  });

  it("all rooms that users of ours are in are read, however many requests that takes [PLN-2]", async (t) => {
    const all = ["!1", "!2", "!3", "!4", "!5"];
    const { rooms } = await moduleThat(t, ({ after }) => {
      const behind = all.filter((room) => room > String(after));
      return { rooms: behind.slice(0, 2), complete: behind.length <= 2 };
    });
    assert.deepEqual(await rooms(), all);
  });
});
